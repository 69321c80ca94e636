//! Works through a chunk: many shards in flight, as much in memory as the budget holds, CPU
//! work on a fixed number of threads.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::BoxStream;
use storage::state::RunId;
use storage::state::fence::Fence;
use storage::state::manifest::ManifestPart;
use storage::state::plan::PlanLine;
use storage::state::report::{
    ChunkReport, ChunkState, Counts, Failure, ReportWriter, ShardLine, write_lines,
};
use time::OffsetDateTime;

use crate::error::{Error, Result, ShardError};
use crate::job::Job;
use crate::lookup::PassStats;
use crate::run::batch::{Passed, budget, memory_of, pass_some};
use crate::run::finisher::{Finisher, Loaded, Task, Waiting};
use crate::run::planning::Planned;
use crate::run::progress::Progress;
use crate::run::report::Timing;
use crate::run::stop::Stop;
use crate::run::tally::{ShardOutcome, Tally, failures, fatal, shard_line};
use crate::run::{RunOptions, state_error};
use crate::workers::CpuClock;

/// Shards whose requests are in flight at once, at most.
const MOST_IN_FLIGHT: u64 = 256;
/// How often a chunk's report is rewritten.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What a chunk came to.
#[derive(Debug)]
pub struct ChunkDone {
    /// Numbers.
    pub counts: Counts,
    /// Its part of the manifest.
    pub part: Option<ManifestPart>,
    /// Failed shards.
    pub failures: Vec<Failure>,
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
    pass_clock: Arc<CpuClock>,
    measured: Mutex<Measured>,
    plan_seconds: f64,
}

#[derive(Debug, Default)]
struct Measured {
    passes: u64,
    stats: PassStats,
    pass_seconds: f64,
}

impl Scheduler {
    /// A scheduler for the chunks of one run.
    #[allow(clippy::too_many_arguments)] // One call site; the parts live and end with the run.
    pub fn new(
        job: Arc<Job>,
        run: RunId,
        options: &RunOptions,
        planned: &Planned,
        fence: Fence,
        progress: Arc<Progress>,
        stop: Stop,
        started: Instant,
    ) -> Self {
        let by_memory = budget(options.memory) / planned.shard_memory.max(1);
        Self {
            in_flight: by_memory.clamp(1, MOST_IN_FLIGHT) as usize,
            finisher: Finisher::new(
                job.clone(),
                fence.clone(),
                stop.clone(),
                options.threads,
                options.memory,
            ),
            memory: options.memory,
            threads: options.threads,
            plan_seconds: started.elapsed().as_secs_f64(),
            pass_clock: Arc::default(),
            measured: Mutex::default(),
            job,
            run,
            fence,
            progress,
            stop,
        }
    }

    /// Passes so far.
    pub fn passes(&self) -> (u64, PassStats) {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        (measured.passes, measured.stats)
    }

    /// Time so far.
    pub fn timing(&self) -> Timing {
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        Timing {
            wall_seconds: 0.0,
            plan_seconds: self.plan_seconds,
            index_pass_seconds: measured.pass_seconds,
            index_pass_cpu_seconds: self.pass_clock.total().as_secs_f64(),
            shard_cpu_seconds: self.finisher.cpu_time().as_secs_f64(),
        }
    }

