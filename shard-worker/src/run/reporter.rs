//! A chunk's report while the chunk is worked on: counted up as shards end, and rewritten every
//! few seconds, also while a long pass ends none.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use storage::state::fence::Fence;
use storage::state::report::{
    ChunkReport, ChunkState, Counts, Failure, MAX_FAILURES, ReportWriter,
};
use storage::state::shard_lines::ShardLine;
use time::OffsetDateTime;
use tokio::time::MissedTickBehavior;

use crate::error::{Error, Result, ShardError};
use crate::job::Job;
use crate::run::finisher::Task;
use crate::run::passes::Measured;
use crate::run::progress::Progress;
use crate::run::state_error;
use crate::run::tally::{ShardOutcome, Tally};

/// How often a report is rewritten.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// What is counted of a chunk, and where it is told.
pub struct Reporter {
    job: Arc<Job>,
    fence: Fence,
    progress: Arc<Progress>,
    begun: Instant,
    start_seconds: f64,
    measured: Arc<Mutex<Measured>>,
    pass_before: f64,
    kept: Counts,
    counted: Mutex<(Tally, Vec<Failure>)>,
    file: tokio::sync::Mutex<(ChunkReport, ReportWriter)>,
}

impl Reporter {
    /// Begins a chunk. `kept` are the lines of its shards that an earlier attempt has made;
    /// `start_seconds` what passed before its first shard could be taken.
    pub fn new(
        (job, fence, progress): (Arc<Job>, Fence, Arc<Progress>),
        report: ChunkReport,
        kept: &[ShardLine],
        start_seconds: f64,
        measured: Arc<Mutex<Measured>>,
    ) -> Self {
        let writer = ReportWriter::new(job.output.clone());
        Self {
            begun: Instant::now(),
            pass_before: pass_seconds(&measured),
            kept: count_kept(kept),
            counted: Mutex::default(),
            file: tokio::sync::Mutex::new((report, writer)),
            job,
            fence,
            progress,
            start_seconds,
            measured,
        }
    }

    /// Counts a shard that has ended.
    pub fn add(&self, outcome: &ShardOutcome) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (tally, failures) = &mut *counted;
        tally.add(outcome, &self.progress);
        if let Err(error) = &outcome.result
            && !matches!(error, ShardError::Stopped)
            && failures.len() < MAX_FAILURES
        {
            failures.push(Failure {
                path: outcome.line.path.clone(),
                reason: error.to_string(),
            });
        }
    }

    fn failures(&self) -> Vec<Failure> {
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        counted.1.clone()
    }

    /// The numbers so far.
    pub fn counts(&self) -> Counts {
        let passes = pass_seconds(&self.measured) - self.pass_before;
        let counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let (tally, _) = &*counted;
        let mut counts = tally.counts(self.begun, self.start_seconds, passes, &self.job);
        counts.add(&self.kept);
        counts
    }

    /// Rewrites the report every few seconds, at once too if asked, until the task is dropped.
    pub fn keep_writing(self: &Arc<Self>, at_once: bool) -> Task<()> {
        let reporter = Arc::clone(self);
        Task::spawn(async move {
            let mut tick = tokio::time::interval(REPORT_EVERY);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            if !at_once {
                tick.tick().await;
            }
            loop {
                tick.tick().await;
                if let Err(error) = reporter.write(ChunkState::Running, None).await {
                    tracing::warn!(%error, "the report of a chunk can't be written; trying again");
                }
            }
        })
    }

    /// Rewrites the report, if the lock still holds.
    ///
    /// # Errors
    /// If it can't be written.
    pub async fn write(&self, state: ChunkState, ended: Option<&Error>) -> Result<()> {
        let mut file = self.file.lock().await;
        let (report, writer) = &mut *file;
        if let Err(error) = self.fence.check().await {
            tracing::debug!(%error, "no report is written");
            return Ok(());
        }
        report.state = state;
        report.reason = ended.map(ToString::to_string);
        report.is_permanent = ended.is_some_and(Error::is_permanent);
        report.counts = self.counts();
        report.failures = self.failures();
        writer
            .write(report, OffsetDateTime::now_utc())
            .await
            .map_err(state_error)
    }
}

fn pass_seconds(measured: &Mutex<Measured>) -> f64 {
    let measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
    measured.pass_seconds()
}

/// What lines of an earlier attempt add to the numbers of a chunk.
fn count_kept(lines: &[ShardLine]) -> Counts {
    let mut counts = Counts {
        shards_skipped: lines.len() as u64,
        ..Counts::default()
    };
    for line in lines {
        counts.rows += line.rows;
        counts.matched += line.matched;
        for (name, null) in &line.nulls {
            let column = counts.columns.entry(name.clone()).or_default();
            column.null += null;
            column.populated += line.rows.saturating_sub(*null);
        }
    }
    counts
}
