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
use tokio::sync::Semaphore;

use crate::encode::{self, Sidecar};
use crate::error::{Error, Result, ShardError};
use crate::job::Job;
use crate::lookup::{Found, PassStats};
use crate::run::batch::{Passed, budget, found_for, guarded, guarded_future, memory_of, passes};
use crate::run::planning::Planned;
use crate::run::progress::Progress;
use crate::run::publish::{payload, publish};
use crate::run::report::Timing;
use crate::run::stop::Stop;
use crate::run::tally::{ShardDone, ShardOutcome, Tally, failures, fatal, matches, shard_line};
use crate::run::{RunOptions, state_error};
use crate::shard::{self, LoadedShard};
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
    cpu: Arc<Semaphore>,
    shard_clock: Arc<CpuClock>,
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

/// A loaded shard that waits for its pass.
type Waiting = (PlanLine, Arc<LoadedShard>);
/// What a pass found for several shards, or the budget that the values of one exceed.
type SharedFound = std::result::Result<Arc<Vec<Found>>, u64>;
type Loaded = (PlanLine, std::result::Result<Arc<LoadedShard>, ShardError>);

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
            cpu: Arc::new(Semaphore::new(options.threads)),
            memory: options.memory,
            threads: options.threads,
            plan_seconds: started.elapsed().as_secs_f64(),
            shard_clock: Arc::default(),
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
            shard_cpu_seconds: self.shard_clock.total().as_secs_f64(),
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
        'batches: loop {
            let mut batch: Vec<(PlanLine, Arc<LoadedShard>)> = Vec::new();
            let mut held = 0;
            if self.job.has_lookups() {
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
            let mut finished: BoxStream<'_, ShardOutcome> = if self.job.has_lookups() {
                if batch.is_empty() || self.stop.is_requested() {
                    break 'batches;
                }
                match self.pass_and_finish(batch).await {
                    Ok(finished) => finished,
                    Err(error) => {
                        ended = Some(error);
                        break 'batches;
                    }
                }
            } else {
                // Without a pass nothing joins the shards: each goes through on its own.
                let stream = std::mem::replace(&mut loaded, futures::stream::empty().boxed());
                stream
                    .map(|(line, shard)| self.finish_loaded(line, shard))
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

    /// Fetches and loads shards, many at once; ends early when a stop is requested.
    fn load_all(&self, lines: Vec<PlanLine>) -> BoxStream<'static, Loaded> {
        let (job, cpu, clock, stop) = (
            self.job.clone(),
            self.cpu.clone(),
            self.shard_clock.clone(),
            self.stop.clone(),
        );
        let until = stop.clone();
        futures::stream::iter(lines)
            .take_while(move |_| futures::future::ready(!until.is_requested()))
            .map(move |line| {
                let (job, cpu, clock) = (job.clone(), cpu.clone(), clock.clone());
                async move {
                    let loaded = load(&job, &cpu, &clock, &line).await;
                    (line, loaded.map(Arc::new))
                }
            })
            .buffer_unordered(self.in_flight)
            .boxed()
    }

    /// Streams the lookups past a batch, then finishes its shards.
    async fn pass_and_finish(
        &self,
        batch: Vec<(PlanLine, Arc<LoadedShard>)>,
    ) -> Result<BoxStream<'_, ShardOutcome>> {
        let (lines, shards): (Vec<PlanLine>, Vec<Arc<LoadedShard>>) = batch.into_iter().unzip();
        let begun = Instant::now();
        let passed = {
            let (job, clock, shards) = (self.job.clone(), self.pass_clock.clone(), shards.clone());
            let (memory, threads, stop) = (self.memory, self.threads, self.stop.clone());
            let result = tokio::task::spawn_blocking(move || {
                passes(&job, &shards, memory, threads, &clock, &stop)
            })
            .await;
            result.map_err(|error| Error::Usage(format!("the pass was aborted: {error}")))??
        };
        {
            let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
            measured.pass_seconds += begun.elapsed().as_secs_f64();
            measured.passes += passed.len() as u64;
            for found in passed
                .iter()
                .flat_map(|passed| passed.found.iter().flatten())
            {
                measured.stats.add(&found.stats);
            }
        }
        let mut work = Vec::with_capacity(lines.len());
        let mut slots: Vec<Option<Waiting>> = lines.into_iter().zip(shards).map(Some).collect();
        for Passed { shards, found } in passed {
            let found = match found {
                Ok(found) => Ok(Arc::new(found)),
                Err(budget) => Err(budget),
            };
            for (number, slot) in shards
                .enumerate()
                .filter_map(|(number, position)| Some((number, slots.get_mut(position)?.take()?)))
            {
                work.push((slot, number, found.clone()));
            }
        }
        let finish = move |((line, shard), number, found): (Waiting, usize, SharedFound)| async move {
            let found = match found {
                Ok(found) => found,
                Err(budget) => {
                    let reason = format!(
                        "the values found for its rows exceed the {budget} bytes that --memory leaves; raise --memory"
                    );
                    let uri = shard.files.main.uri.clone();
                    return ShardOutcome {
                        line,
                        result: Err(ShardError::Malformed { uri, reason }),
                    };
                }
            };
            let result = self.finish(&line, shard, number, found).await;
            ShardOutcome { line, result }
        };
        Ok(futures::stream::iter(work)
            .map(finish)
            .buffer_unordered(self.in_flight.min(self.threads * 8))
            .boxed())
    }

    async fn finish_loaded(
        &self,
        line: PlanLine,
        shard: std::result::Result<Arc<LoadedShard>, ShardError>,
    ) -> ShardOutcome {
        let result = match shard {
            Ok(shard) => self.finish(&line, shard, 0, Arc::new(Vec::new())).await,
            Err(error) => Err(error),
        };
        ShardOutcome { line, result }
    }

    /// Builds and publishes one shard.
    async fn finish(
        &self,
        line: &PlanLine,
        shard: Arc<LoadedShard>,
        number: usize,
        found: Arc<Vec<Found>>,
    ) -> std::result::Result<ShardDone, ShardError> {
        // What is begun is published; what only waits for its turn is left to the next run.
        if self.stop.is_requested() {
            return Err(ShardError::Stopped);
        }
        let digest = self.job.digest.clone();
        let uri = shard.files.main.uri.clone();
        let footer_sha256 = shard.files.main.footer_sha256.clone();
        let lookups = self.job.match_lookups();
        let built = on_cpu(&self.cpu, &self.shard_clock, &uri, move || {
            let seen = found_for(&found, number);
            let (matched, sources) = matches(&shard, &found, number, &lookups);
            let Sidecar {
                bytes,
                rows,
                counts,
            } = encode::sidecar(&shard, &seen, &digest)?;
            Ok((payload(bytes), rows, counts, matched, sources))
        });
        let (payload, rows, columns, matched, sources) = built.await?;
        let output = publish(&self.job, &self.fence, line, payload).await?;
        Ok(ShardDone {
            rows,
            matched,
            columns,
            sources,
            footer_sha256,
            output,
        })
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

async fn load(
    job: &Arc<Job>,
    cpu: &Semaphore,
    clock: &Arc<CpuClock>,
    line: &PlanLine,
) -> std::result::Result<LoadedShard, ShardError> {
    let meta = storage::ObjectMeta {
        key: line.path.clone(),
        size: line.size,
        etag: line.etag.clone(),
    };
    let uri = format!("{}{}", job.main.uri(), line.path);
    let fetched = guarded_future(&uri, shard::fetch(job, meta)).await?;
    let job = job.clone();
    on_cpu(cpu, clock, &uri, move || shard::load(&job, fetched)).await
}

/// Runs CPU work of a shard on one of the run's threads.
async fn on_cpu<T: Send + 'static>(
    cpu: &Semaphore,
    clock: &Arc<CpuClock>,
    uri: &str,
    work: impl FnOnce() -> std::result::Result<T, ShardError> + Send + 'static,
) -> std::result::Result<T, ShardError> {
    let Ok(_permit) = cpu.acquire().await else {
        return Err(ShardError::Stopped);
    };
    let (clock, name) = (clock.clone(), uri.to_owned());
    let task = tokio::task::spawn_blocking(move || clock.time(|| guarded(&name, work)));
    task.await.unwrap_or_else(|error| {
        Err(ShardError::Panic {
            uri: uri.to_owned(),
            message: error.to_string(),
        })
    })
}
