//! The bucket: shards, the writer lock of each prefix, and the files of runs.

use std::collections::{BTreeMap, BTreeSet};

use operator::model::{Item, PlanTotals};

/// The writer lock: a register.
#[derive(Clone, Debug, Default)]
pub struct Lock {
    /// Who holds it, by uid; `None` once released.
    pub holder: Option<String>,
    pub run: String,
    pub epoch: u64,
    /// When it was renewed last.
    pub renewed_ms: i64,
}

/// For how long a lock counts without a renewal.
const LIFETIME_MS: i64 = 75_000;

impl Lock {
    /// Whether anybody may take it.
    pub fn is_free(&self, now_ms: i64) -> bool {
        self.holder.is_none() || now_ms - self.renewed_ms > LIFETIME_MS
    }
}

/// The file of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchFile {
    pub items: Vec<Item>,
    pub epoch: u64,
    pub tries: u32,
}

/// The report of an item.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub item: Item,
    pub batch: u32,
    pub attempt: u32,
    /// Chunks that are done, and chunks that failed for a reason of their own.
    pub done: BTreeSet<u64>,
    pub failed: BTreeSet<u64>,
    /// Whether the worker came to its end.
    pub is_whole: bool,
}

/// What a run keeps beside the output.
#[derive(Clone, Debug, Default)]
pub struct RunFiles {
    pub digest: String,
    /// The shard of each chunk, once planned.
    pub plan: Option<Vec<u64>>,
    pub totals: PlanTotals,
    pub batches: BTreeMap<(u32, u32), BatchFile>,
    pub reports: BTreeMap<u64, Report>,
}

/// An output prefix.
#[derive(Clone, Debug, Default)]
pub struct Prefix {
    pub lock: Lock,
    /// Digest of the pipeline of each shard that is there.
    pub shards: BTreeMap<u64, String>,
    pub runs: BTreeMap<String, RunFiles>,
    pub has_sentinel: bool,
}

/// Rows of a shard, and how many of them match.
pub const ROWS: u64 = 512;
pub const MATCHED: u64 = 500;

impl Prefix {
    /// Makes the plan of a run, unless it is there. `Err`: shards of another pipeline.
    pub fn plan(
        &mut self,
        run: &str,
        shards: u64,
        replaces: &[String],
        skip_existing: bool,
    ) -> Result<PlanTotals, String> {
        let files = self
            .runs
            .get_mut(run)
            .expect("a run is frozen before it is planned");
        if files.plan.is_some() {
            return Ok(files.totals.clone());
        }
        let mut todo = Vec::new();
        for shard in 0..shards {
            match self.shards.get(&shard) {
                Some(digest) if *digest == files.digest && skip_existing => {}
                Some(digest) if *digest == files.digest => {
                    self.shards.remove(&shard);
                    todo.push(shard);
                }
                Some(digest) if replaces.contains(digest) => {
                    self.shards.remove(&shard);
                    todo.push(shard);
                }
                Some(_) => return Err(format!("shard {shard} is of another pipeline")),
                None => todo.push(shard),
            }
        }
        let kept = shards - todo.len() as u64;
        files.totals = PlanTotals {
            shards,
            todo: todo.len() as u64,
            kept,
            kept_rows: kept * ROWS,
            kept_matched: kept * MATCHED,
            bytes: 0,
            rows_per_shard: ROWS as f64,
        };
        files.plan = Some(todo);
        self.has_sentinel = false;
        Ok(files.totals.clone())
    }
}
