//! What was finished lately, and by how many at a time: the speed that sizing rests on. Pure; the
//! time is handed in.

use std::collections::VecDeque;
use std::time::Duration;

use rules::model::ProgressFacts;

/// Looks whose ended items are kept: a day of looks every ten seconds, 300 KiB.
const MOST_LOOKS: usize = 8640;

/// What was finished between two looks at the reports.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Shards that were finished.
    pub(super) shards: u64,
    /// Rows of those.
    pub(super) rows: u64,
    /// For how long each worker whose report has changed was at what it has finished since its
    /// report before, in milliseconds; its start is spread over its shards.
    pub(super) worked_ms: Vec<i64>,
    /// The items that ended.
    pub(super) ended: Vec<EndedItem>,
}

/// What an item has cost that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EndedItem {
    /// Shards that its worker has finished.
    pub(super) shards: u64,
    /// For how long it was at them, in milliseconds, beside its start.
    pub(super) worked_ms: i64,
    /// How long its start took.
    pub(super) start_ms: i64,
}

/// Sums over items that have ended.
#[derive(Debug, Clone, Copy, Default)]
struct Costs {
    items: u64,
    shards: u64,
    worked_ms: f64,
    start_ms: f64,
}

impl Costs {
    fn of(ended: &[EndedItem]) -> Self {
        ended.iter().fold(Self::default(), |sum, item| {
            sum.and(&Self {
                items: 1,
                shards: item.shards,
                worked_ms: item.worked_ms.max(0) as f64,
                start_ms: item.start_ms.max(0) as f64,
            })
        })
    }

    fn and(self, other: &Self) -> Self {
        Self {
            items: self.items + other.items,
            shards: self.shards.saturating_add(other.shards),
            worked_ms: self.worked_ms + other.worked_ms,
            start_ms: self.start_ms + other.start_ms,
        }
    }

    /// Worker time of an item, on average; 0 if there is none.
    fn of_an_item(&self) -> f64 {
        (self.worked_ms + self.start_ms) / self.items.max(1) as f64
    }

    /// Worker time of a shard in an item of so many; `None` before a shard was finished.
    fn of_a_shard(&self, item_shards: u64) -> Option<f64> {
        let start = self.start_ms / self.items as f64 / item_shards.max(1) as f64;
        (self.shards > 0).then(|| self.worked_ms / self.shards as f64 + start)
    }
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
    /// By look: items that have ended within the window, or within the time that two items take,
    /// so that of items that began together not only the slow ones count; at least the last.
    ended: VecDeque<(i64, Costs)>,
}

impl Window {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length_ms: i64::try_from(length.as_millis()).unwrap_or(i64::MAX),
            start_ms: None,
            samples: VecDeque::new(),
            ended: VecDeque::new(),
        }
    }

    /// Forgets all but what an item costs: nobody works, or has worked for a while.
    pub(super) fn clear(&mut self) {
        self.start_ms = None;
        self.samples.clear();
    }

    /// Adds what was found by a look at `now_ms`. The first look tells nothing of speed: it is
    /// where the window begins.
    pub(super) fn look(&mut self, now_ms: i64, sample: Sample) {
        self.note_ended(now_ms, &sample.ended);
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

    fn ended(&self) -> Costs {
        let ended = self.ended.iter();
        ended.fold(Costs::default(), |sum, (_, costs)| sum.and(costs))
    }

    fn note_ended(&mut self, now_ms: i64, ended: &[EndedItem]) {
        let ended = Costs::of(ended);
        if ended.shards > 0 {
            self.ended.push_back((now_ms, ended));
        }
        let two_items = 2.0 * self.ended().of_an_item();
        let horizon = self.length_ms.max(two_items as i64);
        while self.ended.len() > 1
            && let Some((end_ms, _)) = self.ended.front()
            && now_ms.saturating_sub(*end_ms) >= horizon
        {
            self.ended.pop_front();
        }
        while self.ended.len() > MOST_LOOKS {
            self.ended.pop_front();
        }
    }

    /// Tells what the window holds, of items that have so many shards.
    ///
    /// How many workers were at it follows from what a shard costs in items that have ended: a
    /// worker has many shards in hand at a time, so that one that is in the middle of its item
    /// has worked on more than it has finished, and all are there after a step of sizing. Where no
    /// item has ended yet, it is the time of those at work.
    pub(super) fn tell(&self, item_shards: u64, progress: &mut ProgressFacts) {
        let (Some(start_ms), Some(last)) = (self.start_ms, self.samples.back()) else {
            return;
        };
        let length_ms = (last.end_ms - start_ms) as f64;
        let samples = self.samples.iter();
        let worked_ms: f64 = samples.clone().map(|kept| kept.worked_ms as f64).sum();
        progress.window_shards = samples.clone().map(|kept| kept.shards).sum();
        progress.window_rows = samples.map(|kept| kept.rows).sum();
        let cost = self.ended().of_a_shard(item_shards);
        let worked_ms = cost.map_or(worked_ms, |cost| cost * progress.window_shards as f64);
        progress.window_workers = worked_ms / length_ms;
        progress.window_seconds = length_ms / 1000.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(window: &Window) -> (u64, u64, f64, f64) {
        let mut progress = ProgressFacts::default();
        window.tell(10, &mut progress);
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
            ended: Vec::new(),
        }
    }

    /// Ten workers, each with many shards in hand, begin at once: nothing is finished for long,
    /// then much. What a shard costs is told by items that have ended.
    #[test]
    fn items_that_have_ended_tell_what_a_shard_costs() {
        let mut window = Window::new(Duration::from_secs(30));
        let ended = EndedItem {
            shards: 5,
            worked_ms: 9_800,
            start_ms: 2_000,
        };
        let first = Sample {
            ended: vec![ended, ended],
            ..sample(0, &[])
        };
        window.look(0, first);
        window.look(10_000, sample(20, &[10_000; 10]));
        // 1.96 s beside the start, of which a shard of ten has 0.2.
        let (_, _, workers, _) = told(&window);
        assert!((workers - 2.0 * 2.16).abs() < 1e-9, "{workers}");
        // Others within the window count as well.
        let quick = EndedItem {
            shards: 10,
            worked_ms: 10_000,
            start_ms: 0,
        };
        let second = Sample {
            ended: vec![quick],
            ..sample(10, &[10_000; 10])
        };
        window.look(20_000, second);
        let cost = 29.6 / 20.0 + 4.0 / 3.0 / 10.0;
        assert!((told(&window).2 - cost * 30.0 / 20.0).abs() < 1e-9);
        // And what the last of them have cost outlives a pause.
        window.clear();
        window.look(100_000, sample(0, &[]));
        window.look(110_000, sample(5, &[10_000; 10]));
        assert!((told(&window).2 - 0.5).abs() < 1e-9);
    }

    #[test]
    fn costs_that_anybody_may_have_written_do_no_harm() {
        let mut window = Window::new(Duration::from_secs(30));
        window.look(0, sample(0, &[]));
        let forged = EndedItem {
            shards: u64::MAX,
            worked_ms: i64::MIN,
            start_ms: i64::MAX,
        };
        let forged = Sample {
            ended: vec![forged; 3],
            ..sample(9, &[10_000])
        };
        window.look(10_000, forged);
        let workers = told(&window).2;
        assert!(workers.is_finite() && workers >= 0.0, "{workers}");
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
