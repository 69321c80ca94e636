//! What all runs of the operator share: how many do what costs memory at the same time, and how
//! often each may ask, so that neither memory nor requests grow with their number.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

/// Plans and seals that are made at the same time: each holds a manifest, pages of two listings
/// and a few files of lines.
const PLANS_AND_SEALS: usize = 4;
/// Reports that are read at the same time.
const REPORTS: usize = 32;

/// Runs whose reports are looked at in a second, at most.
const LOOKS_PER_SECOND: f64 = 20.0;
/// Locks that are renewed in a second, at most, each three times within its time to live.
const RENEWALS_PER_SECOND: f64 = 10.0;
/// Locks of others that are asked for in a second, at most.
const CLAIMS_PER_SECOND: f64 = 10.0;
/// Objects whose numbers are written in a second, at most.
const STATUSES_PER_SECOND: f64 = 20.0;
/// No lock lives longer without a renewal, however many there are: others wait for it.
const LONGEST_TTL: Duration = Duration::from_secs(600);

/// What all runs share.
#[derive(Debug)]
pub struct Budget {
    heavy: Semaphore,
    reports: Semaphore,
    waiting: AtomicUsize,
    live: AtomicUsize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            heavy: Semaphore::new(PLANS_AND_SEALS),
            reports: Semaphore::new(REPORTS),
            waiting: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
        }
    }
}

/// Counts a run as worked on until it is dropped.
#[derive(Debug)]
pub(super) struct Live(Arc<Budget>);

impl Drop for Live {
    fn drop(&mut self) {
        self.0.live.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one that waits until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Budget {
    /// A run begins to be worked on.
    pub(super) fn begin(self: &Arc<Self>) -> Live {
        self.live.fetch_add(1, Ordering::Relaxed);
        Live(Arc::clone(self))
    }

    /// Leave to make a plan or a seal; `None` never.
    pub(super) async fn heavy(&self) -> Option<SemaphorePermit<'_>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        self.heavy.acquire().await.ok()
    }

    /// Leave to read a report; `None` never.
    pub(super) async fn report(&self) -> Option<SemaphorePermit<'_>> {
        self.reports.acquire().await.ok()
    }

    /// Runs that are worked on.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }

    /// Plans and seals that wait for others to end.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Time between two looks at the reports of a run.
    pub fn looks(&self, shortest: Duration) -> Duration {
        self.spread(shortest, LOOKS_PER_SECOND)
    }

    /// How long a lock lives that is taken now.
    pub fn lock_ttl(&self, shortest: Duration) -> Duration {
        let spread = self.spread(shortest, RENEWALS_PER_SECOND / 3.0);
        spread.min(LONGEST_TTL.max(shortest))
    }

    /// Time between two requests for a lock that somebody else holds.
    pub(super) fn claims(&self, shortest: Duration) -> Duration {
        self.spread(shortest, CLAIMS_PER_SECOND)
    }

    /// Seconds between two writes of an object's numbers.
    pub fn status_seconds(&self, shortest: i64) -> i64 {
        let shortest = Duration::from_secs(u64::try_from(shortest).unwrap_or(0));
        let spread = self.spread(shortest, STATUSES_PER_SECOND);
        i64::try_from(spread.as_secs()).unwrap_or(i64::MAX)
    }

    fn spread(&self, shortest: Duration, per_second: f64) -> Duration {
        shortest.max(Duration::from_secs_f64(self.live() as f64 / per_second))
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn many_runs_ask_less_often_and_few_as_often_as_they_like() {
        let budget = Arc::new(Budget::default());
        let seconds = Duration::from_secs;
        let intervals = || {
            (
                budget.looks(seconds(10)),
                budget.lock_ttl(seconds(60)),
                budget.claims(seconds(15)),
                budget.status_seconds(15),
            )
        };
        assert_eq!(intervals(), (seconds(10), seconds(60), seconds(15), 15));
        let few: Vec<Live> = (0..150).map(|_| budget.begin()).collect();
        assert_eq!(intervals(), (seconds(10), seconds(60), seconds(15), 15));
        let many: Vec<Live> = (0..850).map(|_| budget.begin()).collect();
        assert_eq!(budget.live(), 1000);
        assert_eq!(intervals(), (seconds(50), seconds(300), seconds(100), 50));
        drop((few, many));
        assert_eq!(intervals(), (seconds(10), seconds(60), seconds(15), 15));
    }

    #[test]
    fn so_many_plans_are_made_at_a_time_and_no_more() {
        let budget = Budget::default();
        let taken: Vec<_> = (0..PLANS_AND_SEALS)
            .map(|_| budget.heavy().now_or_never().unwrap())
            .collect();
        assert!(budget.heavy().now_or_never().is_none());
        assert_eq!(budget.waiting(), 0, "who gave up waits no more");
        drop(taken);
        assert!(budget.heavy().now_or_never().is_some());
    }
}
