//! Work shared out over threads, with the CPU time it took.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of the calling thread.
pub fn thread_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.max(0) as u64,
        time.tv_nsec.clamp(0, 999_999_999) as u32,
    )
}

/// A sum of CPU times, added to by many threads.
#[derive(Debug, Default)]
pub struct CpuClock(AtomicU64);

impl CpuClock {
    /// Runs `work` and adds the CPU time that it took on this thread.
    pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu_time();
        let result = work();
        let spent = thread_cpu_time().saturating_sub(before);
        self.0.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        result
    }

    /// The sum.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// Applies `work` to every item on up to `threads` threads; results keep the items' order.
/// After the first error no further item is begun, and the error of the lowest item is returned.
pub fn map_parallel<T: Sync, R: Send, E: Send>(
    threads: usize,
    items: &[T],
    clock: &CpuClock,
    work: impl Fn(usize, &T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results: Mutex<Vec<(usize, Result<R, E>)>> = Mutex::new(Vec::with_capacity(items.len()));
    let run = || {
        clock.time(|| {
            while !failed.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(number) else { break };
                let result = work(number, item);
                if result.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                results
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push((number, result));
            }
        });
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(items.len()) {
            scope.spawn(run);
        }
        run();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_order_and_reports_an_error() {
        let clock = CpuClock::default();
        let items: Vec<u32> = (0..100).collect();
        let doubled = map_parallel(4, &items, &clock, |_, item| Ok::<_, ()>(item * 2)).unwrap();
        assert_eq!(doubled, (0..100).map(|item| item * 2).collect::<Vec<_>>());
        let failed = map_parallel(4, &items, &clock, |_, item| {
            if *item == 7 { Err(*item) } else { Ok(()) }
        });
        assert_eq!(failed.unwrap_err(), 7);
    }
}
