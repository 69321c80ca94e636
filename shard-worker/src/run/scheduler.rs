//! Works through a chunk: many shards in flight, as much in memory as the budget holds, CPU
//! work on a fixed number of threads.

use std::sync::{Arc, PoisonError};

use futures::StreamExt;
use futures::stream::BoxStream;
use storage::ETag;
use storage::state::RunId;
use storage::state::batch::WorkItem;
use storage::state::fence::Fence;
use storage::state::item_lines::write_item_lines;
use storage::state::manifest::ManifestPart;
use storage::state::plan::PlanLine;
use storage::state::report::{ChunkReport, ChunkState, Counts, Failure};
use storage::state::shard_lines::{ShardLine, write_lines};
use time::OffsetDateTime;

use crate::error::{Error, Result, ShardError};
use crate::job::Job;
use crate::lookup::PassStats;
use crate::run::batch::{budget, memory_of};
use crate::run::context::RunContext;
use crate::run::finisher::{Finisher, Loaded, Task, Waiting};
use crate::run::passes::{Passed, Passes};
use crate::run::progress::Progress;
use crate::run::report::Timing;
use crate::run::reporter::Reporter;
use crate::run::room::Room;
use crate::run::stop::Stop;
use crate::run::tally::{ShardOutcome, failures, fatal, shard_line, unreachable};
use crate::run::{fence_error, state_error};

/// Shards whose requests are in flight at once, at most.
pub const MOST_IN_FLIGHT: u64 = 256;

/// What there is to do of a chunk, or of a work item of several.
pub struct Chunk {
    /// Its number, or that of the first.
    pub number: u64,
    /// The shards to make.
    pub lines: Vec<PlanLine>,
    /// What is known of a work item.
    pub item: Option<Item>,
}

/// A work item: it may have been begun before, and somebody else may be at it.
pub struct Item {
    /// Its chunks.
    pub chunks: WorkItem,
    /// Number of the attempt at its batch.
    pub attempt: u32,
    /// Lines of the shards that are there and right.
    pub kept: Vec<ShardLine>,
    /// Shards that can't be made, whatever is tried.
    pub failed: Vec<ShardOutcome>,
    /// Version of the lines that an earlier attempt has left.
    pub recorded: Option<ETag>,
}

/// What a chunk came to.
#[derive(Debug)]
pub struct ChunkDone {
    /// Numbers.
    pub counts: Counts,
    /// Its part of the manifest.
    pub part: Option<ManifestPart>,
    /// Failed shards.
    pub failures: Vec<Failure>,
    /// Whether every shard is done or has failed.
    pub is_complete: bool,
    /// An error that ends the run.
    pub ended: Option<Error>,
}

/// Works through chunks, one after the other.
pub struct Scheduler {
    job: Arc<Job>,
    run: RunId,
    memory: u64,
    threads: usize,
    in_flight: usize,
    fence: Fence,
    progress: Arc<Progress>,
    stop: Stop,
    finisher: Finisher,
    passes: Arc<Passes>,
    plan_seconds: f64,
}

impl Scheduler {
    /// A scheduler for the chunks of one run, whose shards take `shard_memory` bytes each.
    pub fn new(context: RunContext, shard_memory: u64) -> Self {
        let RunContext {
            job,
            run,
            memory,
            threads,
            fence,
            progress,
            stop,
            started,
        } = context;
        let by_memory = budget(memory) / shard_memory.max(1);
        let passes = Passes::new(job.clone(), memory, threads, stop.clone());
        let passes = Arc::new(passes);
        Self {
            in_flight: by_memory.clamp(1, MOST_IN_FLIGHT) as usize,
            finisher: Finisher::new(
                passes.clone(),
                fence.clone(),
                stop.clone(),
                (&job, threads, memory),
            ),
            memory,
            threads,
            plan_seconds: started.elapsed().as_secs_f64(),
            passes,
            job,
            run,
            fence,
            progress,
            stop,
        }
    }

    /// Passes so far.
    pub fn passes(&self) -> (u64, PassStats) {
        self.passes.so_far()
    }

