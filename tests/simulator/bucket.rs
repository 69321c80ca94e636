//! The bucket: shards, the writer lock of each prefix, and the files of runs.

use std::collections::BTreeMap;

use rules::model::PlanTotals;
use storage::ETag;
use storage::state::batch::Batch;
use storage::state::report::ChunkReport;

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

/// What a worker has recorded of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Done,
    Failed,
}

/// What a run keeps beside the output.
#[derive(Clone, Debug, Default)]
pub struct RunFiles {
    pub digest: String,
    /// The shard of each chunk, once planned.
    pub plan: Option<Vec<u64>>,
    pub totals: PlanTotals,
    pub batches: BTreeMap<(u32, u32), Batch>,
    /// By first chunk.
    reports: BTreeMap<u64, (ETag, ChunkReport)>,
    /// By chunk.
    pub lines: BTreeMap<u64, Line>,
    writes: u64,
}

impl RunFiles {
    pub fn of(digest: &str) -> Self {
        Self {
            digest: digest.to_owned(),
            ..Self::default()
        }
    }

    pub fn report(&mut self, report: ChunkReport) {
        self.writes += 1;
        let etag = ETag(self.writes.to_string().into());
        self.reports.insert(report.chunk, (etag, report));
    }

    pub fn report_of(&self, first: u64) -> Option<&(ETag, ChunkReport)> {
        self.reports.get(&first)
    }
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
