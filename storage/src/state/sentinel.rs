//! `_SUCCESS`: there is nothing left to do. Written last, removed first.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::document::{self, Document, FORMAT_VERSION};
use super::error::Result;
use super::{RunId, layout, limits};
use crate::store::Store;

/// `_SUCCESS`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentinel {
    /// Version of the format.
    pub version: u32,
    /// The run that finished.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// Shards below the prefix.
    pub shards: u64,
    /// Rows in them.
    pub rows: u64,
    /// When it finished.
    #[serde(with = "time::serde::rfc3339")]
    pub finished_at: OffsetDateTime,
    /// Lower-case hex SHA-256 of `manifest.json`.
    pub manifest_sha256: String,
}

impl Document for Sentinel {
    const WHAT: &'static str = "sentinel";
    const LIMIT: u64 = limits::SENTINEL;
}

impl Sentinel {
    /// The sentinel of a run that has finished.
    pub fn new(
        run: RunId,
        digest: String,
        shards: u64,
        rows: u64,
        finished_at: OffsetDateTime,
        manifest_sha256: String,
    ) -> Self {
        let finished_at = super::clock::to_milliseconds(finished_at);
        Self {
            version: FORMAT_VERSION,
            run,
            digest,
            shards,
            rows,
            finished_at,
            manifest_sha256,
        }
    }

    /// Reads the sentinel; `None` if there is none.
    ///
    /// # Errors
    /// If it can't be read, is of another version, or no sentinel. An empty `_SUCCESS`, as
    /// other tools write it, is none of ours and an error.
    pub async fn read(store: &dyn Store) -> Result<Option<Self>> {
        Ok(document::read(store, layout::SENTINEL)
            .await?
            .map(|(_, sentinel)| sentinel))
    }

    /// Writes the sentinel, after everything else.
    ///
    /// # Errors
    /// If it can't be written.
    pub async fn write(&self, store: &dyn Store) -> Result<()> {
        let bytes = document::encode(layout::SENTINEL, self)?;
        document::overwrite(store, layout::SENTINEL, bytes, None).await?;
        Ok(())
    }

    /// Removes the sentinel, before a run that found work writes anything.
    ///
    /// # Errors
    /// If it can't be removed.
    pub async fn remove(store: &dyn Store) -> Result<()> {
        Ok(store.delete(layout::SENTINEL, None).await?)
    }
}
