//! Counts, rates and summaries: a status of one size, whatever the number of shards.

use crds::{BatchStatus, FailedShard, RateStatus, RowCounts, ShardCounts, SidecarJobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::attempts::{Batch, State};
use super::batches::{self, Context};
use super::draft::Draft;
use super::{queue, scale};
use crate::conditions::{Status, clip};
use crate::model::{FailureNote, SealFacts, frozen};
use crate::reasons::{self, types};

/// Most batches in a status.
const MOST_BATCHES: usize = 16;

/// Most failed shards in a status.
const MOST_FAILURES: usize = 10;

/// Most bytes of the path, and of the reason, of a failed shard.
const FAILURE_BYTES: usize = 384;

/// State of a batch whose Job was not made yet, or waits to be let in.
const WAITING: &str = "Waiting";

/// State of a batch whose Job works.
const ACTIVE: &str = "Active";

/// State of a batch whose Job was suspended, or taken away since it was in a queue.
const SUSPENDED: &str = "Suspended";

/// State of a batch whose Job makes way for one that is built from the spec as it is now.
const REPLACED: &str = "Replaced";

/// State of a batch whose Job somebody has deleted.
const DELETED: &str = "Deleted";

/// State of a batch whose Job came to its own end, and whose items are looked up.
const ENDED: &str = "Ended";

pub(super) fn update(draft: &mut Draft<'_>, context: &Context<'_>) {
    draft.status.batches = batches(draft, context);
    if !draft.has_ended() {
        schedulable(draft);
        queue::set_condition(draft, context);
    }
    if !matches!(context.facts.seal, SealFacts::Sealed(_)) {
        counts(draft, context);
        draft.status.rates = rates(draft, context);
    }
}

fn counts(draft: &mut Draft<'_>, context: &Context<'_>) {
    let (totals, progress) = (context.totals, &context.facts.progress);
    let before = draft.before.shards.clone().unwrap_or_default();
    // Reports of a worker that begins an item again count from nothing: what was once done, and
    // said, stays so.
    let done = int(totals.kept + progress.done)
        .max(before.done)
        .min(int(totals.shards));
    let room = int(totals.shards) - done;
    let failed = if context.is_done() {
        room
    } else {
        let batches = context.book.iter();
        let lost = batches.map(|batch| match batch.state {
            State::GivenUp { shards, .. } => shards,
            _ => 0,
        });
        let failed = progress.failed + lost.sum::<u64>();
        int(failed).max(before.failed).min(room)
    };
    draft.status.shards = Some(ShardCounts {
        total: int(totals.shards),
        done,
        kept: int(totals.kept),
        failed,
        progress: Some(format!("{done}/{}", totals.shards)),
    });
    let written = totals.kept_rows + progress.rows;
    let matched = totals.kept_matched + progress.matched;
    let rows_before = draft.before.rows.clone().unwrap_or_default();
    let at_least = |number: u64, before: i64| number.max(u64::try_from(before).unwrap_or(0));
    draft.status.rows = Some(rows(
        draft,
        at_least(written, rows_before.written),
        at_least(matched, rows_before.matched),
    ));
    draft.status.failures = failures(&progress.failures);
}

/// Rows, and the share of them that matched if the pipeline looks keys up.
pub(super) fn rows(draft: &Draft<'_>, written: u64, matched: u64) -> RowCounts {
    let looked_up = if frozen::looks_up(draft.object) {
        written
    } else {
        0
    };
    RowCounts {
        written: int(written),
        looked_up: int(looked_up),
        matched: int(matched),
        match_share: (looked_up > 0)
            .then(|| format!("{:.1}%", 100.0 * matched as f64 / looked_up as f64)),
    }
}

/// The first failed shards, cut to a bearable length.
pub(super) fn failures(notes: &[FailureNote]) -> Vec<FailedShard> {
    notes
        .iter()
        .take(MOST_FAILURES)
        .map(|note| FailedShard {
            path: clip(&note.path, FAILURE_BYTES),
            reason: clip(&note.reason, FAILURE_BYTES),
        })
        .collect()
}

fn rates(draft: &Draft<'_>, context: &Context<'_>) -> Option<RateStatus> {
    let progress = &context.facts.progress;
    if progress.window_seconds <= 0.0 {
        return None;
    }
    let speed = progress.window_shards as f64 / progress.window_seconds;
    let rows = progress.window_rows as f64 / progress.window_seconds * 3600.0;
    let left = context
        .totals
        .todo
        .saturating_sub(progress.done + progress.failed);
    let end = (speed > 0.0 && left > 0 && !draft.is_suspended()).then(|| {
        let minutes = (left as f64 / speed / 60.0).ceil().min(5e7) as i64;
        // Whole minutes: an estimate isn't better than that.
        let now = draft.now.as_second().div_euclid(60);
        Timestamp::from_second((now + minutes).saturating_mul(60)).ok()
    });
    Some(RateStatus {
        rows_per_hour: scale::rounded(rows) as i64,
        shards_per_second: scale::rounded(speed),
        estimated_end: end.flatten().map(Time),
    })
}

/// Why workers don't start, in the words of the Job controller, the scheduler or the kubelet.
pub(super) fn obstacle<'a>(draft: &Draft<'a>) -> Option<(&'static str, &'a str)> {
    let observed = draft.observed;
    let pods = &observed.pods;
    let obstacles = [
        (&observed.asked.refused, reasons::FAILED_CREATE),
        (&pods.unschedulable, reasons::UNSCHEDULABLE),
        (&pods.cannot_start, reasons::CANNOT_START),
    ];
    let mut obstacles = obstacles.into_iter();
    obstacles.find_map(|(words, reason)| Some((reason, words.as_deref()?)))
}

