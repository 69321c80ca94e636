//! One work item of a run that an operator has planned and holds the lock for: what a pod does.
//!
//! A pod may be killed at any moment and another may be started for the same item, even beside
//! it. So an item is looked at before it is worked on: what is there and right is kept. Shards
//! are published as in a run on one machine, and so are byte for byte the same.

mod handout;
mod resume;
pub mod termination;

use std::sync::Arc;
use std::time::Instant;

use futures::future::join3;
use storage::state::RunId;
use storage::state::batch::WorkItem;
use storage::state::fence::{DEFAULT_MAX_LOOK_AGE, Fence};
use storage::state::identity::this_process;
use storage::state::item_lines::read_lines;
use storage::state::plan::{PlanLine, PlanReader};
use storage::state::report::{ChunkReport, ChunkState, Counts, Failure, ReportWriter};
use storage::{ETag, ObjectMeta, StorageConfig, Store, Stores};
use time::OffsetDateTime;

use crate::chunk::handout::Handout;
use crate::chunk::resume::{Resumed, resume};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::run::batch::{ROW_OVERHEAD, budget};
use crate::run::context::RunContext;
use crate::run::finisher::Task;
use crate::run::planning::sample_size;
use crate::run::progress::Progress;
use crate::run::scheduler::{Chunk, Item, MOST_IN_FLIGHT, Scheduler};
use crate::run::stop::Stop;
use crate::run::{fence_error, state_error};

/// Shards that are looked at to estimate the memory of one.
const SAMPLES: usize = 2;

/// Which work item, and with what.
#[derive(Debug, Clone)]
pub struct ChunkOptions {
    /// The effective output prefix.
    pub output_prefix: String,
    /// The run.
    pub run: RunId,
    /// The epoch in which the run holds the prefix.
    pub epoch: u64,
    /// Digest of the run's pipeline; `None`: that of the batch.
    pub digest: Option<String>,
    /// The batch.
    pub batch: u64,
    /// Number of the attempt at it.
    pub attempt: u32,
    /// Index of the item in the batch.
    pub index: u64,
    /// Bytes of memory.
    pub memory: u64,
    /// Threads.
    pub threads: usize,
}

/// What came of a work item.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The item, once it is known.
    pub item: Option<WorkItem>,
    /// Numbers.
    pub counts: Counts,
    /// Whether every shard of it is done or has failed.
    pub is_complete: bool,
    /// Shards that failed.
    pub failures: Vec<Failure>,
    /// What ended it before its time.
    pub error: Option<Error>,
}

/// Does a work item. `started` is when the process began.
pub async fn chunk(
    options: &ChunkOptions,
    progress: Arc<Progress>,
    stop: Stop,
    started: Instant,
) -> Outcome {
    let mut outcome = Outcome::default();
    if let Err(error) = work(options, progress, stop, started, &mut outcome).await {
        if outcome.counts.seconds.start == 0.0 {
            outcome.counts.seconds.start = started.elapsed().as_secs_f64();
        }
        outcome.error = Some(error);
    }
    outcome
}

async fn work(
    options: &ChunkOptions,
    progress: Arc<Progress>,
    stop: Stop,
    started: Instant,
    outcome: &mut Outcome,
) -> Result<()> {
    // How storage is reached is for the pod to say, not for a file below the output prefix.
    let environment = StorageConfig::from_variables(|name| std::env::var(name).ok());
    let environment = environment.map_err(Error::Usage)?;
    let stores = Arc::new(Stores::new(&environment));
    let output = stores.open(&options.output_prefix)?;
    let handout = Handout::read(&output, options).await?;
    outcome.item = Some(handout.item);
    let lap = |what: &str| tracing::debug!(seconds = started.elapsed().as_secs_f64(), "{what}");
    lap("the work item is known");

    let prepared = match prepare(stores, &output, &handout, options).await {
        Ok(prepared) => prepared,
        Err(error) => {
            leave_reason(&output, &handout, options, &error).await;
            return Err(error);
        }
    };
    let Prepared {
        job,
        resumed,
        recorded,
    } = prepared;
    let Resumed { todo, kept, failed } = resumed;
    let shard_memory = shard_memory(&job, &handout, &todo, options.memory).await;

    lap("what is left to do is known");
    progress.begin(todo.len() as u64, kept.len() as u64);
    let context = RunContext {
        job,
        run: options.run.clone(),
        memory: options.memory,
        threads: options.threads,
        fence: handout.fence.clone(),
        progress,
        stop,
        started,
    };
    let watch = Task::spawn(watch(context.fence.clone(), context.stop.clone()));
    let scheduler = Scheduler::new(context, shard_memory);
    let item = Item {
        chunks: handout.item,
        attempt: options.attempt,
        kept,
        failed,
        recorded,
    };
    let done = scheduler
        .chunk(Chunk {
            number: handout.item.first,
            lines: todo,
            item: Some(item),
        })
        .await?;
    drop(watch);
    outcome.counts = done.counts;
    outcome.is_complete = done.is_complete;
    outcome.failures = done.failures;
    if let Some(error) = done.ended {
        return Err(error);
    }
    if handout.fence.is_lost() {
        handout.fence.check().await.map_err(fence_error)?;
    }
    Ok(())
}

