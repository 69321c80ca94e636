//! What the operator remembers of an object between two looks. Nothing of it is needed after a
//! restart: it only spares work.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rules::model::Trouble;

use crate::backoff::{Appearance, Failures};

/// After so long a write that no watch has told of is no longer waited for.
const EXPECTED_WITHIN: Duration = Duration::from_secs(5);

/// What is remembered, by uid of the SidecarJob.
#[derive(Debug)]
pub struct Memory {
    start: Instant,
    objects: Mutex<HashMap<String, Remembered>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            objects: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Remembered {
    failures: Failures,
    trouble: Option<Trouble>,
    live_written_ms: Option<i64>,
    expected: Vec<Expected>,
}

/// What was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Subject {
    /// The SidecarJob.
    Object,
    /// The Job of this name.
    Job(String),
}

/// A write that a watch has still to tell of.
#[derive(Debug)]
struct Expected {
    subject: Subject,
    /// The version before; `None` if it wasn't there.
    former: Option<String>,
    since: Instant,
}

impl Memory {
    /// Notes that `subject` was written over the version `former`.
    pub fn note_write(&self, uid: &str, subject: Subject, former: Option<String>) {
        let mut objects = self.lock();
        let expected = &mut objects.entry(uid.to_owned()).or_default().expected;
        expected.retain(|earlier| earlier.subject != subject);
        expected.push(Expected {
            subject,
            former,
            since: Instant::now(),
        });
    }

    /// Whether what the watches have told is older than what was written. `version` is that of
    /// a subject as it is known.
    pub fn is_behind(&self, uid: &str, version: impl Fn(&Subject) -> Option<String>) -> bool {
        let mut objects = self.lock();
        let Some(remembered) = objects.get_mut(uid) else {
            return false;
        };
        remembered.expected.retain(|expected| {
            expected.since.elapsed() < EXPECTED_WITHIN
                && version(&expected.subject) == expected.former
        });
        !remembered.expected.is_empty()
    }

    /// Notes a failure; how long to wait.
    pub fn note_failure(&self, uid: &str, appearance: Appearance, trouble: Trouble) -> Duration {
        let now = self.now_ms();
        let mut objects = self.lock();
        let remembered = objects.entry(uid.to_owned()).or_default();
        remembered.trouble = Some(trouble);
        remembered.failures.note(appearance, now, rand::random())
    }

    /// Everything went well.
    pub fn note_success(&self, uid: &str) {
        if let Some(remembered) = self.lock().get_mut(uid) {
            remembered.failures = Failures::default();
            remembered.trouble = None;
        }
    }

    /// There is news that may mend what failed.
    pub fn hear_news(&self, uid: &str) {
        if let Some(remembered) = self.lock().get_mut(uid) {
            remembered.failures.hear_news();
        }
    }

    /// How long the object has still to wait after failures.
    pub fn remaining_wait(&self, uid: &str, appearance: &Appearance) -> Option<Duration> {
        let now = self.now_ms();
        self.lock().get(uid)?.failures.remaining(appearance, now)
    }

    /// What went wrong last.
    pub fn trouble(&self, uid: &str) -> Option<Trouble> {
        self.lock().get(uid)?.trouble.clone()
    }

    /// When the status was last written, in milliseconds since the epoch of Unix.
    pub fn live_written_ms(&self, uid: &str) -> Option<i64> {
        self.lock().get(uid)?.live_written_ms
    }

    /// Notes that the status was written.
    pub fn note_status_written(&self, uid: &str, now_ms: i64) {
        let mut objects = self.lock();
        objects.entry(uid.to_owned()).or_default().live_written_ms = Some(now_ms);
    }

    /// The object is gone.
    pub fn forget(&self, uid: &str) {
        self.lock().remove(uid);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Remembered>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_waited_for_until_a_watch_tells_of_it() {
        let memory = Memory::default();
        let version = |known: Option<&str>| {
            let known = known.map(str::to_owned);
            move |_: &Subject| known.clone()
        };
        assert!(!memory.is_behind("uid", version(None)));
        memory.note_write("uid", Subject::Job("a".to_owned()), None);
        assert!(memory.is_behind("uid", version(None)));
        assert!(!memory.is_behind("uid", version(Some("1"))));
        assert!(
            !memory.is_behind("uid", version(None)),
            "it was told of once"
        );
        memory.note_write("uid", Subject::Object, Some("1".to_owned()));
        assert!(memory.is_behind("uid", version(Some("1"))));
        assert!(!memory.is_behind("another", version(Some("1"))));
        assert!(!memory.is_behind("uid", version(Some("2"))));
    }

    #[test]
    fn trouble_lasts_until_something_goes_well_whatever_the_news() {
        let memory = Memory::default();
        let appearance = Appearance::default();
        let trouble = Trouble {
            reason: "ApiError",
            message: "words".to_owned(),
        };
        memory.note_failure("uid", appearance.clone(), trouble.clone());
        memory.hear_news("uid");
        assert!(memory.remaining_wait("uid", &appearance).is_some());
        assert_eq!(memory.trouble("uid"), Some(trouble));
        memory.note_success("uid");
        assert_eq!(memory.trouble("uid"), None);
    }
}
