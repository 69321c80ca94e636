//! The worked example, replayed: workers as a Job has them, their reports through the operator's
//! own book and window, and what comes of it through the formula.

use std::time::Duration;

use operator::runner::book::Book;
use rules::model::Item;
use rules::sizing::{Inputs, Limit, Sizing, size};
use storage::ETag;
use storage::state::RunId;
use storage::state::batch::{Batch, WorkItem};
use storage::state::report::{ChunkReport, ChunkState};
use time::OffsetDateTime;
use time::macros::datetime;

const START: OffsetDateTime = datetime!(2025-06-01 10:00 UTC);

/// Ten million rows an hour of shards of 512 rows are 5.43 shards a second.
const TARGET: u64 = 10_000_000;
const ROWS: f64 = 512.0;
/// A worker makes a shard in ten seconds: 55 are needed.
const SHARD_SECONDS: f64 = 10.0;
/// From the end of a pod until the worker of the next one in its place begins.
const POD_SECONDS: f64 = 3.0;
/// From there until the first shard can be taken.
const START_SECONDS: f64 = 2.0;

const WINDOW_SECONDS: f64 = 300.0;
const LOOK_SECONDS: f64 = 10.0;
/// How often a worker rewrites its report.
const REPORT_SECONDS: f64 = 10.0;

/// Of a replay.
const LENGTH_SECONDS: f64 = 3_600.0;

/// A share of the right number that no number may be away from it.
const TOLERANCE: f64 = 0.15;

/// How many shards of its item a worker has in hand at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum InHand {
    /// One ends after the other.
    One,
    /// All are read, then computed, then written: they end together.
    All,
}

/// The share of an item's time after which shards that are all in hand begin to end.
const FIRST_END: f64 = 0.9;

/// A worker on its item.
struct Worker {
    item: Item,
    began: f64,
    /// Seconds of a shard, on this item.
    pace: f64,
    in_hand: InHand,
    reported: f64,
}

impl Worker {
    fn shards_at(&self, now: f64) -> u64 {
        let worked = (now - self.began - START_SECONDS).max(0.0);
        let shards = (self.item.1 - self.item.0) as f64;
        let done = worked / self.pace;
        let ended = match self.in_hand {
            InHand::One => done,
            InHand::All => (done / shards - FIRST_END) / (1.0 - FIRST_END) * shards,
        };
        ended.clamp(0.0, shards) as u64
    }

    fn end(&self) -> f64 {
        self.began + START_SECONDS + (self.item.1 - self.item.0) as f64 * self.pace
    }
}

struct Replay {
    now: f64,
    book: Book,
    shards_per_item: u64,
    /// A worker in each place, or when there will be one.
    places: Vec<Result<Worker, f64>>,
    items: u64,
    asked: u32,
    in_hand: InHand,
    changed: f64,
    made: u64,
    /// A linear congruential generator.
    random: u64,
}

impl Replay {
    fn new(item_seconds: f64, workers: u32, in_hand: InHand) -> Self {
        Self {
            now: 0.0,
            book: Book::new(Duration::from_secs_f64(WINDOW_SECONDS)),
            shards_per_item: (item_seconds / SHARD_SECONDS) as u64,
            places: Vec::new(),
            items: 0,
            asked: workers,
            in_hand,
            changed: f64::MIN,
            made: 0,
            random: 7,
        }
    }

