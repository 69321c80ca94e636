//! What a sidecar's footer says of its making.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::encode::{
    self, CREATED_BY, FORMAT_VERSION, META_COUNTS, META_DIGEST, META_MAIN_FOOTER, META_VERSION,
};
use crate::parquet_file::ParquetFile;

/// What a footer says of its rows: as much as the manifest's line for the shard. A function of
/// the shard's inputs, like its bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardCounts {
    /// Rows that matched.
    pub matched: u64,
    /// Rows without a value, per column of the sidecar's own.
    pub nulls: BTreeMap<String, u64>,
}

impl ShardCounts {
    /// The counts of a shard.
    pub fn new(matched: u64, columns: &[encode::ColumnCounts]) -> Self {
        let nulls = columns
            .iter()
            .map(|column| (column.name.clone(), column.null));
        Self {
            matched,
            nulls: nulls.collect(),
        }
    }

    /// As the footer has it.
    pub fn to_json(&self) -> String {
        serde_json::json!(self).to_string()
    }
}

/// Provenance of a sidecar shard. The same for every run and machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provenance {
    /// Digest of the pipeline.
    pub digest: String,
    /// Hash of the footer of the main shard that it was made from.
    pub main_footer_sha256: String,
    /// Whether this tool wrote the file as it is: others that rewrite a file carry its
    /// metadata along.
    pub written_by_us: bool,
    /// What it says of its rows; zeros if it says nothing.
    pub counts: ShardCounts,
}

impl Provenance {
    /// Reads the provenance; `None` if the file has none of a known version.
    pub fn of(file: &ParquetFile) -> Option<Self> {
        let metadata = file.metadata.file_metadata();
        let pairs = metadata.key_value_metadata()?;
        let get = |key: &str| {
            pairs
                .iter()
                .find(|pair| pair.key == key)
                .and_then(|pair| pair.value.clone())
        };
        if get(META_VERSION)? != FORMAT_VERSION {
            return None;
        }
        Some(Self {
            digest: get(META_DIGEST)?,
            main_footer_sha256: get(META_MAIN_FOOTER)?,
            written_by_us: metadata.created_by() == Some(CREATED_BY),
            counts: get(META_COUNTS)
                .and_then(|counts| serde_json::from_str(&counts).ok())
                .unwrap_or_default(),
        })
    }
}
