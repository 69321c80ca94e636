//! The plan: which shards belong to which chunk, in parts of a few chunks each.
//!
//! A chunk is a run of neighbours in the listing. A part holds a fixed number of chunks, so
//! that the part of a chunk follows from its number and a worker reads one part only.
//! A part's name has a hash of its bytes, and the summary, which is created once and never
//! replaced, names the hashes: of two planners that both take themselves for the holder of the
//! lock, one makes the plan, and nobody reads parts of both.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::document::{self, Document, FORMAT_VERSION};
use super::error::Result;
use super::lines::{LinesReader, LinesWriter};
use super::manifest::Totals;
use super::side_inputs::SideInput;
use super::{RunId, layout, limits};
use crate::error::Error;
use crate::store::{ETag, PutCondition, Store};

/// Chunks in a part, unless the planner chooses another number.
pub const CHUNKS_PER_PART: u64 = 16;

const WHAT: &str = "part of a plan";

/// Hexadecimal digits of the hash in a part's name.
const HASH_DIGITS: usize = 16;

/// First line of a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanHeader {
    /// Version of the format.
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// The chunks in this part: first, and first of the next part.
    pub chunks: Range<u64>,
}

/// A shard to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanLine {
    /// The chunk that the shard belongs to.
    pub chunk: u64,
    /// Path relative to the main prefix, and to the output prefix.
    pub path: String,
    /// Size of the main shard.
    pub size: u64,
    /// Version of the main shard.
    pub etag: ETag,
    /// Rows, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
    /// Versions of everything beside main that it is made from; absent if there is nothing, or
    /// the planner couldn't look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// What is there already below the output prefix; absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub existing: Option<Existing>,
}

/// An object in the place of a shard to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Existing {
    /// Its size.
    pub size: u64,
    /// Its version: it is replaced only if it still has it.
    pub etag: ETag,
    /// What to do about it.
    pub action: ExistingAction,
}

/// What to do about an object in the place of a shard to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExistingAction {
    /// Read its footer; that decides.
    Check,
    /// Replace it.
    Replace,
    /// Replace it if its bytes are the beginning of the new shard's.
    Prove,
}

/// `plan.json`: what the parts hold together. Written after them: a plan without it isn't whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanSummary {
    /// Version of the format.
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// When the plan was made.
    #[serde(with = "time::serde::rfc3339")]
    pub planned_at: OffsetDateTime,
    /// Chunks, numbered from 0.
    pub chunks: u64,
    /// Chunks in each part but the last.
    pub chunks_per_part: u64,
    /// Parts, numbered from 0.
    pub parts: u64,
    /// The hash in the name of each part: the first digits of a SHA-256.
    /// None in plans of former releases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub part_hashes: Vec<String>,
    /// Shards to make or to check.
    pub shards: u64,
    /// Bytes of their main shards.
    pub bytes: u64,
    /// Rows of a shard, estimated from footers that were sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_per_shard: Option<f64>,
    /// Digests of earlier pipelines whose shards this run replaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
    /// What is in place already and stays; its shards are in no chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Totals>,
    /// The side inputs that are looked up by key, as the planner found them: workers that find
    /// others make nothing. Absent if the planner couldn't look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side_inputs: Option<Vec<SideInput>>,
}

impl Document for PlanSummary {
    const WHAT: &'static str = "plan summary";
    const LIMIT: u64 = limits::PLAN_SUMMARY;
}

impl PlanSummary {
    /// Reads the summary; `None` if the plan isn't whole.
    ///
    /// # Errors
    /// If it can't be read, is of another run or version, or doesn't name each part.
    pub async fn read(store: &dyn Store, run: &RunId) -> Result<Option<Self>> {
        let key = layout::plan_summary(run);
        let Some((_, summary)) = document::read::<Self>(store, &key).await? else {
            return Ok(None);
        };
        let broken = |detail| {
            let file = document::uri(store, &key);
            Err(document::malformed(&file, Self::WHAT, detail))
        };
        if summary.run != *run {
            return broken(format!("it is of run {}", summary.run));
        }
        let named = summary.part_hashes.len() as u64;
        if named > 0 && named != summary.parts {
            return broken(format!("it has {} parts and names {named}", summary.parts));
        }
        let is_hash = |hash: &&String| {
            hash.len() == HASH_DIGITS && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        if let Some(hash) = summary.part_hashes.iter().find(|hash| !is_hash(hash)) {
            return broken(format!("{hash:?} is no hash of a part"));
        }
        Ok(Some(summary))
    }

    /// Where part `number` is.
    pub fn part_key(&self, number: u64) -> String {
        layout::plan_part(&self.run, number, self.part_hash(number))
    }

    fn part_hash(&self, number: u64) -> Option<&str> {
        let number = usize::try_from(number).ok()?;
        self.part_hashes.get(number).map(String::as_str)
    }
}

/// Makes a plan, and holds its parts, compressed, until they are written: a plan may be made while
/// the prefix is only claimed, and nothing may be written before it is held. Who holds it already
/// writes the parts as they are finished, so that memory does not grow with the plan.
pub struct PlanWriter {
    store: Arc<dyn Store>,
    run: RunId,
    digest: String,
    chunks_per_part: u64,
    part: Option<(u64, LinesWriter)>,
    finished: Vec<(String, Vec<u8>)>,
    summary: PlanSummary,
}

impl PlanWriter {
    /// Begins a plan with [`CHUNKS_PER_PART`] chunks a part.
    pub fn new(store: Arc<dyn Store>, run: RunId, digest: String) -> Self {
        Self::with_chunks_per_part(store, run, digest, CHUNKS_PER_PART)
    }

