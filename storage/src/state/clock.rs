//! Time as it is handed to decisions.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use time::OffsetDateTime;

/// A point in time by both clocks of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// What the clock on the wall says, in UTC; it may jump.
    pub wall: OffsetDateTime,
    /// Time since some fixed point; it never jumps, but it may stand still while a machine sleeps.
    pub monotonic: Duration,
}

impl Moment {
    /// How long ago `earlier` was by the clock that says more: a machine that slept and one
    /// whose wall clock was set back both notice. Too long a time only costs another look.
    pub fn since(&self, earlier: &Self) -> Duration {
        let wall = Duration::try_from(self.wall - earlier.wall).unwrap_or_default();
        self.monotonic.saturating_sub(earlier.monotonic).max(wall)
    }
}

/// Where the time comes from.
pub trait Clock: Debug + Send + Sync {
    /// The time now.
    fn now(&self) -> Moment;
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    fn default() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        Moment {
            wall: OffsetDateTime::now_utc(),
            monotonic: self.start.elapsed(),
        }
    }
}

/// Whole milliseconds: what the files record.
pub(crate) fn to_milliseconds(time: OffsetDateTime) -> OffsetDateTime {
    let time = time.to_offset(time::UtcOffset::UTC);
    time.replace_millisecond(time.millisecond()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn the_clock_that_says_more_counts() {
        let seconds = Duration::from_secs;
        let start = Moment {
            wall: datetime!(2025-06-01 10:00 UTC),
            monotonic: seconds(100),
        };
        for (wall, monotonic, expected) in [
            (datetime!(2025-06-01 10:00:10 UTC), 110, 10),
            (datetime!(2025-06-01 09:00 UTC), 110, 10),
            (datetime!(2025-06-01 10:05 UTC), 101, 300),
            (datetime!(2025-06-01 09:00 UTC), 90, 0),
        ] {
            let later = Moment {
                wall,
                monotonic: seconds(monotonic),
            };
            assert_eq!(later.since(&start), seconds(expected));
        }
    }

    #[test]
    fn files_record_milliseconds() {
        let time = to_milliseconds(datetime!(2025-06-01 12:00:00.123456789 +02:00));
        assert_eq!(time, datetime!(2025-06-01 10:00:00.123 UTC));
    }
}
