//! Which objects have to be looked at, and when.
//!
//! A key is in the queue at most once: of two times the earlier counts, so that a stream of
//! events can't put anything off. A key that is being worked on is handed out again only after
//! that, and is not forgotten meanwhile.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// The queue.
#[derive(Debug)]
pub struct Queue<K> {
    waiting: Mutex<Waiting<K>>,
    changed: Notify,
}

impl<K: Clone + Eq + Hash + Ord> Default for Queue<K> {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Waiting::default()),
            changed: Notify::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// Hands out `key` at `time`, or earlier if it was so asked before.
    pub fn add(&self, key: K, time: Instant) {
        if self.lock().add(key, time) {
            self.changed.notify_one();
        }
    }

    /// Waits for the next key, and marks it as being worked on until [`Self::done`].
    pub async fn next(&self) -> K {
        loop {
            let changed = self.changed.notified();
            let taken = self.lock().take(Instant::now());
            match taken {
                Taken::Key(key) => return key,
                Taken::Nothing => changed.await,
                Taken::NotBefore(time) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(time.into()) => {}
                    }
                }
            }
        }
    }

    /// `key` is no longer being worked on.
    pub fn done(&self, key: &K) {
        self.lock().running.remove(key);
        self.changed.notify_one();
    }

    /// Keys that wait for their time.
    pub fn len(&self) -> usize {
        self.lock().due.len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<K>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Waiting<K> {
    due: HashMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    running: HashSet<K>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self {
            due: HashMap::new(),
            order: BTreeSet::new(),
            running: HashSet::new(),
        }
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Taken<K> {
    Key(K),
    NotBefore(Instant),
    Nothing,
}

impl<K: Clone + Eq + Hash + Ord> Waiting<K> {
    /// Whether anything changed.
    fn add(&mut self, key: K, time: Instant) -> bool {
        if let Some(earlier) = self.due.get(&key) {
            if *earlier <= time {
                return false;
            }
            self.order.remove(&(*earlier, key.clone()));
        }
        self.due.insert(key.clone(), time);
        self.order.insert((time, key));
        true
    }

    fn take(&mut self, now: Instant) -> Taken<K> {
        let next = self
            .order
            .iter()
            .find(|(_, key)| !self.running.contains(key));
        match next {
            None => Taken::Nothing,
            Some((time, _)) if *time > now => Taken::NotBefore(*time),
            Some((time, key)) => {
                let (time, key) = (*time, key.clone());
                self.due.remove(&key);
                self.order.remove(&(time, key.clone()));
                self.running.insert(key.clone());
                Taken::Key(key)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn events_that_never_end_put_nothing_off() {
        let mut waiting = Waiting::default();
        let start = Instant::now();
        for millisecond in 0..1000 {
            let time = start + Duration::from_millis(200 + millisecond);
            waiting.add("a", time);
        }
        assert_eq!(
            waiting.take(start),
            Taken::NotBefore(start + Duration::from_millis(200))
        );
        assert_eq!(
            waiting.take(start + Duration::from_millis(200)),
            Taken::Key("a")
        );
    }

    #[test]
    fn the_earlier_time_counts() {
        let mut waiting = Waiting::default();
        let start = Instant::now();
        assert!(waiting.add("a", start + Duration::from_secs(600)));
        assert!(waiting.add("a", start));
        assert!(!waiting.add("a", start + Duration::from_secs(5)));
        assert_eq!(waiting.take(start), Taken::Key("a"));
        assert_eq!(waiting.take(start), Taken::Nothing);
    }

    #[test]
    fn no_key_is_worked_on_twice_at_a_time_and_none_is_forgotten() {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        waiting.add("a", now);
        waiting.add("b", now + Duration::from_secs(1));
        assert_eq!(waiting.take(now), Taken::Key("a"));
        waiting.add("a", now);
        assert_eq!(
            waiting.take(now),
            Taken::NotBefore(now + Duration::from_secs(1)),
            "b waits for its time, a for its end"
        );
        waiting.running.remove("a");
        assert_eq!(waiting.take(now), Taken::Key("a"));
    }

    #[tokio::test]
    async fn whoever_waits_hears_of_a_new_key_and_of_an_end() {
        let queue = Queue::default();
        let next = queue.next();
        tokio::pin!(next);
        assert!(
            tokio::time::timeout(Duration::from_millis(10), &mut next)
                .await
                .is_err()
        );
        queue.add("a", Instant::now());
        assert_eq!(next.await, "a");
        queue.add("a", Instant::now());
        let next = queue.next();
        tokio::pin!(next);
        assert!(
            tokio::time::timeout(Duration::from_millis(10), &mut next)
                .await
                .is_err(),
            "it is still being worked on"
        );
        queue.done(&"a");
        assert_eq!(next.await, "a");
    }
}
