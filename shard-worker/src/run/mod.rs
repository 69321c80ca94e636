//! Running a job on one machine: plan, chunks, publish, seal.

pub mod batch;
pub mod context;
pub mod decision;
pub mod finisher;
pub mod passes;
pub mod planning;
pub mod progress;
pub mod publish;
pub mod report;
pub mod reporter;
pub mod room;
pub mod scheduler;
pub mod stop;
pub mod tally;

use std::sync::Arc;
use std::time::Instant;

use storage::state::RunId;
use storage::state::ancestors::open_ancestors;
use storage::state::fence::FenceError;
use storage::state::identity::this_process;
use storage::state::leftovers;
use storage::state::lock::Identity;
use storage::state::manifest::{Completeness, Manifest, Recorded, Seal, Totals};
use storage::state::plan::PlanReader;
use storage::state::sentinel::Sentinel;
use storage::state::writer::{AcquireError, LockRequest, WriterLock, ttl_from_environment};
use time::OffsetDateTime;

use crate::error::{Error, Result};
use crate::job::Job;
use crate::run::context::RunContext;
use crate::run::planning::{Planned, Selection, plan};
use crate::run::progress::Progress;
use crate::run::report::RunReport;
use crate::run::scheduler::{Chunk, Scheduler};
use crate::run::stop::Stop;

/// How a run is done; nothing here changes the bytes of a shard.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Keep shards that are there and right.
    pub skip_existing: bool,
    /// Which shards.
    pub selection: Selection,
    /// Bytes of memory.
    pub memory: u64,
    /// Threads.
    pub threads: usize,
}

/// From an error about the lock.
pub fn lock_error(error: AcquireError) -> Error {
    match error {
        AcquireError::Storage(error) => state_error(error),
        held => Error::Lock(held.to_string()),
    }
}

/// From an error about a lock that is held or followed.
pub fn fence_error(error: FenceError) -> Error {
    match error {
        FenceError::Lost(lost) => Error::Lock(lost.to_string()),
        unknown => Error::LockUnknown(unknown.to_string()),
    }
}

/// How a run ended that had begun.
#[derive(Debug)]
pub struct Ended {
    /// What was done, whatever the end.
    pub report: RunReport,
    /// What ended it before its time.
    pub error: Option<Error>,
}

/// Runs a job. The lock is released on every way out.
pub async fn run(
    job: Arc<Job>,
    options: RunOptions,
    progress: Arc<Progress>,
    stop: Stop,
) -> Result<Ended> {
    let started = Instant::now();
    let run = RunId::generate();
    let mut report = RunReport::new(&job, &run);
    let identity = Identity {
        holder: this_process("shard-worker"),
        run: run.clone(),
        digest: job.digest.clone(),
        epoch: None,
    };
    let ancestors =
        open_ancestors(job.output.uri(), |uri| job.stores.open(uri)).map_err(Error::Storage)?;
    let mut request = LockRequest::new(job.output.clone(), ancestors, identity);
    request.ttl = ttl_from_environment().map_err(Error::Usage)?;
    let claim = WriterLock::claim(request).await.map_err(lock_error)?;
    let (mut planned, unwritten) = match plan(&job, &run, &options, &stop).await {
        Ok((planned, _)) if planned.shards == 0 && !planned.interrupted => {
            claim.give_up().await;
            return Err(planning::no_shard(&job));
        }
        Ok(planned) => planned,
        Err(error) => {
            // In somebody else's folder nothing of ours is left.
            claim.withdraw().await;
            return Err(error);
        }
    };
    let lock = claim
        .confirm(&planned.nested_locks)
        .await
        .map_err(lock_error)?;
    let context = RunContext {
        job: job.clone(),
        run,
        memory: options.memory,
        threads: options.threads,
        fence: lock.fence(),
        progress,
        stop,
        started,
    };
    let result = match unwritten.write(&job, &mut planned).await {
        Ok(()) => work(&context, &planned, &lock, &mut report).await,
        Err(error) => Err(error),
    };
    if let Err(error) = lock.release().await {
        tracing::warn!(%error, "the writer lock could not be released; it will expire");
    }
    report.finish(&job, started);
    report.error = result.as_ref().err().map(ToString::to_string);
    Ok(Ended {
        report,
        error: result.err(),
    })
}

