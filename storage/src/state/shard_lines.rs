//! What became of each shard of a chunk: a line a shard, written when the chunk ends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::document::{self, FORMAT_VERSION};
use super::error::Result;
use super::lines::{LinesReader, LinesWriter};
use super::manifest::ManifestPart;
use super::{RunId, layout, limits};
use crate::store::{ETag, Store};

pub(crate) const LINES_WHAT: &str = "file of shard lines";

/// Whether a shard was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardStatus {
    /// It is below the output prefix.
    Done,
    /// It isn't, or an old one is.
    Failed,
}

/// The main shard that a shard was made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MainShard {
    /// Its size.
    pub size: u64,
    /// Its version.
    pub etag: ETag,
    /// Lower-case hex SHA-256 of its footer; absent if that was never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub footer_sha256: Option<String>,
}

/// A shard that was published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputShard {
    /// Its size.
    pub size: u64,
    /// Its version.
    pub etag: ETag,
    /// Lower-case hex SHA-256 of its bytes; absent if a footer alone vouches for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// What became of a shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardLine {
    /// Path relative to the main prefix and to the output prefix.
    pub path: String,
    /// Whether it was made.
    pub status: ShardStatus,
    /// Its rows; 0 if it failed before they were known.
    #[serde(default)]
    pub rows: u64,
    /// Rows that matched.
    #[serde(default)]
    pub matched: u64,
    /// Rows without a value, per column of the sidecar's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulls: BTreeMap<String, u64>,
    /// The main shard.
    pub main: MainShard,
    /// Versions of everything beside main that it was made from; absent if there is nothing, or
    /// an earlier release made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs: Option<String>,
    /// The shard; absent if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputShard>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// First line of `chunks/<n>.jsonl.zst`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinesHeader {
    /// Version of the format.
    pub version: u32,
    /// The run.
    pub run: RunId,
    /// Digest of its pipeline.
    pub digest: String,
    /// The chunk.
    pub chunk: u64,
}

/// Writes the lines of a chunk that has ended, sorted by path, and returns what the manifest
/// says of them. A line for every shard of the chunk that is done (also by an earlier attempt)
/// or has failed. Of two attempts at a chunk the later one's lines stay.
///
/// # Errors
/// If two lines have one path, or the file can't be written.
pub async fn write_lines(
    store: &dyn Store,
    run: &RunId,
    digest: &str,
    chunk: u64,
    lines: Vec<ShardLine>,
) -> Result<ManifestPart> {
    let encoded = encode_lines(store, run, digest, chunk, lines)?;
    encoded.write(store).await
}

/// Lines that are not written yet: compressed, and what the manifest will say of them.
#[derive(Debug)]
pub struct EncodedLines {
    pub(crate) part: ManifestPart,
    pub(crate) bytes: Vec<u8>,
}

impl EncodedLines {
    /// Writes them.
    ///
    /// # Errors
    /// If the file can't be written.
    pub async fn write(self, store: &dyn Store) -> Result<ManifestPart> {
        document::overwrite(store, &self.part.key, self.bytes, None).await?;
        Ok(self.part)
    }
}

/// As [`write_lines`], for a caller that doesn't hold the prefix yet; `store` is for messages.
///
/// # Errors
/// If two lines have one path.
pub fn encode_lines(
    store: &dyn Store,
    run: &RunId,
    digest: &str,
    chunk: u64,
    mut lines: Vec<ShardLine>,
) -> Result<EncodedLines> {
    let key = layout::chunk_lines(run, chunk);
    lines.sort_unstable_by(|left, right| left.path.cmp(&right.path));
    if let Some(pair) = lines.windows(2).find(|pair| pair[0].path == pair[1].path) {
        let detail = format!("it would have two lines for {:?}", pair[0].path);
        return Err(document::malformed(
            &document::uri(store, &key),
            LINES_WHAT,
            detail,
        ));
    }
    let header = LinesHeader {
        version: FORMAT_VERSION,
        run: run.clone(),
        digest: digest.to_owned(),
        chunk,
    };
    let mut writer = LinesWriter::new(&key, LINES_WHAT, limits::SHARD_LINES, &header)?;
    for line in &mut lines {
        if let Some(reason) = &mut line.reason {
            limits::cut(reason, limits::REASON);
        }
        writer.push(line)?;
    }
    let bytes = writer.finish()?;
    let part = ManifestPart {
        run: run.clone(),
        digest: digest.to_owned(),
        chunk,
        shards: lines.len() as u64,
        first: lines
            .first()
            .map(|line| line.path.clone())
            .unwrap_or_default(),
        last: lines
            .last()
            .map(|line| line.path.clone())
            .unwrap_or_default(),
        sha256: document::sha256(&bytes),
        size: bytes.len() as u64,
        key,
    };
    Ok(EncodedLines { part, bytes })
}

/// Reads the lines of a chunk one by one, and sees to it that they are sorted.
pub struct ShardLines {
    file: String,
    lines: LinesReader,
    last: String,
}

impl ShardLines {
    /// Opens the bytes of a file of lines; `file` is its name for messages.
    ///
    /// # Errors
    /// If it is damaged or of another version.
    pub fn open(file: &str, bytes: bytes::Bytes) -> Result<(LinesHeader, Self)> {
        let (header, lines) =
            LinesReader::open::<LinesHeader>(file, LINES_WHAT, limits::SHARD_LINES, bytes)?;
        Ok((
            header,
            Self {
                file: file.to_owned(),
                lines,
                last: String::new(),
            },
        ))
    }

    /// Bytes of memory that this takes while it is open.
    pub(crate) fn cost(&self) -> u64 {
        self.lines.cost()
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn next_line(&mut self) -> Result<Option<ShardLine>> {
        let Some(line) = self.lines.next::<ShardLine>()? else {
            return Ok(None);
        };
        if line.path <= self.last {
            let detail = format!("{:?} comes after {:?}", line.path, self.last);
            return Err(document::malformed(&self.file, LINES_WHAT, detail));
        }
        self.last.clone_from(&line.path);
        Ok(Some(line))
    }
}
