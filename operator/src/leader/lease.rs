//! What a Lease means to somebody who looks at it. Pure.

use std::time::Duration;

use storage::state::clock::Moment;

/// What a Lease says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LeaseRecord {
    /// Who holds it; empty or absent if nobody does.
    pub holder: Option<String>,
    /// How long it lives without a renewal.
    pub duration: Duration,
    /// How often it has changed hands.
    pub transitions: i32,
    /// Its version; each renewal makes another.
    pub version: String,
}

/// A Lease, and when this version of it was first seen.
///
/// Clocks of machines differ, so what counts is how long a version has stood still before our
/// own eyes, never the time that is written in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seen {
    /// What it says.
    pub record: LeaseRecord,
    /// When this version was first seen.
    pub since: Moment,
}

impl Seen {
    /// What is known after another look found `record` at `now`.
    pub fn update(previous: Option<Self>, record: LeaseRecord, now: Moment) -> Self {
        match previous {
            Some(previous) if previous.record.version == record.version => previous,
            _ => Self { record, since: now },
        }
    }
}

/// What a Lease means to somebody.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// There is none: create it.
    Absent,
    /// Mine: renew it.
    Mine,
    /// Nobody holds it, or its holder has let it expire: take it, on this version.
    Free,
    /// Somebody holds it.
    Held {
        /// Who.
        by: String,
    },
}

/// What the Lease that was `seen` means to `me` at `now`.
pub fn evaluate_lease(now: Moment, seen: Option<&Seen>, me: &str) -> Standing {
    let Some(Seen { record, since }) = seen else {
        return Standing::Absent;
    };
    match record.holder.as_deref() {
        None | Some("") => Standing::Free,
        Some(holder) if holder == me => Standing::Mine,
        Some(_) if now.since(since) >= record.duration => Standing::Free,
        Some(holder) => Standing::Held {
            by: holder.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    fn at(seconds: u64) -> Moment {
        let elapsed = Duration::from_secs(seconds);
        Moment {
            wall: OffsetDateTime::UNIX_EPOCH + elapsed,
            monotonic: elapsed,
        }
    }

    fn record(holder: &str, version: &str) -> LeaseRecord {
        LeaseRecord {
            holder: Some(holder.to_owned()),
            duration: Duration::from_secs(15),
            transitions: 1,
            version: version.to_owned(),
        }
    }

    fn seen(holder: &str, since: u64) -> Seen {
        Seen {
            record: record(holder, "1"),
            since: at(since),
        }
    }

    #[test]
    fn what_a_lease_means() {
        let held = Standing::Held {
            by: "other".to_owned(),
        };
        for (lease, now, expected) in [
            (None, 0, Standing::Absent),
            (Some(seen("me", 0)), 0, Standing::Mine),
            (Some(seen("me", 0)), 100, Standing::Mine),
            (Some(seen("", 0)), 0, Standing::Free),
            (Some(seen("other", 0)), 0, held.clone()),
            (Some(seen("other", 0)), 14, held),
            (Some(seen("other", 0)), 15, Standing::Free),
        ] {
            assert_eq!(
                evaluate_lease(at(now), lease.as_ref(), "me"),
                expected,
                "{lease:?} at {now}"
            );
        }
    }

    #[test]
    fn a_renewal_starts_the_time_anew_and_a_look_does_not() {
        let first = Seen::update(None, record("other", "1"), at(0));
        let again = Seen::update(Some(first), record("other", "1"), at(10));
        assert_eq!(again.since, at(0));
        let renewed = Seen::update(Some(again), record("other", "2"), at(12));
        assert_eq!(renewed.since, at(12));
        assert!(matches!(
            evaluate_lease(at(20), Some(&renewed), "me"),
            Standing::Held { .. }
        ));
    }

    #[test]
    fn a_holder_may_give_it_no_time_at_all() {
        let mut none = seen("other", 5);
        none.record.duration = Duration::ZERO;
        assert_eq!(evaluate_lease(at(5), Some(&none), "me"), Standing::Free);
    }
}
