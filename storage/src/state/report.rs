//! What a chunk has done so far: a report that is rewritten while it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::batch::WorkItem;
use super::document::{self, Document, FORMAT_VERSION};
use super::error::Result;
use super::{RunId, layout, limits};
use crate::store::Store;

pub use super::report_writer::ReportWriter;

/// Failures that a report names; all of them are in the chunk's lines.
pub const MAX_FAILURES: usize = 10;

/// How far a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChunkState {
    /// It runs, or its worker was killed: see `updated_at`.
    Running,
    /// Every shard is done or has failed; its lines are written.
    Done,
    /// Its worker was told to stop; what it published stands.
    Stopped,
    /// Its worker gave up; `reason` says why.
    Failed,
}

/// Numbers that add up over chunks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Shards published.
    pub shards_done: u64,
    /// Shards that failed.
    pub shards_failed: u64,
    /// Shards that were there already.
    pub shards_skipped: u64,
    /// Rows of the shards published.
    pub rows: u64,
    /// Rows that matched: found in an index, or filled from a sidecar.
    pub matched: u64,
    /// Bytes read from stores.
    pub bytes_read: u64,
    /// Bytes of the shards published.
    pub bytes_written: u64,
    /// Per column of the sidecar's own.
    #[serde(deserialize_with = "a_few::<_, _, { limits::COLUMNS }>")]
    pub columns: BTreeMap<String, ColumnCounts>,
    /// Rows whose image could not be judged, per reason.
    #[serde(
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "a_few::<_, _, { limits::REASONS }>"
    )]
    pub row_errors: BTreeMap<String, RowErrors>,
    /// Per source that was inferred; the key of rows without one is empty.
    #[serde(deserialize_with = "a_few::<_, _, { limits::SOURCES }>")]
    pub sources: BTreeMap<String, SourceCounts>,
    /// What people should know of the side inputs, ten at most.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub warnings: BTreeSet<String>,
    /// Wall time.
    pub seconds: Seconds,
    /// CPU time of the process, all threads.
    pub cpu_seconds: f64,
}

/// The values of a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ColumnCounts {
    /// Rows with a value.
    pub populated: u64,
    /// Rows without one.
    pub null: u64,
    /// Rows with an error, among those without a value or with one.
    pub error: u64,
}

/// Rows whose image could not be judged, for one reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowErrors {
    /// How many.
    pub rows: u64,
    /// The first of them by shard and row, [`MAX_FAILURES`] at most.
    pub first: Vec<RowExample>,
}

/// A row of a shard.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RowExample {
    /// Path of the shard.
    pub path: String,
    /// Number of the row, from 0.
    pub row: u64,
}

impl RowErrors {
    /// Adds rows, of which the first are named.
    pub fn add(&mut self, rows: u64, first: impl IntoIterator<Item = RowExample>) {
        self.rows += rows;
        self.first.extend(first);
        self.first.sort_unstable();
        self.first.truncate(MAX_FAILURES);
    }
}

/// The rows of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SourceCounts {
    /// Rows of this source.
    pub rows: u64,
    /// Of them, rows that matched.
    pub matched: u64,
}

impl ColumnCounts {
    /// Adds the values of other rows.
    pub fn add(&mut self, other: Self) {
        self.populated += other.populated;
        self.null += other.null;
        self.error += other.error;
    }
}

impl SourceCounts {
    /// Adds other rows.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.matched += other.matched;
    }
}

/// Where the wall time of a chunk went. `start` and `index_pass` are costs of a chunk that its
/// number of shards hardly changes; the rest grows with it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seconds {
    /// From the start of the process until the first shard could be taken: plan, lock, schemas.
    pub start: f64,
    /// Streaming the index past the chunk: reading it, and looking its keys up.
    pub index_pass: f64,
    /// Everything else: reading shards and their keys, computing, writing.
    pub shards: f64,
}