/// A work item that can be begun.
struct Prepared {
    job: Arc<Job>,
    resumed: Resumed,
    /// Version of the lines that an earlier attempt left.
    recorded: Option<ETag>,
}

/// Opens what the manifest names, and sorts out what is left to do.
async fn prepare(
    stores: Arc<Stores>,
    output: &Arc<dyn Store>,
    handout: &Handout,
    options: &ChunkOptions,
) -> Result<Prepared> {
    handout.check_digest()?;
    // What the operator hands out and what the manifest names are looked at side by side.
    let (job, listed, recorded) = join3(
        Job::open_in(
            stores,
            handout.manifest.clone(),
            Some(&options.output_prefix),
        ),
        list(&**output, handout, options),
        read_lines(&**output, &options.run, &handout.digest, handout.item.first),
    )
    .await;
    let job = Arc::new(job.map_err(|error| handout.explain(error))?);
    handout.check_inputs(&job)?;
    let (lines, there) = listed?;
    let recorded = recorded.map_err(state_error)?;
    let (recorded, earlier) = match recorded {
        Some(recorded) => (Some(recorded.etag), recorded.lines),
        None => (None, Vec::new()),
    };
    let resumed = resume(&job, &handout.plan.replaces, lines, &there, &earlier).await?;
    Ok(Prepared {
        job,
        resumed,
        recorded,
    })
}

/// Says in the item's report why it can't be begun: whoever hands it out may never see the pod.
async fn leave_reason(
    output: &Arc<dyn Store>,
    handout: &Handout,
    options: &ChunkOptions,
    error: &Error,
) {
    if handout.fence.check().await.is_err() {
        return;
    }
    let now = OffsetDateTime::now_utc();
    let worker = this_process("shard-worker").host;
    let (run, digest) = (options.run.clone(), handout.digest.clone());
    let mut report = ChunkReport::new(run, digest, 0, worker, handout.item.len(), now)
        .of_item(handout.item, options.attempt);
    report.state = ChunkState::Failed;
    report.reason = Some(error.to_string());
    report.is_permanent = error.is_permanent();
    let mut writer = ReportWriter::new(output.clone());
    if let Err(error) = writer.write(&mut report, now).await {
        tracing::warn!(%error, "the report of the work item can't be written");
    }
}

/// Looks at the lock as often as a publication would, so that a long pass, or an upload that is
/// tried again and again, ends soon after the lock is lost. Nobody renews it here, who would
/// notice.
async fn watch(fence: Fence, stop: Stop) {
    while !fence.is_lost() {
        tokio::time::sleep(DEFAULT_MAX_LOOK_AGE).await;
        // What can't be told now is asked again.
        let _ = fence.check().await;
    }
    stop.request();
}

/// The shards of the item, and which of them are there.
async fn list(
    output: &dyn Store,
    handout: &Handout,
    options: &ChunkOptions,
) -> Result<(Vec<PlanLine>, Vec<ObjectMeta>)> {
    let lines = PlanReader::read_range(output, &handout.plan, handout.item.chunks()).await;
    let lines = lines.map_err(handout::missing_is_broken)?;
    let paths: Vec<String> = lines.iter().map(|line| line.path.clone()).collect();
    if let Some(pair) = paths.windows(2).find(|pair| pair[0] >= pair[1]) {
        return Err(Error::Usage(format!(
            "the plan of run {} has {:?} after {:?}: paths ascend; plan it again",
            options.run, pair[1], pair[0]
        )));
    }
    let there = output.find(&paths).await?;
    Ok((lines, there))
}

/// Bytes that a shard takes. Where any number of shards of that size would fit, the plan's
/// estimate will do; otherwise some are looked at.
async fn shard_memory(job: &Arc<Job>, handout: &Handout, todo: &[PlanLine], memory: u64) -> u64 {
    let width: u64 = job.lookups.iter().map(|lookup| lookup.value_width()).sum();
    let rows = handout.plan.rows_per_shard.unwrap_or(0.0).max(0.0) as u64;
    let largest = todo.iter().map(|line| line.size).max().unwrap_or_default();
    let bound = 2 * largest + rows * (width + ROW_OVERHEAD);
    let at_once = MOST_IN_FLIGHT.min(todo.len() as u64);
    if bound.saturating_mul(at_once) <= budget(memory) {
        return bound;
    }
    let sample: Vec<ObjectMeta> = todo
        .iter()
        .step_by((todo.len() / SAMPLES).max(1))
        .take(SAMPLES)
        .map(|line| ObjectMeta {
            key: line.path.clone(),
            size: line.size,
            etag: line.etag.clone(),
        })
        .collect();
    sample_size(job, &sample).await.memory
}
