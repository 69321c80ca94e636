//! Work shared out over threads, with the CPU time it took.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::oneshot;

use crate::panics::caught;

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

type Piece = Box<dyn FnOnce() + Send>;

/// Pieces of CPU work that wait their turn for one of a fixed number of threads.
///
/// A thread that ends a piece takes the next one itself: no other thread has to be woken between
/// two pieces.
#[derive(Clone)]
pub struct CpuQueue {
    threads: usize,
    state: Arc<Mutex<QueueState>>,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Piece>,
    running: usize,
}

impl CpuQueue {
    /// A queue that `threads` threads work on, as long as anything waits.
    pub fn new(threads: usize) -> Self {
        Self {
            threads: threads.max(1),
            state: Arc::default(),
        }
    }

    /// Does a piece of work in its turn, and none of it if the caller has gone by then. `None`
    /// if it panicked, or the runtime ends.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.push(Box::new(move || {
            if !sender.is_closed() {
                // Whoever has gone meanwhile needs no result.
                let _ = sender.send(work());
            }
        }));
        receiver.await.ok()
    }

    fn push(&self, piece: Piece) {
        let mut state = self.state();
        state.waiting.push_back(piece);
        if state.running < self.threads {
            state.running += 1;
            let queue = self.clone();
            tokio::task::spawn_blocking(move || queue.work());
        }
    }

    fn work(&self) {
        loop {
            let piece = {
                let mut state = self.state();
                let Some(piece) = state.waiting.pop_front() else {
                    state.running -= 1;
                    return;
                };
                piece
            };
            // Its caller sees that there is no result; the pieces behind it go on.
            if let Err(message) = caught(piece) {
                tracing::error!("a piece of work panicked: {message}");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for CpuQueue {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("CpuQueue")
            .field("threads", &self.threads)
            .finish_non_exhaustive()
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
    let panicked = std::thread::scope(|scope| {
        let mut helpers = Vec::new();
        for _ in 1..threads.min(items.len()) {
            // Where the system gives no thread, those that there are do it all.
            match std::thread::Builder::new().spawn_scoped(scope, || caught(run)) {
                Ok(helper) => helpers.push(helper),
                Err(_) => break,
            }
        }
        let own = caught(run);
        let helpers = helpers
            .into_iter()
            .map(|helper| helper.join().unwrap_or(Ok(())));
        std::iter::once(own).chain(helpers).find_map(Result::err)
    });
    if let Some(message) = panicked {
        // Whoever asked for the work tells of it.
        std::panic::resume_unwind(Box::new(message));
    }
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

    #[test]
    fn a_panic_of_any_thread_keeps_its_words() {
        let clock = CpuClock::default();
        let items: Vec<u32> = (0..100).collect();
        let panicked = caught(|| {
            map_parallel(4, &items, &clock, |_, item| {
                assert!(*item != 70, "item {item} is no good");
                Ok::<_, ()>(())
            })
        });
        assert_eq!(panicked, Err("item 70 is no good".to_owned()));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn pieces_run_on_so_many_threads_and_outlive_a_panic() {
        let queue = CpuQueue::new(2);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let pieces = (0..200_usize).map(|number| {
            let (queue, running, most) = (queue.clone(), running.clone(), most.clone());
            tokio::spawn(async move {
                let piece = move || {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    assert!(number % 50 != 7, "a piece that panics");
                    number
                };
                queue.run(piece).await
            })
        });
        let results = futures::future::join_all(pieces).await;
        for (number, result) in results.into_iter().enumerate() {
            let expected = (number % 50 != 7).then_some(number);
            assert_eq!(result.unwrap(), expected);
        }
        assert!((1..=2).contains(&most.load(Ordering::SeqCst)));
        // A result is sent a moment before its thread sees that nothing waits any more.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while queue.state().running > 0 {
            let is_in_time = std::time::Instant::now() < deadline;
            assert!(is_in_time, "threads go back when nothing waits");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_not_done() {
        let queue = CpuQueue::new(1);
        let (open, opened) = std::sync::mpsc::channel::<()>();
        let first = queue.run(move || opened.recv().is_ok());
        let (done, is_done) = std::sync::mpsc::channel();
        let mut first = Box::pin(first);
        assert!(futures::poll!(&mut first).is_pending());
        let mut second = Box::pin(queue.run(move || done.send(()).is_ok()));
        assert!(futures::poll!(&mut second).is_pending());
        drop(second);
        open.send(()).unwrap();
        assert_eq!(first.await, Some(true));
        assert_eq!(queue.run(|| 3).await, Some(3));
        assert!(is_done.recv().is_err(), "its sender went unused");
    }
}