impl Counts {
    /// Adds the numbers of another chunk.
    pub fn add(&mut self, other: &Self) {
        self.shards_done += other.shards_done;
        self.shards_failed += other.shards_failed;
        self.shards_skipped += other.shards_skipped;
        self.rows += other.rows;
        self.matched += other.matched;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        for (name, counts) in &other.columns {
            self.columns.entry(name.clone()).or_default().add(*counts);
        }
        for (reason, errors) in &other.row_errors {
            let into = self.row_errors.entry(reason.clone()).or_default();
            into.add(errors.rows, errors.first.iter().cloned());
        }
        for (name, counts) in &other.sources {
            self.sources.entry(name.clone()).or_default().add(*counts);
        }
        self.warnings.extend(other.warnings.iter().cloned());
        while self.warnings.len() > MAX_FAILURES {
            self.warnings.pop_last();
        }
        self.seconds.start += other.seconds.start;
        self.seconds.index_pass += other.seconds.index_pass;
        self.seconds.shards += other.seconds.shards;
        self.cpu_seconds += other.cpu_seconds;
    }

    /// The share of rows that matched; `None` without rows.
    pub fn match_rate(&self) -> Option<f64> {
        ratio(self.matched, self.rows)
    }

    /// The share of rows without a value in `column`; `None` if nothing was counted.
    pub fn null_rate(&self, column: &str) -> Option<f64> {
        let counts = self.columns.get(column)?;
        ratio(counts.null, counts.populated + counts.null)
    }

    /// The column with the largest share of rows without a value, and that share.
    pub fn greatest_null_rate(&self) -> Option<(&str, f64)> {
        self.columns
            .keys()
            .filter_map(|name| Some((name.as_str(), self.null_rate(name)?)))
            .max_by(|(_, left), (_, right)| left.total_cmp(right))
    }

    /// Wall seconds that a chunk costs whatever its number of shards.
    pub fn fixed_seconds(&self) -> f64 {
        self.seconds.start + self.seconds.index_pass
    }

    /// Wall seconds that a worker needs for a shard beside the fixed cost of its chunk;
    /// `None` before the first.
    pub fn seconds_per_shard(&self) -> Option<f64> {
        let shards = self.shards_done + self.shards_failed;
        (shards > 0).then(|| self.seconds.shards / shards as f64)
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// A shard that failed, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Path of the shard.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// `chunks/<n>.json`: what a chunk has done so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkReport {
    /// Version of the format.
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// The chunk; of a work item its first.
    pub chunk: u64,
    /// The chunks of the work item; absent if it is one chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Range<u64>>,
    /// Number of the attempt at the item's batch, from 1; absent outside of batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How far it is.
    pub state: ChunkState,
    /// Who works on it: host or pod.
    pub worker: String,
    /// When the worker started.
    #[serde(with = "time::serde::rfc3339")]
    pub started_at: OffsetDateTime,
    /// When this report was written.
    #[serde(with = "time::serde::rfc3339")]
    pub updated_at: OffsetDateTime,
    /// Shards that the chunk has.
    pub shards_planned: u64,
    /// What was done.
    pub counts: Counts,
    /// The first failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Why the chunk failed or stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether no further attempt mends that: somebody has to change the manifest or an input.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_permanent: bool,
}

impl Document for ChunkReport {
    const WHAT: &'static str = "chunk report";
    const LIMIT: u64 = limits::REPORT;
}

impl ChunkReport {
    /// The report of a chunk that starts.
    pub fn new(
        run: RunId,
        digest: String,
        chunk: u64,
        worker: String,
        shards_planned: u64,
        now: OffsetDateTime,
    ) -> Self {
        let now = super::clock::to_milliseconds(now);
        Self {
            version: FORMAT_VERSION,
            run,
            digest,
            chunk,
            chunks: None,
            attempt: None,
            state: ChunkState::Running,
            worker,
            started_at: now,
            updated_at: now,
            shards_planned,
            counts: Counts::default(),
            failures: Vec::new(),
            reason: None,
            is_permanent: false,
        }
    }

    /// The report of a work item, `item`, in attempt `attempt` at its batch.
    #[must_use]
    pub fn of_item(mut self, item: WorkItem, attempt: u32) -> Self {
        self.chunk = item.first;
        self.chunks = Some(item.chunks());
        self.attempt = Some(attempt);
        self
    }

