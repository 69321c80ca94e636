//! What the background work on one output prefix (lock, plan, progress, seal) is known to have
//! done. A snapshot of plain values; a new one whenever something changed.

use std::collections::BTreeMap;

use crate::sizing::ItemCosts;

/// A range `[first, end)` of the plan's chunks: what one Job index does.
pub type Item = (u64, u64);

/// What is known of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunFacts {
    /// The run that this is about.
    pub run: String,
    /// The writer lock.
    pub lock: LockFacts,
    /// The plan.
    pub plan: PlanFacts,
    /// The batches whose files are beside the output, in order of their numbers; empty until
    /// `batches_loaded`.
    pub batches: Vec<BatchFacts>,
    /// Whether the files of batches, and the reports of their items, were read since the operator
    /// started.
    pub batches_loaded: bool,
    /// Progress, over all items.
    pub progress: ProgressFacts,
    /// Verification and seal.
    pub seal: SealFacts,
    /// Items, by their first chunks, whose reports have stood still for so long that a worker that
    /// is at one of them must be hung.
    pub silent: Vec<u64>,
    /// Trouble with the store that is being retried, in words with the way out.
    pub trouble: Option<String>,
}

/// How the writer lock stands.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum LockFacts {
    /// Not asked for.
    #[default]
    Idle,
    /// Being asked for.
    Acquiring,
    /// Held.
    Held {
        /// The fencing number that workers carry.
        epoch: u64,
    },
    /// Somebody else holds it, the prefix above it or one inside it; asked for again regularly.
    Waiting {
        /// Who, in words.
        holder: String,
    },
    /// It was held and somebody took over.
    Lost {
        /// Who, in words.
        by: String,
    },
    /// Given up.
    Released,
}

/// How the plan stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum PlanFacts {
    /// None was asked for.
    #[default]
    None,
    /// Being made.
    Going {
        /// Main shards seen so far.
        listed: u64,
    },
    /// Made, and written beside the output.
    Made(PlanTotals),
    /// Refused for a reason that no retry mends; in words with the way out.
    Refused {
        /// Reason word, such as `PrefixConflict` or `NoShards`. `AccessDenied` may be granted yet,
        /// and what `BucketNotFound` or `StoreUnusable` is about be mended: the run waits.
        /// Everything else ends the run.
        reason: String,
        /// In words.
        message: String,
    },
}

/// What a plan holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlanTotals {
    /// Main shards.
    pub shards: u64,
    /// Shards to make: the plan's chunks.
    pub todo: u64,
    /// Shards that are in place and right.
    pub kept: u64,
    /// Rows of those, where known.
    pub kept_rows: u64,
    /// Rows of those that matched, where known.
    pub kept_matched: u64,
    /// Bytes of main shards to do.
    pub bytes: u64,
    /// Rows of a shard, on average over sampled footers; 0 if none could be read.
    pub rows_per_shard: f64,
}

/// A batch: the items of one Job, and the attempts at them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchFacts {
    /// Its number, from 0.
    pub batch: u32,
    /// The attempts whose files are there, oldest first.
    pub attempts: Vec<AttemptFacts>,
    /// The items that have failed as a whole.
    pub given_up: GivenUpItems,
}

/// Items of a batch that no further attempt will have: those whose workers said that none would
/// help, and those that a later attempt was made without, as they had been tried often enough.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GivenUpItems {
    /// The items, in ascending order.
    pub items: Vec<Item>,
    /// Why, in the words of the first worker that said so.
    pub reason: Option<String>,
    /// Whether some worker said that no further attempt would help (exit 2).
    pub is_permanent: bool,
}

/// An attempt at a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AttemptFacts {
    /// Its number, from 1.
    pub attempt: u32,
    /// Its items, in order of the Job's index.
    pub items: Vec<Item>,
    /// The epoch that its file records; 0 if it records none.
    pub epoch: u64,
    /// The earlier attempts at its items that ended by themselves, as its file records them;
    /// `None` if it doesn't: then all earlier ones count.
    pub tries: Option<u32>,
    /// Whether any worker of it has ever reported.
    pub was_seen: bool,
    /// Items that have ended for good so far (every shard done or failed for its own reason, or its
    /// worker said that no further attempt would help).
    pub ended: u32,
    /// What became of it; only once asked for, after its Job ended or went.
    pub settled: Option<Settled>,
}

/// What became of an attempt, by the reports beside the output, whatever its Job says.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Settled {
    /// Items that have not ended.
    pub lost: Vec<Item>,
    /// Shards of those that are neither done nor failed for a reason of their own, by the reports.
    pub lost_shards: u64,
    /// Why items were lost: in the words of a worker that could say so, else how workers died.
    pub reason: Option<String>,
    /// When that was found, in milliseconds since the epoch of Unix.
    pub at_ms: i64,
}

/// Progress, summed over all items of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProgressFacts {
    /// Shards published by this run or found in place by its workers.
    pub done: u64,
    /// Shards that failed for a reason of their own.
    pub failed: u64,
    /// Rows of the shards that are done.
    pub rows: u64,
    /// Rows that matched.
    pub matched: u64,
    /// Rows without a value, and rows counted, by column.
    pub nulls: BTreeMap<String, (u64, u64)>,
    /// Rows without a value because of the row's own fault, by reason.
    pub row_errors: BTreeMap<String, u64>,
    /// What items and shards have cost.
    pub costs: ItemCosts,
    /// Shards that were finished within the last window, and its length in seconds; 0 seconds
    /// before there is one.
    pub window_shards: u64,
    /// Rows of those.
    pub window_rows: u64,
    /// Length of the window.
    pub window_seconds: f64,
    /// Workers that were at it at a time within the window, on average.
    pub window_workers: f64,
    /// When a shard was last finished, in milliseconds since the epoch of Unix.
    pub last_progress_ms: Option<i64>,
    /// What people should know of the side inputs, ten sentences at most.
    pub warnings: Vec<String>,
    /// The first failed shards by path, ten at most.
    pub failures: Vec<FailureNote>,
}

/// A failed shard.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FailureNote {
    /// Its path.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// How verification and seal stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum SealFacts {
    /// Not asked for.
    #[default]
    None,
    /// The output is being listed against the plan.
    Going {
        /// Shards checked so far.
        checked: u64,
    },
    /// The manifest is written, and the sentinel if the output is whole.
    Sealed(SealTotals),
    /// The output does not hold what reports said: these items have to be done again. The first
    /// attempt that is started after it was found takes it back to `None`.
    Missing {
        /// The items.
        items: Vec<Item>,
        /// In words: how many, and the first.
        message: String,
    },
}

/// What a seal counted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SealTotals {
    /// Shards in the output.
    pub shards: u64,
    /// Shards that failed.
    pub failed: u64,
    /// Rows.
    pub rows: u64,
    /// Rows that matched.
    pub matched: u64,
    /// Object that lists every failed shard; `None` if none failed.
    pub failure_report: Option<String>,
    /// The first failed shards, ten at most.
    pub failures: Vec<FailureNote>,
}
