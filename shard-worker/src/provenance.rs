//! What a sidecar's footer says of its making.

use crate::encode::{CREATED_BY, FORMAT_VERSION, META_DIGEST, META_MAIN_FOOTER, META_VERSION};
use crate::parquet_file::ParquetFile;

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
        })
    }
}