    /// A number from 0 to 1.
    fn random(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 40) as f64 / (1_u64 << 24) as f64
    }

    /// A second passes.
    fn work(&mut self) {
        self.now += 1.0;
        let asked = self.asked as usize;
        // A Job with fewer workers ends some, whose items others do from where they were.
        self.places.truncate(asked);
        while self.places.len() < asked {
            let begin = self.now + POD_SECONDS * (0.5 + self.random());
            self.places.push(Err(begin));
        }
        for place in 0..asked {
            let next = match &mut self.places[place] {
                Ok(worker) if worker.end() <= self.now => {
                    self.made += worker.item.1 - worker.item.0;
                    let end = worker.end();
                    tell(&mut self.book, worker, end, ChunkState::Done);
                    Some(Err(self.now + POD_SECONDS))
                }
                Ok(worker) => {
                    if self.now - worker.reported >= REPORT_SECONDS {
                        worker.reported = self.now;
                        tell(&mut self.book, worker, self.now, ChunkState::Running);
                    }
                    None
                }
                Err(begin) if *begin <= self.now => Some(Ok(self.next_worker())),
                Err(_) => None,
            };
            if let Some(next) = next {
                self.places[place] = next;
            }
        }
    }

    /// Some items are slower than others, by a fifth.
    fn next_worker(&mut self) -> Worker {
        let first = self.items * self.shards_per_item;
        let item = (first, first + self.shards_per_item);
        let batch = Batch::new(
            run(),
            String::new(),
            self.items,
            1,
            [WorkItem::from(item.0..item.1)],
        );
        self.items += 1;
        self.book.add_batch(&batch);
        Worker {
            item,
            began: self.now,
            pace: SHARD_SECONDS * (0.8 + 0.4 * self.random()),
            reported: self.now,
            in_hand: self.in_hand,
        }
    }

    fn look(&mut self) -> Sizing {
        self.book.end_look(at(self.now));
        let progress = self.book.progress();
        let inputs = Inputs {
            target_rows_per_hour: Some(TARGET),
            target_before: Some(TARGET),
            rows_per_shard: ROWS,
            window_shards: progress.window_shards,
            window_seconds: progress.window_seconds,
            window_workers: progress.window_workers,
            speed: None,
            current: Some(self.asked),
            max_workers: 1_600,
            items_left: 1_000_000,
            pending: 0,
            is_settled: self.now - self.changed >= WINDOW_SECONDS,
        };
        let sized = size(&inputs);
        if sized.workers != self.asked {
            (self.asked, self.changed) = (sized.workers, self.now);
        }
        sized
    }
}

fn run() -> RunId {
    RunId::new(START, 0)
}

fn at(seconds: f64) -> OffsetDateTime {
    START + Duration::from_secs_f64(seconds)
}

/// The book hears of an item, from a pod whose name no other has: `<job>-<index>`.
fn tell(book: &mut Book, worker: &Worker, now: f64, state: ChunkState) {
    let (first, end) = worker.item;
    let name = format!("photos-0123456789-{first}");
    let began = at(worker.began + START_SECONDS);
    let report = ChunkReport::new(run(), String::new(), 0, name, end - first, began);
    let mut report = report.of_item((first..end).into(), 1);
    report.state = state;
    report.updated_at = at(now.max(worker.began + START_SECONDS));
    report.counts.shards_done = worker.shards_at(now);
    report.counts.rows = report.counts.shards_done * 512;
    report.counts.seconds.start = START_SECONDS;
    let etag = ETag(format!("{first}-{now}").into());
    book.add_report(first, etag, Some(&report));
}

/// From too few and from too many workers, with items shorter and longer than the window.
#[test]
fn the_worked_example_comes_to_the_right_number_whatever_items_take() {
    let one = [30.0, 60.0, 180.0, 300.0, 600.0].map(|seconds| (seconds, InHand::One));
    let all = [30.0, 60.0, 180.0, 300.0].map(|seconds| (seconds, InHand::All));
    for (item_seconds, in_hand) in one.into_iter().chain(all) {
        for begin in [8, 145] {
            let mut replay = Replay::new(item_seconds, begin, in_hand);
            let shards = replay.shards_per_item as f64;
            let item = POD_SECONDS + START_SECONDS + shards * SHARD_SECONDS;
            let target = TARGET as f64 / ROWS / 3600.0;
            let right = target * item / shards;
            let what = |replay: &Replay| {
                let now = replay.now;
                format!(
                    "items of {item_seconds} s, {in_hand:?} in hand, from {begin} workers, {now} s, right is {right}"
                )
            };
            let is_near = |number: f64| (number - right).abs() <= TOLERANCE * right + 0.5;
            let mut shards_before = 0;
            while replay.now < LENGTH_SECONDS {
                for _ in 0..LOOK_SECONDS as u64 {
                    replay.work();
                }
                let sized = replay.look();
                if replay.now < 2.0 * WINDOW_SECONDS {
                    shards_before = replay.made;
                    continue;
                }
                let wanted = f64::from(sized.wanted.expect("measured"));
                assert!(is_near(wanted), "{wanted} wanted: {}", what(&replay));
                let is_held = [None, Some(Limit::DeadBand)].contains(&sized.limit);
                assert!(
                    !is_held || is_near(f64::from(sized.workers)),
                    "{} workers: {}",
                    sized.workers,
                    what(&replay)
                );
            }
            let speed =
                (replay.made - shards_before) as f64 / (LENGTH_SECONDS - 2.0 * WINDOW_SECONDS);
            let share = speed / target;
            assert!(
                (0.8..=1.2).contains(&share),
                "{share} of the target: {}",
                what(&replay)
            );
        }
    }
}