    /// Works through one chunk. Shards that fail do not stop it; a lost lock, a refused store
    /// and a broken side input do.
    pub async fn chunk(&self, number: u64, lines: Vec<PlanLine>) -> Result<ChunkDone> {
        let begun = Instant::now();
        let (_, pass_before) = (self.passes(), self.pass_seconds());
        let planned = lines.len() as u64;
        let now = OffsetDateTime::now_utc();
        let worker = storage::state::identity::this_process("shard-worker").host;
        let mut report = ChunkReport::new(
            self.run.clone(),
            self.job.digest.clone(),
            number,
            worker,
            planned,
            now,
        );
        let mut writer = ReportWriter::new(self.job.output.clone());
        let mut tally = Tally::default();
        let mut last_report = Instant::now();
        let mut ended = None;

        let mut loaded = self.load_all(lines);
        let mut outcomes: Vec<ShardOutcome> = Vec::new();
        let mut rest: Vec<Waiting> = Vec::new();
        let mut at_most = usize::MAX;
        'batches: loop {
            let mut batch = std::mem::take(&mut rest);
            let mut held = 0;
            if batch.is_empty() && self.job.has_lookups() {
                at_most = usize::MAX;
                while held < budget(self.memory) && !self.stop.is_requested() {
                    match loaded.next().await {
                        Some((line, Ok(shard))) => {
                            held += memory_of(&self.job, &shard);
                            batch.push((line, shard));
                        }
                        Some((line, Err(error))) => outcomes.push(ShardOutcome {
                            line,
                            result: Err(error),
                        }),
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
                                Ok(shard) => {
                                    finisher.finish(line, shard, 0, Ok(Arc::default())).await
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
                tally.add(&outcome, &self.progress);
                outcomes.push(outcome);
                if let Some(error) = fatal(&outcomes[outcomes.len() - 1..]) {
                    ended = Some(error);
                    break 'batches;
                }
                if last_report.elapsed() > REPORT_EVERY {
                    report.counts = tally.counts(
                        begun,
                        self.plan_seconds,
                        self.pass_seconds() - pass_before,
                        &self.job,
                    );
                    writer
                        .write(&mut report, OffsetDateTime::now_utc())
                        .await
                        .map_err(state_error)?;
                    last_report = Instant::now();
                }
            }
            drop(finished);
            if !self.job.has_lookups() {
                break;
            }
        }
        drop(loaded);
        // Failures while loading were not counted yet.
        tally.recount(&outcomes, &self.progress);

        let counts = tally.counts(
            begun,
            self.plan_seconds,
            self.pass_seconds() - pass_before,
            &self.job,
        );
        let failures = failures(&outcomes);
        let complete = outcomes
            .iter()
            .filter(|outcome| !matches!(outcome.result, Err(ShardError::Stopped)))
            .count() as u64
            == planned;
        let lock_lost = matches!(ended, Some(Error::Lock(_)));
        let part = if lock_lost {
            None
        } else {
            self.write_part(number, outcomes).await?
        };
        if !lock_lost {
            report.counts = counts.clone();
            report.failures = failures.clone();
            report.state = match (&ended, complete) {
                (Some(_), _) => ChunkState::Failed,
                (None, true) => ChunkState::Done,
                (None, false) => ChunkState::Stopped,
            };
            report.reason = ended.as_ref().map(ToString::to_string);
            writer
                .write(&mut report, OffsetDateTime::now_utc())
                .await
                .map_err(state_error)?;
        }
        Ok(ChunkDone {
            counts,
            part,
            failures,
            ended,
        })
    }

    fn pass_seconds(&self) -> f64 {
        self.measured
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pass_seconds
    }

    /// Fetches and loads shards, many at once; ends early when a stop is requested. Each is a
    /// task of its own: it goes on, and gives back what it holds, while nobody asks for the next.
    fn load_all(&self, lines: Vec<PlanLine>) -> BoxStream<'static, Loaded> {
        let (finisher, until) = (self.finisher.clone(), self.stop.clone());
        futures::stream::iter(lines)
            .take_while(move |_| futures::future::ready(!until.is_requested()))
            .map(move |line| Task::spawn(finisher.clone().load(line)))
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
        let begun = Instant::now();
        let Passed { count, found } = {
            let shards: Vec<_> = batch.iter().map(|(_, shard)| shard.clone()).collect();
            let (job, clock, stop) = (self.job.clone(), self.pass_clock.clone(), self.stop.clone());
            let (memory, threads) = (self.memory, self.threads);
            let result = tokio::task::spawn_blocking(move || {
                pass_some(&job, &shards, at_most, memory, threads, &clock, &stop)
            })
            .await;
            result.map_err(|error| Error::Usage(format!("the pass was aborted: {error}")))??
        };
        {
            let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
            measured.pass_seconds += begun.elapsed().as_secs_f64();
            measured.passes += u64::from(count > 0);
            for found in found.iter().flatten() {
                measured.stats.add(&found.stats);
            }
        }
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

    async fn write_part(
        &self,
        number: u64,
        outcomes: Vec<ShardOutcome>,
    ) -> Result<Option<ManifestPart>> {
        let lines: Vec<ShardLine> = outcomes
            .into_iter()
            .filter(|outcome| !matches!(outcome.result, Err(ShardError::Stopped)))
            .map(shard_line)
            .collect();
        if lines.is_empty() {
            return Ok(None);
        }
        self.fence
            .check()
            .await
            .map_err(|error| Error::Lock(error.to_string()))?;
        write_lines(
            &*self.job.output,
            &self.run,
            &self.job.digest,
            number,
            lines,
        )
        .await
        .map(Some)
        .map_err(state_error)
    }
}