    /// The chunks that the report is about.
    pub fn range(&self) -> Range<u64> {
        self.chunks.clone().unwrap_or(self.chunk..self.chunk + 1)
    }

    /// Reads the report of a chunk; `None` if it hasn't started.
    ///
    /// # Errors
    /// If it can't be read, is of another version, or has more of anything than a worker writes.
    pub async fn read(store: &dyn Store, run: &RunId, chunk: u64) -> Result<Option<Self>> {
        let key = layout::chunk_report(run, chunk);
        let Some((_, report)) = document::read::<Self>(store, &key).await? else {
            return Ok(None);
        };
        report.check(&document::uri(store, &key))?;
        Ok(Some(report))
    }

    fn check(&self, file: &str) -> Result<()> {
        let counts = &self.counts;
        let examples = counts.row_errors.values().map(|errors| errors.first.len());
        let failures = self.failures.len().max(examples.max().unwrap_or(0));
        let names = counts.columns.keys().chain(counts.row_errors.keys());
        let names = names.chain(counts.sources.keys()).chain([&self.worker]);
        let examples = counts.row_errors.values().flat_map(|errors| &errors.first);
        let paths = examples.map(|row| &row.path);
        let paths = paths.chain(self.failures.iter().map(|failure| &failure.path));
        let reasons = self.failures.iter().map(|failure| &failure.reason);
        let longest = |texts: &mut dyn Iterator<Item = &String>| texts.map(String::len).max();
        for (found, limit, what) in [
            (counts.columns.len(), limits::COLUMNS, "columns"),
            (
                counts.row_errors.len(),
                limits::REASONS,
                "reasons of faults of rows",
            ),
            (counts.sources.len(), limits::SOURCES, "sources"),
            (failures, MAX_FAILURES, "examples of a fault"),
            (
                longest(&mut { names }).unwrap_or(0),
                limits::NAME,
                "bytes in a name",
            ),
            (
                longest(&mut { paths }).unwrap_or(0),
                limits::PATH,
                "bytes in a path",
            ),
            (
                longest(&mut reasons.chain(&self.reason)).unwrap_or(0),
                limits::REASON,
                "bytes in a reason",
            ),
        ] {
            if found > limit {
                let found = format!("{found} {what} or more");
                return Err(document::too_large(file, Self::WHAT, found, limit));
            }
        }
        Ok(())
    }

    /// Leaves out what no reader takes.
    pub(crate) fn trim(&mut self) {
        self.failures.truncate(MAX_FAILURES);
        for failure in &mut self.failures {
            limits::cut(&mut failure.path, limits::PATH);
            limits::cut(&mut failure.reason, limits::REASON);
        }
        limits::cut(&mut self.worker, limits::NAME);
        if let Some(reason) = &mut self.reason {
            limits::cut(reason, limits::REASON);
        }
        let counts = &mut self.counts;
        keep_few(&mut counts.columns, limits::COLUMNS);
        keep_few(&mut counts.row_errors, limits::REASONS);
        keep_few(&mut counts.sources, limits::SOURCES);
        for row in counts
            .row_errors
            .values_mut()
            .flat_map(|errors| &mut errors.first)
        {
            limits::cut(&mut row.path, limits::PATH);
        }
    }
}

fn keep_few<T>(counts: &mut BTreeMap<String, T>, limit: usize) {
    counts.retain(|name, _| name.len() <= limits::NAME);
    while counts.len() > limit {
        counts.pop_last();
    }
}

/// Takes in one entry more than the most there may be: enough to tell, whatever was written.
fn a_few<'de, D, T, const MOST: usize>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Few<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Few<T, MOST> {
        type Value = BTreeMap<String, T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("counts by name")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut taken = BTreeMap::new();
            while taken.len() <= MOST {
                match map.next_entry()? {
                    Some((name, value)) => taken.insert(name, value),
                    None => return Ok(taken),
                };
            }
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(taken)
        }
    }

    deserializer.deserialize_map(Few::<T, MOST>(PhantomData))
}
