//! What has become of an attempt at a batch. The files beside the output say what is done; a Job
//! says only whether somebody may still be at it.

use k8s_openapi::jiff::Timestamp;

use crate::items;
use crate::model::{AttemptFacts, BatchFacts, GivenUp, GivenUpItems, Item, ObservedJob};
use crate::sizing::ItemCosts;

/// Seconds before the third attempt at the same items; doubled with each further one.
const SHORTEST_PAUSE: i64 = 30;

/// The longest pause, in seconds.
const LONGEST_PAUSE: i64 = 600;

/// How the latest attempt at a batch stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State<'a> {
    /// Its file was written, but nobody has seen its Job: the operator died in between.
    Unstarted,
    /// Its Job may run.
    Live(&'a ObservedJob),
    /// Its Job is going, or must go.
    Ending(&'a ObservedJob),
    /// Its Job is over; its reports have to be read.
    Over,
    /// Items were lost, and are tried again.
    Lost {
        items: &'a [Item],
        /// Attempts at them that ended by themselves.
        tries: u32,
        /// When they may be tried again, in seconds since the epoch of Unix.
        not_before: i64,
    },
    /// Every item has ended.
    Finished,
    /// Items were lost, and were tried often enough.
    GivenUp {
        items: &'a [Item],
        /// Shards of those that are neither done nor failed for a reason of their own.
        shards: u64,
        reason: Option<&'a str>,
    },
}

impl State<'_> {
    /// Whether nothing is left to do about the batch.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Finished | Self::GivenUp { .. })
    }
}

/// A batch with its latest attempt.
#[derive(Clone, Debug)]
pub(super) struct Batch<'a> {
    pub(super) number: u32,
    pub(super) last: &'a AttemptFacts,
    /// The items that it began with.
    pub(super) items: &'a [Item],
    /// Those that failed as a whole before the latest attempt, or because they can't be done.
    pub(super) given_up: &'a GivenUpItems,
    pub(super) state: State<'a>,
    /// Whether the Job of the latest attempt has ended, and not just gone.
    pub(super) has_job_ended: bool,
}

impl Batch<'_> {
    /// When its lost items are tried again, in seconds since the epoch of Unix, if that is not yet.
    pub(super) fn paused_until(&self, now: Timestamp) -> Option<i64> {
        match self.state {
            State::Lost { not_before, .. } => Some(not_before).filter(|at| now.as_second() < *at),
            _ => None,
        }
    }

    /// Whether somebody is at items whose like has told nothing yet.
    pub(super) fn is_trial(&self, costs: &ItemCosts) -> bool {
        let is_going = matches!(self.state, State::Unstarted | State::Live(_));
        is_going && !costs.knows(items::largest(&self.last.items))
    }

    /// Whether its Job has still to get pods.
    pub(super) fn lacks_pods(&self) -> bool {
        matches!(self.state, State::Live(job) if job.lacks_pods())
    }

    /// The items that have failed as a whole.
    pub(super) fn failed_items(&self) -> Vec<GivenUp> {
        let earlier = GivenUp {
            items: self.given_up.items.clone(),
            reason: self.given_up.reason.clone(),
        };
        let last = match self.state {
            State::GivenUp { items, reason, .. } => GivenUp {
                items: items.to_vec(),
                reason: reason.map(str::to_owned),
            },
            _ => GivenUp {
                items: Vec::new(),
                reason: None,
            },
        };
        let all = [earlier, last].into_iter();
        all.filter(|some| !some.items.is_empty()).collect()
    }

    /// Items of the latest attempt that haven't ended.
    pub(super) fn left(&self) -> u32 {
        if self.state.is_closed() {
            return 0;
        }
        (self.last.items.len() as u32).saturating_sub(self.last.ended)
    }
}

/// What an attempt is judged by, beside its own facts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    /// The epoch in which the lock is held.
    pub(super) epoch: u64,
    /// `failurePolicy.retriesPerChunk`.
    pub(super) retries: u32,
}

/// How a batch stands; `None` if it has no attempt. `was_taken` says whether the Job of the latest
/// attempt, which is gone, was taken from it while it waited or worked: by us, a person or a tool.
/// Only an attempt that came to its own end is a try.
pub(super) fn assess<'a>(
    batch: &'a BatchFacts,
    jobs: &[&'a ObservedJob],
    terms: Terms,
    was_taken: impl Fn(u32, u32) -> bool,
) -> Option<Batch<'a>> {
    let first = batch.attempts.first()?;
    let last = batch.attempts.last()?;
    let job = jobs
        .iter()
        .copied()
        .find(|job| job.batch == batch.batch && job.attempt == last.attempt);
    let is_taken = job.is_none() && was_taken(batch.batch, last.attempt);
    Some(Batch {
        number: batch.batch,
        last,
        items: &first.items,
        given_up: &batch.given_up,
        state: state(last, job, terms, is_taken),
        has_job_ended: job.is_some_and(|job| job.end.is_some()),
    })
}

fn state<'a>(
    last: &'a AttemptFacts,
    job: Option<&'a ObservedJob>,
    terms: Terms,
    is_taken: bool,
) -> State<'a> {
    let settled = last.settled.as_ref();
    let has_ended = last.ended as usize >= last.items.len();
    if has_ended || settled.is_some_and(|settled| settled.lost.is_empty()) {
        return State::Finished;
    }
    match job {
        Some(job) if job.is_deleting || job.epoch != terms.epoch => return State::Ending(job),
        Some(job) if job.end.is_none() => return State::Live(job),
        None if settled.is_none() && !last.was_seen => return State::Unstarted,
        _ => {}
    }
    let Some(settled) = settled else {
        return State::Over;
    };
    let before = last.tries.unwrap_or(last.attempt.saturating_sub(1));
    let was_cut = is_taken || (last.epoch != 0 && last.epoch != terms.epoch);
    let tries = before.saturating_add(u32::from(!was_cut));
    if tries > terms.retries {
        return State::GivenUp {
            items: &settled.lost,
            shards: settled.lost_shards,
            reason: settled.reason.as_deref(),
        };
    }
    State::Lost {
        items: &settled.lost,
        tries,
        not_before: if was_cut {
            0
        } else {
            settled.at_ms.div_euclid(1000).saturating_add(pause(tries))
        },
    }
}

/// Seconds between an attempt and the next one. One that came to nothing may have met a node that
/// died, which is no reason to wait; what keeps coming to nothing, such as a store that is away,
/// needs time.
fn pause(tries: u32) -> i64 {
    match tries {
        0 | 1 => 0,
        _ => SHORTEST_PAUSE
            .saturating_mul(1 << (tries - 2).min(10))
            .min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn pauses_double_up_to_ten_minutes() {
        let pauses: Vec<i64> = [0, 1, 2, 3, 4, 6, 7, 20, u32::MAX].map(super::pause).into();
        assert_eq!(pauses, [0, 0, 30, 60, 120, 480, 600, 600, 600]);
    }
}
