//! How many requests are in flight to a bucket: fewer when it asks to slow down, then slowly
//! more again (additive increase, multiplicative decrease, as TCP does).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One halving for all answers of a burst: they speak of the same moment.
const HALVING_INTERVAL: Duration = Duration::from_millis(500);

/// The number of requests that may be in flight. Pure: the time is handed in.
#[derive(Debug)]
struct Window {
    size: f64,
    largest: f64,
    halved_at: Option<Instant>,
}

impl Window {
    fn new(largest: usize) -> Self {
        let largest = largest.max(1) as f64;
        Self {
            size: largest,
            largest,
            halved_at: None,
        }
    }

    /// One more for each full window of answers.
    fn widen(&mut self) {
        self.size = (self.size + 1.0 / self.size).min(self.largest);
    }

    fn halve(&mut self, now: Instant) {
        let recently = |at: Instant| now.saturating_duration_since(at) < HALVING_INTERVAL;
        if !self.halved_at.is_some_and(recently) {
            self.size = (self.size / 2.0).max(1.0);
            self.halved_at = Some(now);
        }
    }

    fn whole(&self) -> usize {
        self.size as usize
    }
}

/// Lets requests pass, first come, first served, as many at a time as the window has room for.
#[derive(Debug)]
pub(super) struct Pacer {
    passes: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    window: Window,
    /// Passes that exist, handed out or not.
    passes: usize,
}

/// Leave to have one request in flight.
#[derive(Debug)]
pub(super) struct Pass {
    permit: Option<OwnedSemaphorePermit>,
    pacer: Arc<Pacer>,
}

impl Pacer {
    pub(super) fn new(largest: usize) -> Arc<Self> {
        let window = Window::new(largest);
        let passes = window.whole();
        Arc::new(Self {
            passes: Arc::new(Semaphore::new(passes)),
            state: Mutex::new(State { window, passes }),
        })
    }

    pub(super) async fn pass(self: &Arc<Self>) -> Pass {
        // The semaphore is never closed, so there always is a permit sooner or later.
        let permit = Arc::clone(&self.passes).acquire_owned().await.ok();
        Pass {
            permit,
            pacer: Arc::clone(self),
        }
    }

    pub(super) fn answered(&self) {
        let mut state = self.state();
        state.window.widen();
        let missing = state.window.whole().saturating_sub(state.passes);
        self.passes.add_permits(missing);
        state.passes += missing;
    }

    pub(super) fn slow_down(&self, now: Instant) {
        let mut state = self.state();
        state.window.halve(now);
        let surplus = state.passes.saturating_sub(state.window.whole());
        state.passes -= self.passes.forget_permits(surplus);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let Some(permit) = self.permit.take() else {
            return;
        };
        let mut state = self.pacer.state();
        if state.passes > state.window.whole() {
            state.passes -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_halves_once_a_burst_and_grows_back_one_by_one() {
        let mut window = Window::new(64);
        let start = Instant::now();
        for millisecond in 0..100 {
            window.halve(start + Duration::from_millis(millisecond));
        }
        assert_eq!(window.whole(), 32);
        window.halve(start + Duration::from_secs(1));
        assert_eq!(window.whole(), 16);
        for _ in 0..17 {
            window.widen();
        }
        assert_eq!(window.whole(), 17);
        for _ in 0..10_000 {
            window.widen();
        }
        assert_eq!(window.whole(), 64);
    }

    #[test]
    fn one_request_is_always_allowed() {
        let mut window = Window::new(4);
        let start = Instant::now();
        for second in 0..10 {
            window.halve(start + Duration::from_secs(second));
        }
        assert_eq!(window.whole(), 1);
    }

    #[tokio::test]
    async fn passes_in_use_are_taken_back_when_returned() {
        let pacer = Pacer::new(4);
        let mut passes = Vec::new();
        for _ in 0..4 {
            passes.push(pacer.pass().await);
        }
        pacer.slow_down(Instant::now());
        assert_eq!(pacer.passes.available_permits(), 0);
        passes.clear();
        assert_eq!(pacer.passes.available_permits(), 2);
        for _ in 0..100 {
            pacer.answered();
        }
        assert_eq!(pacer.passes.available_permits(), 4);
    }
}
