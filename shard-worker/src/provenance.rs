//! What a sidecar's footer says of its making.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::encode::{self, CREATED_BY};
use crate::job::Job;
use crate::parquet_file::ParquetFile;
use storage::state::diff::FooterFinding;

/// Version of the sidecar format: what the footer's metadata says and how it is encoded.
pub const FORMAT_VERSION: &str = "1";
/// Key of the format version in the footer.
pub const META_VERSION: &str = "sidecarjob.version";
/// Key of the pipeline digest in the footer.
pub const META_DIGEST: &str = "sidecarjob.digest";
/// Key of the hash of main's footer in the footer.
pub const META_MAIN_FOOTER: &str = "sidecarjob.main_footer_sha256";

/// Footer metadata: how many rows matched, and how many lack a value, per column; as JSON. What
/// a run that is resumed knows of a shard whose line was lost.
pub const META_COUNTS: &str = "sidecarjob.counts";
/// Footer metadata: what the shard was made from beside main, as JSON; absent if that is nothing.
pub const META_INPUTS: &str = "sidecarjob.side_inputs";

/// How a Parquet file begins and ends.
pub const MAGIC: &[u8; 4] = b"PAR1";
/// The end of a Parquet file whose footer is encrypted.
const ENCRYPTED_MAGIC: &[u8; 4] = b"PARE";
/// Bytes at the end of a file that are searched for what is left of our footer: provenance is
/// the last that a footer holds.
pub const REMAINS: u64 = 64 << 10;

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
    /// What it was made from beside main; `None` if it doesn't say.
    pub inputs: Option<ShardInputs>,
}

/// What a shard was made from beside main, told by content alone: no version of a store goes into
/// a footer, so that the bytes are the same wherever the inputs lie.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardInputs {
    /// Side inputs that are looked up by key, in the order of the pipeline.
    pub keyed: Vec<KeyedInput>,
    /// Siblings in the order of the pipeline; null where there was none.
    pub siblings: Vec<Option<SiblingInput>>,
}

/// A side input that is looked up by key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedInput {
    /// As the manifest names it.
    pub uri: String,
    /// How many files are used of it.
    pub files: u64,
    /// Bytes of them.
    pub size: u64,
    /// Hash of what tells their content.
    pub sha256: String,
}

/// A sibling of the main shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiblingInput {
    /// Its prefix, as the manifest names it.
    pub uri: String,
    /// Its size.
    pub size: u64,
    /// Hash of its footer.
    pub footer_sha256: String,
}

impl ShardInputs {
    /// What is beside the main shard with these siblings.
    pub fn of(job: &Job, siblings: &[Option<ParquetFile>]) -> Self {
        let keyed = job.keyed.iter().map(|input| KeyedInput {
            uri: input.uri.clone(),
            files: input.files,
            size: input.size,
            sha256: input.sha256.clone(),
        });
        let siblings = job.siblings.iter().zip(siblings).map(|(sibling, file)| {
            file.as_ref().map(|file| SiblingInput {
                uri: sibling.uri.clone(),
                size: file.meta.size,
                footer_sha256: file.footer_sha256.clone(),
            })
        });
        Self {
            keyed: keyed.collect(),
            siblings: siblings.collect(),
        }
    }

    /// As the footer has it; `None` if there is nothing.
    pub fn to_json(&self) -> Option<String> {
        let is_empty = self.keyed.is_empty() && self.siblings.is_empty();
        (!is_empty).then(|| serde_json::json!(self).to_string())
    }

    /// The first input that is another one `now`, with both versions in words.
    pub fn difference(&self, now: &Self) -> Option<String> {
        if self == now {
            return None;
        }
        let keyed = self.keyed.iter().zip(&now.keyed);
        let keyed = keyed
            .filter(|(before, now)| before != now)
            .map(|(before, now)| {
                let words = |input: &KeyedInput| {
                    format!(
                        "{} files of {} bytes (sha256 {:.12})",
                        input.files, input.size, input.sha256
                    )
                };
                format!("{}: {}, now {}", now.uri, words(before), words(now))
            });
        let siblings = self.siblings.iter().zip(&now.siblings);
        let siblings = siblings
            .filter(|(before, now)| before != now)
            .map(|(before, now)| {
                let words = |sibling: &Option<SiblingInput>| match sibling {
                    Some(file) => {
                        format!("{} bytes (footer {:.12})", file.size, file.footer_sha256)
                    }
                    None => "none".to_owned(),
                };
                let uri = now
                    .as_ref()
                    .or(before.as_ref())
                    .map(|file| file.uri.as_str());
                let uri = uri.unwrap_or_default();
                format!("sibling in {uri}: {}, now {}", words(before), words(now))
            });
        let number = || "another number of side inputs".to_owned();
        Some(keyed.chain(siblings).next().unwrap_or_else(number))
    }
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
            inputs: get(META_INPUTS).and_then(|inputs| serde_json::from_str(&inputs).ok()),
        })
    }
}

/// What the ends of a file that cannot be parsed say of its maker: its first bytes (4, if there
/// are as many) and its last ([`REMAINS`]). Only what says that it was this pipeline's is ours.
pub fn remains(head: &[u8], tail: &[u8], digest: &str) -> FooterFinding {
    let holds = |words: &str| memchr::memmem::find(tail, words.as_bytes()).is_some();
    if holds(META_DIGEST) && holds(digest) {
        return FooterFinding::Broken;
    }
    let begins = head.iter().zip(MAGIC).all(|(found, magic)| found == magic);
    let ends = tail.ends_with(MAGIC) || tail.ends_with(ENCRYPTED_MAGIC);
    // Of a file of four bytes the beginning is not its end.
    if begins && (!ends || tail.len() <= MAGIC.len()) {
        FooterFinding::Torn
    } else {
        FooterFinding::Foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_proves_to_be_ours_is_ours() {
        let ours = b"PAR1 .. sidecarjob.digest d1g357 junk where the trailer was";
        let table: [(&[u8], FooterFinding); 12] = [
            (b"", FooterFinding::Torn),
            (b"PA", FooterFinding::Torn),
            (b"PAR1", FooterFinding::Torn),
            (b"PAR1 and the first pages", FooterFinding::Torn),
            (ours, FooterFinding::Broken),
            (b"sidecarjob.digest d1g357 PAR1", FooterFinding::Broken),
            (
                b"PAR1 sidecarjob.digest another PAR1",
                FooterFinding::Foreign,
            ),
            (
                b"PAR1 pages and a strange footer PAR1",
                FooterFinding::Foreign,
            ),
            (
                b"PAR1 pages and a sealed footer PARE",
                FooterFinding::Foreign,
            ),
            (
                b"PARE pages and a sealed footer PARE",
                FooterFinding::Foreign,
            ),
            (b"PK zip", FooterFinding::Foreign),
            (b"x", FooterFinding::Foreign),
        ];
        for (bytes, expected) in table {
            let head = &bytes[..bytes.len().min(4)];
            let found = remains(head, bytes, "d1g357");
            assert_eq!(found, expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