    /// Time so far.
    pub fn timing(&self) -> Timing {
        let measured = self.passes.measured();
        let measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
        Timing {
            wall_seconds: 0.0,
            plan_seconds: self.plan_seconds,
            index_pass_seconds: measured.pass_seconds(),
            index_pass_cpu_seconds: self.passes.cpu_time().as_secs_f64(),
            shard_cpu_seconds: self.finisher.cpu_time().as_secs_f64(),
        }
    }

    /// Works through one chunk. Shards that fail do not stop it; a lost lock, a refused store
    /// and a broken side input do.
    pub async fn chunk(&self, chunk: Chunk) -> Result<ChunkDone> {
        let Chunk {
            number,
            lines,
            item,
        } = chunk;
        let now = OffsetDateTime::now_utc();
        let worker = storage::state::identity::this_process("shard-worker").host;
        let (run, digest) = (self.run.clone(), self.job.digest.clone());
        let mut report = ChunkReport::new(run, digest, number, worker, lines.len() as u64, now);
        if let Some(item) = &item {
            report = report.of_item(item.chunks, item.attempt);
            report.shards_planned += (item.kept.len() + item.failed.len()) as u64;
        }
        let to_end = report.shards_planned;
        let kept = item.as_ref().map_or(&[][..], |item| &item.kept);
        let reporter = Arc::new(Reporter::new(
            (self.job.clone(), self.fence.clone(), self.progress.clone()),
            report,
            kept,
            self.plan_seconds,
            self.passes.measured(),
        ));
        let writing = reporter.keep_writing(item.is_some());
        let mut ended = None;

        let mut loaded = self.load_all(lines);
        let mut outcomes: Vec<ShardOutcome> = Vec::new();
        let (mut kept_lines, mut recorded) = (Vec::new(), None);
        let is_item = item.is_some();
        if let Some(item) = item {
            item.failed.iter().for_each(|outcome| reporter.add(outcome));
            outcomes.extend(item.failed);
            (kept_lines, recorded) = (item.kept, item.recorded);
        }
        let mut rest: Vec<Waiting> = Vec::new();
        let mut at_most = usize::MAX;
        'batches: loop {
            let mut batch = std::mem::take(&mut rest);
            let mut held = 0;
            if batch.is_empty() && self.job.has_lookups() {
                at_most = usize::MAX;
                while held < budget(self.memory) && !self.stop.is_requested() {
                    match loaded.next().await {
                        // From here on it counts as the batch's.
                        Some((line, Ok((shard, _)))) => {
                            held += memory_of(&self.job, &shard);
                            batch.push((line, shard));
                        }
                        Some((line, Err(error))) => {
                            let result = Err(error);
                            let outcome = ShardOutcome { line, result };
                            reporter.add(&outcome);
                            outcomes.push(outcome);
                        }
                        None => break,
                    }
                    if fatal(&outcomes).is_some() {
                        break;
                    }
                }
            }
            if let Some(error) = fatal(&outcomes) {
                ended = Some(error);
                break 'batches;
            }
            let mut finished: BoxStream<'static, ShardOutcome> = if self.job.has_lookups() {
                if batch.is_empty() || self.stop.is_requested() {
                    break 'batches;
                }
                let before = batch.len();
                match self.pass_and_finish(batch, at_most).await {
                    Ok((finished, left)) => {
                        at_most = before - left.len();
                        rest = left;
                        finished
                    }
                    Err(error) => {
                        ended = Some(error);
                        break 'batches;
                    }
                }
            } else {
                // Without a pass nothing joins the shards: each goes through on its own.
                let stream = std::mem::replace(&mut loaded, futures::stream::empty().boxed());
                let finisher = self.finisher.clone();
                stream
                    .map(move |(line, shard)| {
                        let finisher = finisher.clone();
                        Task::spawn(async move {
                            match shard {
                                // Its room is free again once it is published.
                                Ok((shard, _taken)) => {
                                    finisher.finish(line, shard, 0, Some(Arc::default())).await
                                }
                                Err(error) => ShardOutcome {
                                    line,
                                    result: Err(error),
                                },
                            }
                        })
                    })
                    .buffer_unordered(self.in_flight)
                    .boxed()
            };
            while let Some(outcome) = finished.next().await {
                reporter.add(&outcome);
                outcomes.push(outcome);
                if let Some(error) = fatal(&outcomes[outcomes.len() - 1..]) {
                    // Nothing more is begun; what is about to be published counts if it is.
                    self.stop.request();
                    ended.get_or_insert(error);
                }
            }
            drop(finished);
            if ended.is_some() {
                break 'batches;
            }
            if !self.job.has_lookups() {
                break;
            }
        }
        drop(loaded);
        drop(writing);

        let failures = failures(&outcomes);
        let left = outcomes
            .iter()
            .filter(|outcome| matches!(outcome.result, Err(ShardError::Stopped)))
            .count();
        let ended_count = (kept_lines.len() + outcomes.len() - left) as u64;
        if is_item && ended.is_none() {
            ended = unreachable(&outcomes);
        }
        let may_write = !matches!(ended, Some(Error::Lock(_) | Error::LockUnknown(_)));
        let mut part = None;
        if may_write {
            let made = outcomes
                .into_iter()
                .filter(|outcome| !matches!(outcome.result, Err(ShardError::Stopped)))
                .map(shard_line);
            let lines: Vec<ShardLine> = kept_lines.into_iter().chain(made).collect();
            // What was published counts, whatever becomes of what is written about it.
            part = match self.write_part(number, lines, is_item, recorded).await {
                Ok(part) => part,
                Err(error) => {
                    ended.get_or_insert(error);
                    None
                }
            };
            let state = match &ended {
                Some(_) => ChunkState::Failed,
                None if ended_count == to_end => ChunkState::Done,
                None => ChunkState::Stopped,
            };
            if let Err(error) = reporter.write(state, ended.as_ref()).await {
                ended.get_or_insert(error);
            }
        }
        Ok(ChunkDone {
            counts: reporter.counts(),
            part,
            failures,
            is_complete: ended_count == to_end,
            ended,
        })
    }

    /// Fetches and loads shards, many at once; ends early when a stop is requested. Each is a
    /// task of its own: it goes on, and gives back what it holds, while nobody asks for the next.
    fn load_all(&self, lines: Vec<PlanLine>) -> BoxStream<'static, Loaded> {
        let (finisher, until) = (self.finisher.clone(), self.stop.clone());
        // As much as a batch may hold: shards may be larger than those that were looked at.
        let room = Room::new(budget(self.memory));
        futures::stream::iter(lines)
            .take_while(move |_| futures::future::ready(!until.is_requested()))
            .map(move |line| Task::spawn(finisher.clone().load(line, room.clone())))
            .buffer_unordered(self.in_flight)
            .boxed()
    }

    /// Streams the lookups past as much of a batch as the values found leave room for. Returns
    /// that part, being finished, and the rest.
    async fn pass_and_finish(
        &self,
        mut batch: Vec<Waiting>,
        at_most: usize,
    ) -> Result<(BoxStream<'static, ShardOutcome>, Vec<Waiting>)> {
        let shards: Vec<_> = batch.iter().map(|(_, shard)| shard.clone()).collect();
        let passes = self.passes.clone();
        let passed = tokio::task::spawn_blocking(move || passes.some(&shards, at_most)).await;
        let Passed { count, found } =
            passed.map_err(|error| Error::Usage(format!("the pass was aborted: {error}")))??;
        let rest = batch.split_off(count);
        let found = found.map(Arc::new);
        let finisher = self.finisher.clone();
        let finished = futures::stream::iter(batch.into_iter().enumerate())
            .map(move |(number, (line, shard))| {
                Task::spawn(finisher.clone().finish(line, shard, number, found.clone()))
            })
            .buffer_unordered(self.in_flight.min(self.threads * 8))
            .boxed();
        Ok((finished, rest))
    }

    /// Writes the lines of a chunk; those of a work item beside whoever else is at it.
    async fn write_part(
        &self,
        number: u64,
        lines: Vec<ShardLine>,
        is_item: bool,
        recorded: Option<ETag>,
    ) -> Result<Option<ManifestPart>> {
        if lines.is_empty() {
            return Ok(None);
        }
        self.fence.check().await.map_err(fence_error)?;
        let (output, run, digest) = (&*self.job.output, &self.run, &self.job.digest);
        let part = if is_item {
            write_item_lines(output, run, digest, number, lines, recorded).await
        } else {
            write_lines(output, run, digest, number, lines).await
        };
        part.map(Some).map_err(state_error)
    }
}