async fn work(
    context: &RunContext,
    planned: &Planned,
    lock: &WriterLock,
    report: &mut RunReport,
) -> Result<()> {
    let RunContext { job, run, stop, .. } = context;
    report.planned(planned);
    context.progress.planned(planned);
    // What was not looked at is neither done nor to do: the output stays as it was.
    if planned.interrupted {
        return Ok(());
    }
    let mut parts = planned.kept_parts.clone();
    let mut made = Totals::default();
    let mut outcome = Ok(());
    if let Some(plan) = &planned.plan {
        sweep(job).await;
        Sentinel::remove(&*job.output).await.map_err(state_error)?;
        let scheduler = Scheduler::new(context.clone(), planned.shard_memory);
        for part in 0..plan.parts {
            let mut reader = PlanReader::open_part(&*job.output, plan, part)
                .await
                .map_err(state_error)?;
            let mut next = reader.next_line().map_err(state_error)?;
            while let Some(first) = next.take() {
                let number = first.chunk;
                let mut lines = vec![first];
                loop {
                    next = reader.next_line().map_err(state_error)?;
                    match next.take() {
                        Some(line) if line.chunk == number => lines.push(line),
                        other => {
                            next = other;
                            break;
                        }
                    }
                }
                let item = None;
                let chunk = Chunk {
                    number,
                    lines,
                    item,
                };
                let done = scheduler.chunk(chunk).await?;
                made.shards += done.counts.shards_done;
                made.failed += done.counts.shards_failed;
                made.rows += done.counts.rows;
                made.matched += done.counts.matched;
                made.bytes += done.counts.bytes_written;
                parts.extend(done.part);
                report.chunk(&done.counts, done.failures);
                if let Some(error) = done.ended {
                    outcome = Err(error);
                    break;
                }
                if stop.is_requested() {
                    break;
                }
            }
            if outcome.is_err() || stop.is_requested() {
                break;
            }
        }
        report.passes(scheduler.passes(), scheduler.timing());
    }
    if matches!(outcome, Err(Error::Lock(_) | Error::LockUnknown(_))) {
        return outcome;
    }
    let is_whole = outcome.is_ok();
    let sealed = seal(job, run, planned, (made, is_whole), parts, lock).await;
    if let (Err(_), Err(error)) = (&outcome, &sealed) {
        tracing::warn!(%error, "the output can't be sealed");
    }
    outcome.and(sealed)
}

/// Removes what killed runs of this output have left. A run does without, where it may not.
async fn sweep(job: &Job) {
    match leftovers::sweep(&*job.output, &*job.main).await {
        Ok(0) => {}
        Ok(swept) => tracing::info!(swept, "removed what killed writers left"),
        Err(error) => tracing::warn!(
            %error,
            "what killed writers left can't be removed; docs/permissions.md has what a run needs"
        ),
    }
}

/// Writes the manifest, and the sentinel if nothing is missing.
async fn seal(
    job: &Job,
    run: &RunId,
    planned: &Planned,
    (made, is_whole): (Totals, bool),
    parts: Vec<storage::state::manifest::ManifestPart>,
    lock: &WriterLock,
) -> Result<()> {
    let nothing_new = planned.todo == 0 && parts.is_empty();
    let complete = is_whole
        && !planned.interrupted
        && planned.left_out == 0
        && made.shards == planned.todo
        && made.failed == 0;
    let totals = Totals {
        shards: planned.kept.shards + made.shards,
        failed: made.failed,
        rows: planned.kept.rows + made.rows,
        matched: planned.kept.matched + made.matched,
        bytes: planned.kept.bytes + made.bytes,
    };
    let sealed = match &planned.recorded.sealed {
        Some(sealed)
            if nothing_new
                && planned.recorded.adopted == 0
                && sealed.manifest.totals == totals
                && (sealed.manifest.state == Completeness::Complete) == complete =>
        {
            sealed.clone()
        }
        _ => {
            let seal = Seal {
                main: job.main.uri().to_owned(),
                digest: job.digest.clone(),
                run: run.clone(),
                state: if complete {
                    Completeness::Complete
                } else {
                    Completeness::Incomplete
                },
                totals,
                parts,
            };
            lock.check().await.map_err(fence_error)?;
            Manifest::seal(
                &job.output,
                &planned.recorded,
                seal,
                OffsetDateTime::now_utc(),
            )
            .await
            .map_err(state_error)?
        }
    };
    // Otherwise both were done before the first shard was made.
    let is_first_change = planned.todo == 0;
    if !complete && is_first_change {
        Sentinel::remove(&*job.output).await.map_err(state_error)?;
    }
    if complete {
        let existing = Sentinel::read(&*job.output).await.ok().flatten();
        if existing.is_none_or(|sentinel| sentinel.manifest_sha256 != sealed.sha256) {
            if is_first_change {
                sweep(job).await;
            }
            lock.check().await.map_err(fence_error)?;
            let sentinel = Sentinel::new(
                run.clone(),
                job.digest.clone(),
                totals.shards,
                totals.rows,
                OffsetDateTime::now_utc(),
                sealed.sha256,
            );
            sentinel.write(&*job.output).await.map_err(state_error)?;
        }
    }
    Ok(())
}

/// From an error about a state file.
pub fn state_error(error: storage::state::StateError) -> Error {
    match error {
        storage::state::StateError::Storage(error) => Error::Storage(error),
        other => Error::Usage(other.to_string()),
    }
}

/// What a run would find, for `--dry-run`: nothing is locked or written.
pub async fn preview(job: &Arc<Job>, options: &RunOptions) -> Result<planning::Preview> {
    let recorded = Recorded::load(&job.output).await.map_err(state_error)?;
    planning::preview(job, &recorded, options).await
}
