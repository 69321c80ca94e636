//! How long to wait before something that failed is tried again. Pure.

use std::time::Duration;

/// The shortest wait.
pub const SHORTEST: Duration = Duration::from_secs(5);

/// The longest wait.
pub const LONGEST: Duration = Duration::from_secs(600);

/// The wait after the `failures`-th failure in a row (from 1), for a random number from 0 to 1.
///
/// Anywhere between [`SHORTEST`] and a limit that doubles with each failure, up to [`LONGEST`]:
/// full jitter, so that objects that failed together don't come back together.
pub fn delay(failures: u32, random: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let limit = SHORTEST.saturating_mul(1 << doublings).min(LONGEST);
    let random = if random.is_finite() {
        random.clamp(0.0, 1.0)
    } else {
        0.5
    };
    SHORTEST + (limit - SHORTEST).mul_f64(random)
}

/// News may mend what failed: so long after the last failure it is reason enough to try again.
pub const AFTER_NEWS: Duration = Duration::from_secs(60);

/// What an object looked like when it failed; another look ends the waiting.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Appearance {
    /// `metadata.generation`: a new one means a new spec.
    pub generation: Option<i64>,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Annotations by which people ask for something.
    pub annotations: Vec<(String, String)>,
}

/// The failures of one object.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Failures {
    /// How many in a row.
    count: u32,
    /// When it failed last, in milliseconds of a clock that never jumps.
    failed_at_ms: u64,
    /// When it may be tried again, in milliseconds of a clock that never jumps.
    not_before_ms: u64,
    appearance: Appearance,
}

impl Failures {
    /// Notes a failure at `now_ms` and returns the wait.
    pub fn note(&mut self, appearance: Appearance, now_ms: u64, random: f64) -> Duration {
        if self.appearance != appearance {
            self.count = 0;
        }
        self.appearance = appearance;
        self.count = self.count.saturating_add(1);
        let wait = delay(self.count, random);
        self.failed_at_ms = now_ms;
        self.not_before_ms = later(now_ms, wait);
        wait
    }

    /// There is news of the object: it waits no longer than [`AFTER_NEWS`]. How often it has failed
    /// stays: work that goes on beside what fails has news all the time.
    pub fn hear_news(&mut self) {
        let soon = later(self.failed_at_ms, AFTER_NEWS);
        self.not_before_ms = self.not_before_ms.min(soon);
    }

    /// How long an object that looks like this still has to wait at `now_ms`.
    pub fn remaining(&self, appearance: &Appearance, now_ms: u64) -> Option<Duration> {
        if self.count == 0 || self.appearance != *appearance {
            return None;
        }
        let left = self.not_before_ms.saturating_sub(now_ms);
        (left > 0).then(|| Duration::from_millis(left))
    }
}

fn later(ms: u64, wait: Duration) -> u64 {
    ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waits_stay_within_their_limits(failures in 0_u32.., random in proptest::num::f64::ANY) {
            let wait = delay(failures, random);
            prop_assert!((SHORTEST..=LONGEST).contains(&wait));
        }

        #[test]
        fn the_limit_grows_with_failures(failures in 1_u32..40, random in 0.0..1.0) {
            prop_assert!(delay(failures, random) <= delay(failures + 1, random));
        }
    }

    #[test]
    fn the_first_wait_is_short_and_the_tenth_long() {
        assert_eq!(delay(1, 1.0), SHORTEST);
        assert_eq!(delay(2, 1.0), SHORTEST * 2);
        assert_eq!(delay(10, 1.0), LONGEST);
        assert_eq!(delay(10, 0.0), SHORTEST);
    }

    #[test]
    fn news_all_the_time_makes_no_failure_the_first() {
        let mut failures = Failures::default();
        let appearance = Appearance::default();
        let mut now = 0;
        let mut tries = 0;
        while now < 3_600_000 {
            if failures.remaining(&appearance, now).is_none() {
                failures.note(appearance.clone(), now, 1.0);
                tries += 1;
            }
            now += 1_000;
            failures.hear_news();
        }
        assert!((60..70).contains(&tries), "{tries} tries in an hour");
        // Without news the tenth wait is the longest.
        assert_eq!(failures.note(appearance.clone(), now, 1.0), LONGEST);
        let almost = now + 599_999;
        assert!(failures.remaining(&appearance, almost).is_some());
    }

    #[test]
    fn a_new_generation_does_not_wait() {
        let mut failures = Failures::default();
        let first = Appearance {
            generation: Some(1),
            ..Appearance::default()
        };
        let wait = failures.note(first.clone(), 1_000, 1.0);
        assert_eq!(failures.remaining(&first, 1_000), Some(wait));
        assert_eq!(failures.remaining(&first, 6_000), None);
        let second = Appearance {
            generation: Some(2),
            ..Appearance::default()
        };
        assert_eq!(failures.remaining(&second, 1_000), None);
        assert!(failures.note(first.clone(), 6_000, 1.0) > wait);
        assert_eq!(failures.note(second, 6_000, 1.0), wait);
    }
}
