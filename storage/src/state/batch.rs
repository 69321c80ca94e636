//! A batch: the work items that one Indexed Job does, one an index.
//!
//! A work item is a range of plan chunks; its first chunk names its report and its lines. The
//! items of a run never overlap. What an attempt at a batch has lost goes, as the same items,
//! into the next attempt.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::document::{self, Document, FORMAT_VERSION};
use super::error::Result;
use super::{RunId, layout, limits};
use crate::store::{PutCondition, Store};

/// A range of plan chunks, what one worker does. In JSON `[first, end]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "[u64; 2]", from = "[u64; 2]")]
pub struct WorkItem {
    /// The first chunk.
    pub first: u64,
    /// The chunk after the last.
    pub end: u64,
}

impl From<[u64; 2]> for WorkItem {
    fn from([first, end]: [u64; 2]) -> Self {
        Self { first, end }
    }
}

impl From<WorkItem> for [u64; 2] {
    fn from(item: WorkItem) -> Self {
        [item.first, item.end]
    }
}

impl From<Range<u64>> for WorkItem {
    fn from(chunks: Range<u64>) -> Self {
        Self {
            first: chunks.start,
            end: chunks.end,
        }
    }
}

impl WorkItem {
    /// The chunks.
    pub fn chunks(self) -> Range<u64> {
        self.first..self.end
    }

    /// How many chunks.
    pub fn len(self) -> u64 {
        self.end.saturating_sub(self.first)
    }

    /// Whether it holds no chunk. A batch has no such item.
    pub fn is_empty(self) -> bool {
        self.end <= self.first
    }
}

/// `batches/<batch>-<attempt>.json`: index i of the Job does `items[i]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batch {
    /// Version of the format.
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// Number of the batch, from 0.
    pub batch: u64,
    /// Number of the attempt at it, from 1.
    pub attempt: u32,
    /// The items, by ascending chunk.
    pub items: Vec<WorkItem>,
    /// Epoch of the writer lock when it was written; 0 if that isn't recorded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u64,
    /// Earlier attempts at these items that ended by themselves, and not because their Job was
    /// taken from them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tries: Option<u32>,
}

// The shape that serde asks for.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(epoch: &u64) -> bool {
    *epoch == 0
}

impl Document for Batch {
    const WHAT: &'static str = "batch of work items";
    const LIMIT: u64 = limits::BATCH;
}

impl Batch {
    /// A batch of these items.
    pub fn new(
        run: RunId,
        digest: String,
        batch: u64,
        attempt: u32,
        items: impl IntoIterator<Item = WorkItem>,
    ) -> Self {
        Self {
            version: FORMAT_VERSION,
            run,
            digest,
            batch,
            attempt,
            items: items.into_iter().collect(),
            epoch: 0,
            tries: None,
        }
    }

    /// Records what is needed to tell how often these items were tried.
    #[must_use]
    pub fn counting(mut self, epoch: u64, tries: u32) -> Self {
        self.epoch = epoch;
        self.tries = Some(tries);
        self
    }

    /// Reads the items of an attempt at a batch; `None` if they were never written.
    ///
    /// # Errors
    /// If the file can't be read, is of another version, run, batch or attempt, or has items
    /// that are empty or overlap.
    pub async fn read(
        store: &dyn Store,
        run: &RunId,
        batch: u64,
        attempt: u32,
    ) -> Result<Option<Self>> {
        let key = layout::batch(run, batch, attempt);
        let Some((_, found)) = document::read::<Self>(store, &key).await? else {
            return Ok(None);
        };
        let file = document::uri(store, &key);
        if found.run != *run || found.batch != batch || found.attempt != attempt {
            let detail = format!(
                "it has attempt {} at batch {} of run {}, expected attempt {attempt} at batch \
                 {batch} of run {run}",
                found.attempt, found.batch, found.run
            );
            return Err(document::malformed(&file, Self::WHAT, detail));
        }
        found.check(&file)?;
        Ok(Some(found))
    }

    /// Writes the batch before its Job is made, and returns the one that counts: a batch never
    /// changes, so one that was written before (by somebody who died since) stays.
    ///
    /// # Errors
    /// If it can't be written, or has items that are empty or overlap.
    pub async fn write(self, store: &dyn Store) -> Result<Self> {
        let key = layout::batch(&self.run, self.batch, self.attempt);
        self.check(&document::uri(store, &key))?;
        let bytes = document::encode(&key, &self)?;
        match document::put(store, &key, bytes, PutCondition::Create).await {
            Ok(_) => Ok(self),
            Err(error) if document::is_conflict(&error) => {
                match Self::read(store, &self.run, self.batch, self.attempt).await? {
                    Some(first) => Ok(first),
                    None => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The item of a Job's index.
    pub fn item(&self, index: u64) -> Option<WorkItem> {
        self.items.get(usize::try_from(index).ok()?).copied()
    }

    /// Whether it can be worked with; `file` is its name for messages.
    ///
    /// # Errors
    /// If it has items that are empty or overlap.
    pub fn check(&self, file: &str) -> Result<()> {
        let wrong = |detail: String| Err(document::malformed(file, Self::WHAT, detail));
        if let Some(item) = self.items.iter().find(|item| item.is_empty()) {
            return wrong(format!("item [{}, {}] is empty", item.first, item.end));
        }
        match self
            .items
            .windows(2)
            .find(|pair| pair[1].first < pair[0].end)
        {
            Some(pair) => wrong(format!(
                "item [{}, {}] comes after [{}, {}]: items ascend and do not overlap",
                pair[1].first, pair[1].end, pair[0].first, pair[0].end
            )),
            None => Ok(()),
        }
    }
}
