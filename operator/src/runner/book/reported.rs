//! What the latest report of an item says, as far as it is looked at again, and what it adds to
//! the one before. Pure.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::time::Duration;

use rules::model::Item;
use storage::state::report::{ChunkReport, ChunkState, Counts};
use time::OffsetDateTime;

use super::cut;
use crate::runner::window::EndedItem;

/// What a report says.
#[derive(Debug)]
pub(super) struct Reported {
    pub(super) attempt: u32,
    worker: u64,
    /// When its worker began, by its own clock. Pods of one index have one name.
    started_ms: i64,
    pub(super) updated_ms: i64,
    pub(super) state: ChunkState,
    /// Whether what is done and failed is all that was planned.
    pub(super) is_whole: bool,
    pub(super) reason: Option<Box<str>>,
    pub(super) is_permanent: bool,
    finished: u64,
    rows: u64,
    /// Rows, about, of shards that it found in place: none of its work.
    found_rows: u64,
    /// What its finished shards have cost so far.
    worked_ms: i64,
    /// What its start has taken of its time.
    start_ms: i64,
}

/// What a worker has done since its report before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) shards: u64,
    pub(super) rows: u64,
    pub(super) worked_ms: i64,
}

impl Reported {
    /// What a report of an item says.
    pub(super) fn of(report: &ChunkReport, (first, end): Item) -> Self {
        let counts = &report.counts;
        let finished = counts.shards_done + counts.shards_failed;
        let (started_ms, updated_ms) = (began_ms(report), milliseconds(report.updated_at));
        let elapsed_ms = updated_ms.saturating_sub(started_ms).max(0);
        let start = Duration::try_from_secs_f64(counts.fixed_seconds()).unwrap_or_default();
        let start_ms = i64::try_from(start.as_millis()).unwrap_or(i64::MAX);
        let start_ms = start_ms.min(elapsed_ms);
        let to_finish = (end - first).saturating_sub(counts.shards_skipped);
        Self {
            attempt: report.attempt.unwrap_or(1),
            worker: hash(&report.worker),
            started_ms,
            updated_ms,
            state: report.state,
            is_whole: finished + counts.shards_skipped >= end - first,
            reason: report.reason.as_deref().map(|reason| cut(reason).into()),
            is_permanent: report.is_permanent,
            finished,
            rows: counts.rows,
            found_rows: found_rows(counts),
            worked_ms: worked_ms(elapsed_ms, start_ms, (finished, to_finish)),
            start_ms,
        }
    }

    /// What it adds to the report before, which may be another worker's.
    pub(super) fn since(&self, before: Option<&Self>) -> Step {
        let before = before.filter(|before| self.is_of_the_same_worker(before));
        let (shards, rows, worked_ms) = match before {
            Some(before) => (before.finished, before.rows, before.worked_ms),
            None => (0, self.found_rows, 0),
        };
        let shards = self.finished.saturating_sub(shards);
        Step {
            shards,
            rows: if shards > 0 {
                self.rows.saturating_sub(rows)
            } else {
                0
            },
            worked_ms: self.worked_ms.saturating_sub(worked_ms).max(0),
        }
    }

    /// What the item has cost, if it has ended since the report before.
    pub(super) fn ended_since(&self, before: Option<&Self>) -> Option<EndedItem> {
        let has_ended = |report: &Self| report.state != ChunkState::Running;
        let before = before.filter(|before| self.is_of_the_same_worker(before));
        let is_news = has_ended(self) && !before.is_some_and(has_ended) && self.finished > 0;
        is_news.then(|| EndedItem {
            shards: self.finished,
            worked_ms: self.updated_ms.saturating_sub(self.started_ms).max(0) - self.start_ms,
            start_ms: self.start_ms,
        })
    }

    /// Whether its worker has said that no further attempt would help.
    pub(super) fn is_hopeless(&self) -> bool {
        self.state == ChunkState::Failed && self.is_permanent
    }

    fn is_of_the_same_worker(&self, other: &Self) -> bool {
        let worker = |report: &Self| (report.worker, report.attempt, report.started_ms);
        worker(self) == worker(other)
    }
}

/// What the finished shards of an item have cost its worker: the time since it began, but of its
/// start (of the pod's program, of its index) only their share. Else workers that all begin at
/// once, as after a step of sizing, would seem to be slow, and the next step would be too large.
fn worked_ms(elapsed_ms: i64, start_ms: i64, (finished, to_finish): (u64, u64)) -> i64 {
    if finished == 0 {
        return 0;
    }
    let share = (finished as f64 / to_finish.max(1) as f64).min(1.0);
    elapsed_ms - start_ms + (start_ms as f64 * share) as i64
}

/// When the worker of a report began: its report begins once its first shard can be taken.
fn began_ms(report: &ChunkReport) -> i64 {
    let start = Duration::try_from_secs_f64(report.counts.seconds.start).unwrap_or_default();
    let start_ms = i64::try_from(start.as_millis()).unwrap_or(i64::MAX);
    milliseconds(report.started_at).saturating_sub(start_ms)
}

fn hash(worker: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    worker.hash(&mut hasher);
    hasher.finish()
}

/// About as many rows as the shards have that a worker found in place.
fn found_rows(counts: &Counts) -> u64 {
    let found = u128::from(counts.shards_skipped);
    let all = (found + u128::from(counts.shards_done)).max(1);
    u64::try_from(u128::from(counts.rows) * found / all).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(in crate::runner) fn milliseconds(time: OffsetDateTime) -> i64 {
    i64::try_from(time.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_spread_over_the_shards() {
        // Four seconds of start, then one a shard, ten shards.
        let after = |shards: u64| {
            let elapsed = 4_000 + 1_000 * i64::try_from(shards).unwrap();
            worked_ms(elapsed, 4_000, (shards, 10))
        };
        assert_eq!(after(0), 0);
        assert_eq!(after(1), 1_400);
        assert_eq!(after(5), 7_000);
        assert_eq!(after(10), 14_000, "in the end it is all of the time");
    }
}