    /// Begins a plan.
    pub fn with_chunks_per_part(
        store: Arc<dyn Store>,
        run: RunId,
        digest: String,
        chunks_per_part: u64,
    ) -> Self {
        let chunks_per_part = chunks_per_part.max(1);
        let summary = PlanSummary {
            version: FORMAT_VERSION,
            run: run.clone(),
            digest: digest.clone(),
            planned_at: OffsetDateTime::UNIX_EPOCH,
            chunks: 0,
            chunks_per_part,
            parts: 0,
            part_hashes: Vec::new(),
            shards: 0,
            bytes: 0,
            rows_per_shard: None,
            replaces: Vec::new(),
            kept: None,
            side_inputs: None,
        };
        Self {
            store,
            run,
            digest,
            chunks_per_part,
            part: None,
            finished: Vec::new(),
            summary,
        }
    }

    /// What the summary says beside what is counted: estimated rows of a shard, digests whose
    /// shards are replaced, and what is in place and stays. May be told at any time.
    pub fn describe(
        &mut self,
        rows_per_shard: Option<f64>,
        replaces: Vec<String>,
        kept: Option<Totals>,
    ) {
        self.summary.rows_per_shard = rows_per_shard;
        self.summary.replaces = replaces;
        self.summary.kept = kept;
    }

    /// Says what the side inputs are, as they were found.
    pub fn pin(&mut self, side_inputs: Option<Vec<SideInput>>) {
        self.summary.side_inputs = side_inputs;
    }

    /// Adds a shard; writes nothing. Chunks come in ascending order, none is left out.
    ///
    /// # Errors
    /// If a part can't be encoded, or a chunk comes out of order.
    pub fn push(&mut self, line: &PlanLine) -> Result<()> {
        let number = line.chunk / self.chunks_per_part;
        let is_new_chunk = line.chunk == self.summary.chunks;
        if !is_new_chunk && line.chunk + 1 != self.summary.chunks {
            let file = document::uri(&*self.store, &self.unfinished(number));
            let detail = format!(
                "chunk {} can't follow when there are {} chunks",
                line.chunk, self.summary.chunks
            );
            return Err(document::malformed(&file, WHAT, detail));
        }
        if self.part.as_ref().is_none_or(|(open, _)| *open != number) {
            self.flush()?;
            self.part = Some((number, self.begin(number)?));
        }
        if let Some((_, writer)) = &mut self.part {
            writer.push(line)?;
        }
        self.summary.chunks += u64::from(is_new_chunk);
        self.summary.shards += 1;
        self.summary.bytes += line.size;
        Ok(())
    }

    /// Writes the parts that are finished so far, and lets go of them; for the holder of the lock.
    ///
    /// # Errors
    /// If they can't be written.
    pub async fn write_finished(&mut self) -> Result<()> {
        for (key, bytes) in self.finished.drain(..) {
            document::overwrite(&*self.store, &key, bytes, None).await?;
        }
        Ok(())
    }

