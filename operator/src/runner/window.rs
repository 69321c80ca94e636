//! What was finished lately, and by how many at a time: the speed that sizing rests on. Pure; the
//! time is handed in.

use std::collections::VecDeque;
use std::time::Duration;

use rules::model::ProgressFacts;

/// What was finished between two looks at the reports.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Shards that were finished.
    pub(super) shards: u64,
    /// Rows of those.
    pub(super) rows: u64,
    /// For how long each worker whose report has changed was at it since its report before, in
    /// milliseconds.
    pub(super) worked_ms: Vec<i64>,
}

/// A sample, summed up.
#[derive(Debug)]
struct Kept {
    /// When the look that ended it was.
    end_ms: i64,
    shards: u64,
    rows: u64,
    worked_ms: i64,
}

/// The samples of the last few minutes.
#[derive(Debug)]
pub(super) struct Window {
    length_ms: i64,
    /// When the look before the oldest sample was.
    start_ms: Option<i64>,
    samples: VecDeque<Kept>,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length_ms: i64::try_from(length.as_millis()).unwrap_or(i64::MAX),
            start_ms: None,
            samples: VecDeque::new(),
        }
    }

    /// Forgets everything: nobody works, or has worked for a while.
    pub(super) fn clear(&mut self) {
        self.start_ms = None;
        self.samples.clear();
    }

    /// Adds what was found by a look at `now_ms`. The first look tells nothing of speed: it is
    /// where the window begins.
    pub(super) fn look(&mut self, now_ms: i64, sample: Sample) {
        let Some(start_ms) = self.start_ms else {
            self.start_ms = Some(now_ms);
            return;
        };
        if now_ms <= self.samples.back().map_or(start_ms, |kept| kept.end_ms) {
            // The clock was set back.
            self.clear();
            self.start_ms = Some(now_ms);
            return;
        }
        // No worker was at it for longer than there is a window, whatever its clock says.
        let most = now_ms - start_ms;
        let worked = sample.worked_ms.into_iter().map(|ms| ms.clamp(0, most));
        self.samples.push_back(Kept {
            end_ms: now_ms,
            shards: sample.shards,
            rows: sample.rows,
            worked_ms: worked.fold(0, i64::saturating_add),
        });
        while self.samples.len() > 1
            && let Some(oldest) = self.samples.front()
            && now_ms - oldest.end_ms >= self.length_ms
        {
            self.start_ms = Some(oldest.end_ms);
            self.samples.pop_front();
        }
    }

    /// Tells what the window holds.
    pub(super) fn tell(&self, progress: &mut ProgressFacts) {
        let (Some(start_ms), Some(last)) = (self.start_ms, self.samples.back()) else {
            return;
        };
        let length_ms = (last.end_ms - start_ms) as f64;
        let samples = self.samples.iter();
        let worked_ms: f64 = samples.clone().map(|kept| kept.worked_ms as f64).sum();
        progress.window_shards = samples.clone().map(|kept| kept.shards).sum();
        progress.window_rows = samples.map(|kept| kept.rows).sum();
        progress.window_workers = worked_ms / length_ms;
        progress.window_seconds = length_ms / 1000.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(window: &Window) -> (u64, u64, f64, f64) {
        let mut progress = ProgressFacts::default();
        window.tell(&mut progress);
        (
            progress.window_shards,
            progress.window_rows,
            progress.window_workers,
            progress.window_seconds,
        )
    }

    fn sample(shards: u64, worked_ms: &[i64]) -> Sample {
        Sample {
            shards,
            rows: shards * 10,
            worked_ms: worked_ms.to_vec(),
        }
    }

    #[test]
    fn the_first_look_is_where_the_window_begins() {
        let mut window = Window::new(Duration::from_secs(30));
        assert_eq!(told(&window), (0, 0, 0.0, 0.0));
        window.look(1_000, sample(500, &[900]));
        assert_eq!(told(&window), (0, 0, 0.0, 0.0));
        window.look(11_000, sample(4, &[10_000, 5_000]));
        assert_eq!(told(&window), (4, 40, 1.5, 10.0));
        window.look(21_000, sample(0, &[]));
        assert_eq!(told(&window), (4, 40, 0.75, 20.0));
    }

    #[test]
    fn what_is_older_than_the_window_goes() {
        let mut window = Window::new(Duration::from_secs(30));
        for look in 0..10 {
            window.look(look * 10_000, sample(1, &[10_000, 10_000]));
        }
        assert_eq!(told(&window), (3, 30, 2.0, 30.0));
        // A look after a long silence covers all of it.
        window.look(1_000_000, sample(7, &[455_000]));
        assert_eq!(told(&window), (7, 70, 0.5, 910.0));
    }

    #[test]
    fn a_clock_that_goes_back_begins_a_new_window() {
        let mut window = Window::new(Duration::from_secs(30));
        window.look(100_000, sample(1, &[1]));
        window.look(110_000, sample(1, &[1]));
        window.look(50_000, sample(9, &[1]));
        assert_eq!(told(&window), (0, 0, 0.0, 0.0));
        window.look(60_000, sample(2, &[10_000]));
        assert_eq!(told(&window), (2, 20, 1.0, 10.0));
    }

    /// Clocks of workers may be wrong, and a report may be anybody's.
    #[test]
    fn nobody_works_for_longer_than_there_is_a_window() {
        let mut window = Window::new(Duration::from_secs(30));
        window.look(0, sample(0, &[]));
        window.look(10_000, sample(9, &[i64::MAX, -5, i64::MIN]));
        assert_eq!(told(&window), (9, 90, 1.0, 10.0));
    }
}
