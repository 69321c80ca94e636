//! What work items cost, and how many shards one should have.

/// Most shards of an item.
pub const MOST_SHARDS_OF_AN_ITEM: u64 = 20_000;

/// Shards of an item before any speed is known.
pub const FIRST_SHARDS_OF_AN_ITEM: u64 = 100;

/// Items that every worker should find, so that all end at about the same time.
const ITEMS_A_WORKER: u64 = 4;

/// A fixed cost is to be a tenth of an item at most, also where it was measured a quarter too
/// small: the shards cost twelve times as much.
const SHARDS_TO_FIXED_COST: f64 = 12.0;

/// A fixed cost of a fortieth of an item is a small one.
const SHARDS_TO_SMALL_COST: f64 = 39.0;

/// Items whose sizes differ less than this, as a standard deviation by their mean, don't tell
/// what grows with the size.
const LEAST_SPREAD: f64 = 0.5;

/// An item this many times as large as the largest that was measured is a guess.
const FORESEEABLE: u64 = 16;

/// What was measured of the cost of work, in seconds of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Of an item, whatever its number of shards; 0 if not known.
    pub fixed: f64,
    /// Of a shard, on top; 0 if not known.
    pub shard: f64,
}

impl Cost {
    /// Shards a second of one worker that does items of `shards`; `None` if not known.
    pub fn speed(self, shards: u64) -> Option<f64> {
        let speed = 1.0 / (self.shard + self.fixed / shards.max(1) as f64);
        (self.shard > 0.0 && speed.is_finite()).then_some(speed)
    }
}

/// What the items so far have cost, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ItemCosts {
    items: u64,
    largest: u64,
    shards: f64,
    shards_squared: f64,
    seconds: f64,
    shards_by_seconds: f64,
    worked: u64,
    shard_seconds: f64,
}

impl ItemCosts {
    /// Adds an item of `shards` whose start and index pass took `seconds`, and which has spent
    /// `shard_seconds` on the `worked` shards that it has done so far. An item that makes no
    /// sense, or has done nothing yet, says nothing.
    pub fn add(&mut self, shards: u64, seconds: f64, worked: u64, shard_seconds: f64) {
        let is_sound = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
        if worked == 0 || !is_sound(seconds) || !is_sound(shard_seconds) {
            return;
        }
        let size = shards.max(worked);
        self.items += 1;
        self.largest = self.largest.max(size);
        let size = size as f64;
        self.shards += size;
        self.shards_squared += size * size;
        self.seconds += seconds;
        self.shards_by_seconds += size * seconds;
        self.worked += worked;
        self.shard_seconds += shard_seconds;
    }

    /// The cost of a shard on its own, without what passes over an index take.
    pub fn of_a_shard(&self) -> Cost {
        Cost {
            fixed: 0.0,
            shard: self.shard_seconds / self.worked.max(1) as f64,
        }
    }

    /// The cost of an item and of a shard. A pass over an index takes the longer the more keys it
    /// finds: what grows with the size of an item, by the least-squares line through the items, is
    /// a cost of its shards, and no larger item makes up for it.
    pub fn cost(&self) -> Cost {
        if self.items == 0 {
            return Cost::default();
        }
        let items = self.items as f64;
        let (size, seconds) = (self.shards / items, self.seconds / items);
        let variance = self.shards_squared / items - size * size;
        let covariance = self.shards_by_seconds / items - size * seconds;
        let growth = if variance.max(0.0).sqrt() >= LEAST_SPREAD * size {
            (covariance / variance).clamp(0.0, seconds / size)
        } else {
            0.0
        };
        Cost {
            fixed: (seconds - growth * size).max(0.0),
            shard: self.of_a_shard().shard + growth,
        }
    }

    /// Whether an item of about so many shards was measured.
    pub fn knows(&self, shards: u64) -> bool {
        shards / 2 <= self.largest
    }

    /// Whether items of so many shards hold no surprise: they are not much larger than some that
    /// were measured, or their fixed cost is so small beside them that it may well be more. Where
    /// nothing was measured there is nothing to foresee from, and nothing to wait for.
    pub fn foresees(&self, shards: u64) -> bool {
        let cost = self.cost();
        shards <= self.largest.saturating_mul(FORESEEABLE)
            || cost.fixed * SHARDS_TO_SMALL_COST <= cost.shard * shards as f64
    }
}

/// Shards of an item, such that an item takes about `item_seconds` and every one of `workers`
/// finds a few of the `left` shards, but a fixed cost is at most a tenth of it.
pub fn shards_per_item(cost: Cost, item_seconds: f64, left: u64, workers: u32) -> u64 {
    let by_time = if cost.shard > 0.0 && item_seconds.is_finite() {
        (item_seconds / cost.shard).floor() as u64
    } else {
        FIRST_SHARDS_OF_AN_ITEM
    };
    let to_go_round = left / (ITEMS_A_WORKER * u64::from(workers.max(1)));
    by_time
        .min(to_go_round.max(1))
        .clamp(least_shards_per_item(cost), MOST_SHARDS_OF_AN_ITEM)
}

/// The smallest item whose fixed cost is surely at most a tenth of it.
pub fn least_shards_per_item(cost: Cost) -> u64 {
    if cost.shard > 0.0 {
        let shards = SHARDS_TO_FIXED_COST * cost.fixed / cost.shard;
        (shards.ceil() as u64).clamp(1, MOST_SHARDS_OF_AN_ITEM)
    } else {
        1
    }
}