/// Whether workers start.
fn schedulable(draft: &mut Draft<'_>) {
    let kind = types::WORKERS_UNSCHEDULABLE;
    if let Some((reason, words)) = obstacle(draft) {
        draft.conditions.set(kind, Status::True, reason, words);
    } else if draft.conditions.get(kind).is_some() {
        let (reason, words) = (reasons::SCHEDULABLE, "workers find nodes, and start");
        draft.conditions.set(kind, Status::False, reason, words);
    }
}

/// The batches that are open, and the latest of the others.
fn batches(draft: &Draft<'_>, context: &Context<'_>) -> Vec<BatchStatus> {
    let closed = context
        .book
        .iter()
        .filter(|batch| batch.state.is_closed())
        .count();
    let open = context.book.len() - closed;
    let mut skip = closed.saturating_sub(MOST_BATCHES.saturating_sub(open));
    let shown = context.book.iter().filter(|batch| {
        let is_skipped = batch.state.is_closed() && skip > 0;
        skip -= usize::from(is_skipped);
        !is_skipped
    });
    shown
        .take(MOST_BATCHES)
        .map(|batch| batch_status(draft, context, batch))
        .collect()
}

fn batch_status(draft: &Draft<'_>, context: &Context<'_>, batch: &Batch<'_>) -> BatchStatus {
    let attempt = batch.last.attempt;
    let before = state_before(&draft.before, batch.number, attempt);
    let given_up: usize = batch.failed_items().iter().map(|all| all.items.len()).sum();
    let state = match &batch.state {
        State::Finished if given_up == 0 => "Complete",
        State::Finished | State::GivenUp { .. } => "Failed",
        // Remembered until its items are started again: what came to its own end is a try, what
        // was taken from it is none.
        _ if batch.has_job_ended => ENDED,
        State::Ending(_) | State::Over | State::Lost { .. } if before == Some(ENDED) => ENDED,
        _ if draft.is_suspended() => SUSPENDED,
        State::Unstarted => WAITING,
        State::Live(job) if job.is_suspended => WAITING,
        State::Live(job) if batches::is_obsolete(draft, context, job) => REPLACED,
        State::Live(_) => ACTIVE,
        State::Ending(_) | State::Over | State::Lost { .. } => {
            let is_gone = !matches!(batch.state, State::Ending(_));
            match before {
                Some(SUSPENDED) => SUSPENDED,
                Some(REPLACED) => REPLACED,
                Some(WAITING | ACTIVE | DELETED) if is_gone => DELETED,
                Some(WAITING | ACTIVE) => ACTIVE,
                _ => ENDED,
            }
        }
    };
    let small = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    BatchStatus {
        name: batches::job_name(draft, &context.run.name, batch.number, attempt),
        batch: i32::try_from(batch.number).unwrap_or(i32::MAX),
        attempt: i32::try_from(attempt).unwrap_or(i32::MAX),
        chunks: small(batch.last.items.len()),
        done: match batch.state {
            State::Finished => small(batch.last.items.len().saturating_sub(given_up)),
            _ => small(batch.last.ended as usize),
        },
        failed: small(given_up),
        state: Some(state.to_owned()),
    }
}

/// Whether the Job of this attempt, which is gone, was taken from it: it was last seen before it
/// had come to its own end.
pub(super) fn was_taken(status: &SidecarJobStatus, batch: u32, attempt: u32) -> bool {
    let before = state_before(status, batch, attempt);
    matches!(
        before,
        Some(WAITING | ACTIVE | SUSPENDED | REPLACED | DELETED)
    )
}

/// Whether, by the status, the Job of this attempt was suspended.
pub(super) fn was_suspended(status: &SidecarJobStatus, batch: u32, attempt: u32) -> bool {
    state_before(status, batch, attempt) == Some(SUSPENDED)
}

fn state_before(status: &SidecarJobStatus, batch: u32, attempt: u32) -> Option<&str> {
    let found = status.batches.iter().find(|found| {
        u32::try_from(found.batch) == Ok(batch) && u32::try_from(found.attempt) == Ok(attempt)
    })?;
    found.state.as_deref()
}

pub(super) fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