    /// Writes the parts that are left, and the summary, and returns the summary that is there
    /// then: of another planner of the same run, if that was whole first.
    ///
    /// # Errors
    /// If they can't be written.
    pub async fn finish(mut self, now: OffsetDateTime) -> Result<PlanSummary> {
        self.flush()?;
        self.write_finished().await?;
        self.summary.planned_at = super::clock::to_milliseconds(now);
        let key = layout::plan_summary(&self.run);
        let bytes = document::encode(&key, &self.summary)?;
        match document::put(&*self.store, &key, bytes, PutCondition::Create).await {
            Ok(_) => Ok(self.summary),
            Err(error) if document::is_conflict(&error) => {
                let other = PlanSummary::read(&*self.store, &self.run).await?;
                other.ok_or_else(|| error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn begin(&self, number: u64) -> Result<LinesWriter> {
        let first = number * self.chunks_per_part;
        let header = PlanHeader {
            version: FORMAT_VERSION,
            run: self.run.clone(),
            digest: self.digest.clone(),
            chunks: first..first + self.chunks_per_part,
        };
        LinesWriter::new(&self.unfinished(number), WHAT, limits::PLAN_PART, &header)
    }

    fn flush(&mut self) -> Result<()> {
        let Some((number, writer)) = self.part.take() else {
            return Ok(());
        };
        let bytes = writer.finish()?;
        self.summary.part_hashes.push(hash_of(&bytes));
        self.finished.push((self.summary.part_key(number), bytes));
        self.summary.parts = number + 1;
        Ok(())
    }

    /// The name of a part whose hash isn't known yet, for messages.
    fn unfinished(&self, number: u64) -> String {
        layout::plan_part(&self.run, number, None)
    }
}

fn hash_of(part: &[u8]) -> String {
    let mut hash = document::sha256(part);
    hash.truncate(HASH_DIGITS);
    hash
}

/// Reads the lines of a part, or of some of its chunks; holds the compressed bytes of the part.
pub struct PlanReader {
    header: PlanHeader,
    lines: LinesReader,
    chunks: Range<u64>,
}

impl PlanReader {
    /// Reads the lines of the chunks of a range, one part after the other; holds them and one
    /// part.
    ///
    /// # Errors
    /// If the plan lacks a part of the range, one can't be read, isn't what the summary names, is
    /// of another run or version, or a chunk of the range has no line.
    pub async fn read_range(
        store: &dyn Store,
        plan: &PlanSummary,
        chunks: Range<u64>,
    ) -> Result<Vec<PlanLine>> {
        let per_part = plan.chunks_per_part.max(1);
        let mut lines: Vec<PlanLine> = Vec::new();
        let mut next = chunks.start;
        while next < chunks.end {
            let number = next / per_part;
            let end = chunks.end.min((number + 1).saturating_mul(per_part));
            let mut reader = Self::open(store, plan, number, next..end).await?;
            let mut expected = next;
            while let Some(line) = reader.next_line()? {
                let begins_next = line.chunk == expected;
                expected += u64::from(begins_next);
                lines.push(line);
            }
            if expected != end {
                let file = document::uri(store, &plan.part_key(number));
                let detail = format!("it ends before chunk {expected} of chunks {next} to {end}");
                return Err(document::malformed(&file, WHAT, detail));
            }
            next = end;
        }
        Ok(lines)
    }

    /// Opens a whole part.
    ///
    /// # Errors
    /// If the plan has no such part, it can't be read, isn't what the summary names or is of
    /// another version.
    pub async fn open_part(store: &dyn Store, plan: &PlanSummary, number: u64) -> Result<Self> {
        Self::open(store, plan, number, 0..u64::MAX).await
    }

    async fn open(
        store: &dyn Store,
        plan: &PlanSummary,
        number: u64,
        chunks: Range<u64>,
    ) -> Result<Self> {
        let (run, key) = (&plan.run, plan.part_key(number));
        let file = document::uri(store, &key);
        let limit = limits::PLAN_PART;
        let Some((_, bytes)) = document::read_bytes(store, &key, WHAT, limit.file).await? else {
            return Err(Error::NotFound { uri: file }.into());
        };
        if let Some(expected) = plan.part_hash(number)
            && hash_of(&bytes) != expected
        {
            let detail = "its bytes are not those that its name and the plan's summary tell of";
            return Err(document::malformed(&file, WHAT, detail));
        }
        let (header, lines) = LinesReader::open::<PlanHeader>(&file, WHAT, limit, bytes)?;
        let is_right =
            header.run == *run && (chunks.end == u64::MAX || header.chunks.contains(&chunks.start));
        if !is_right {
            let detail = format!(
                "it holds chunks {:?} of run {}, expected chunk {} of run {run}",
                header.chunks, header.run, chunks.start
            );
            return Err(document::malformed(&file, WHAT, detail));
        }
        Ok(Self {
            header,
            lines,
            chunks,
        })
    }

    /// The header of the part.
    pub fn header(&self) -> &PlanHeader {
        &self.header
    }

    /// The next shard; `None` at the end of the chunk (or part).
    ///
    /// # Errors
    /// If the part is damaged.
    pub fn next_line(&mut self) -> Result<Option<PlanLine>> {
        while let Some(line) = self.lines.next::<PlanLine>()? {
            if line.chunk >= self.chunks.end {
                break;
            }
            if line.chunk >= self.chunks.start {
                return Ok(Some(line));
            }
        }
        Ok(None)
    }
}
