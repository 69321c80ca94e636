//! What was finished lately: the speed that sizing rests on. Pure; the time is handed in.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use crate::model::ProgressFacts;

/// What was finished between two looks at the reports.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Shards that were finished.
    pub(super) shards: u64,
    /// Rows of those.
    pub(super) rows: u64,
    /// Hashes of the names of those who finished a shard.
    pub(super) workers: HashSet<u64>,
}

/// The samples of the last few minutes.
#[derive(Debug)]
pub(super) struct Window {
    length_ms: i64,
    /// When the look before the oldest sample was.
    start_ms: Option<i64>,
    /// Samples, and when the look that ended each was.
    samples: VecDeque<(i64, Sample)>,
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
        if now_ms <= self.samples.back().map_or(start_ms, |(end, _)| *end) {
            // The clock was set back.
            self.clear();
            self.start_ms = Some(now_ms);
            return;
        }
        self.samples.push_back((now_ms, sample));
        while self.samples.len() > 1
            && let Some((end, _)) = self.samples.front()
            && now_ms - end >= self.length_ms
        {
            self.start_ms = Some(*end);
            self.samples.pop_front();
        }
    }

    /// Tells what the window holds.
    pub(super) fn tell(&self, progress: &mut ProgressFacts) {
        let (Some(start_ms), Some((end_ms, _))) = (self.start_ms, self.samples.back()) else {
            return;
        };
        let samples = self.samples.iter().map(|(_, sample)| sample);
        progress.window_shards = samples.clone().map(|sample| sample.shards).sum();
        progress.window_rows = samples.clone().map(|sample| sample.rows).sum();
        let workers: HashSet<u64> = samples.flat_map(|sample| sample.workers.clone()).collect();
        progress.window_workers = u32::try_from(workers.len()).unwrap_or(u32::MAX);
        progress.window_seconds = (end_ms - start_ms) as f64 / 1000.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(window: &Window) -> (u64, u64, u32, f64) {
        let mut progress = ProgressFacts::default();
        window.tell(&mut progress);
        (
            progress.window_shards,
            progress.window_rows,
            progress.window_workers,
            progress.window_seconds,
        )
    }

    fn sample(shards: u64, workers: &[u64]) -> Sample {
        Sample {
            shards,
            rows: shards * 10,
            workers: workers.iter().copied().collect(),
        }
    }

    #[test]
    fn the_first_look_is_where_the_window_begins() {
        let mut window = Window::new(Duration::from_secs(30));
        assert_eq!(told(&window), (0, 0, 0, 0.0));
        window.look(1_000, sample(500, &[1]));
        assert_eq!(told(&window), (0, 0, 0, 0.0));
        window.look(11_000, sample(4, &[1, 2]));
        assert_eq!(told(&window), (4, 40, 2, 10.0));
        window.look(21_000, sample(0, &[]));
        assert_eq!(told(&window), (4, 40, 2, 20.0));
    }

    #[test]
    fn what_is_older_than_the_window_goes() {
        let mut window = Window::new(Duration::from_secs(30));
        for look in 0..10 {
            window.look(look * 10_000, sample(1, &[u64::try_from(look).unwrap()]));
        }
        assert_eq!(told(&window), (3, 30, 3, 30.0));
        // A look after a long silence covers all of it.
        window.look(1_000_000, sample(7, &[3]));
        assert_eq!(told(&window), (7, 70, 1, 910.0));
    }

    #[test]
    fn a_clock_that_goes_back_begins_a_new_window() {
        let mut window = Window::new(Duration::from_secs(30));
        window.look(100_000, sample(1, &[1]));
        window.look(110_000, sample(1, &[1]));
        window.look(50_000, sample(9, &[1]));
        assert_eq!(told(&window), (0, 0, 0, 0.0));
        window.look(60_000, sample(2, &[1]));
        assert_eq!(told(&window), (2, 20, 1, 10.0));
    }
}
