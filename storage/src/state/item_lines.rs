//! The lines of a work item, which more than one worker may have a hand in: of an attempt that
//! was stopped, of its successor, and of a pod that goes on beside the one that replaces it.

use std::collections::BTreeMap;

use super::document;
use super::error::Result;
use super::manifest::ManifestPart;
use super::shard_lines::{LINES_WHAT, ShardLine, ShardLines, ShardStatus, encode_lines};
use super::{RunId, layout, limits};
use crate::store::{ETag, PutCondition, Store};

/// How often lines that somebody else has written meanwhile are merged into ours.
const WRITE_ATTEMPTS: usize = 5;

/// Lines that are there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedLines {
    /// Version of the file.
    pub etag: ETag,
    /// The lines, by ascending path; none if they are of another pipeline.
    pub lines: Vec<ShardLine>,
}

/// Reads the lines of a chunk or work item; `None` if it has never ended. Damaged lines vouch
/// for nothing: there are none then.
///
/// # Errors
/// If they can't be read or are of another version.
pub async fn read_lines(
    store: &dyn Store,
    run: &RunId,
    digest: &str,
    chunk: u64,
) -> Result<Option<RecordedLines>> {
    let key = layout::chunk_lines(run, chunk);
    let file = document::uri(store, &key);
    // One that is too large is told: it has no version that could be replaced.
    let Some((meta, bytes)) =
        document::read_bytes(store, &key, LINES_WHAT, limits::SHARD_LINES.file).await?
    else {
        return Ok(None);
    };
    let lines = match parse(&file, digest, bytes) {
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "the lines of an earlier attempt are passed over");
            Vec::new()
        }
        other => other?,
    };
    Ok(Some(RecordedLines {
        etag: meta.etag,
        lines,
    }))
}

fn parse(file: &str, digest: &str, bytes: bytes::Bytes) -> Result<Vec<ShardLine>> {
    let (header, mut reader) = ShardLines::open(file, bytes)?;
    let mut lines = Vec::new();
    while let Some(line) = reader.next_line()? {
        lines.push(line);
    }
    if header.digest != digest {
        lines.clear();
    }
    Ok(lines)
}

/// Writes the lines of a work item. `known` is the version of the lines that `lines` already
/// takes into account; if others were written meanwhile, they are merged into these.
///
/// # Errors
/// If two lines have one path, or the file can't be written.
pub async fn write_item_lines(
    store: &dyn Store,
    run: &RunId,
    digest: &str,
    first: u64,
    mut lines: Vec<ShardLine>,
    mut known: Option<ETag>,
) -> Result<ManifestPart> {
    let mut attempt = 1;
    loop {
        let encoded = encode_lines(store, run, digest, first, lines.clone())?;
        let condition = match known.take() {
            Some(etag) => PutCondition::Replace(etag),
            None => PutCondition::Create,
        };
        match document::put(store, &encoded.part.key, encoded.bytes, condition).await {
            Ok(_) => return Ok(encoded.part),
            Err(error) if attempt < WRITE_ATTEMPTS && document::is_conflict(&error) => attempt += 1,
            Err(error) => return Err(error.into()),
        }
        if let Some(found) = read_lines(store, run, digest, first).await? {
            lines = merge(lines, found.lines);
            known = Some(found.etag);
        }
    }
}

/// The lines of two workers on one item. Both make the same shards, so what one has done is
/// done, though the other has failed at it or has not come to it.
fn merge(mine: Vec<ShardLine>, others: Vec<ShardLine>) -> Vec<ShardLine> {
    let by_path = |lines: Vec<ShardLine>| lines.into_iter().map(|line| (line.path.clone(), line));
    let mut merged: BTreeMap<String, ShardLine> = by_path(others).collect();
    for (path, line) in by_path(mine) {
        let is_known_done = merged
            .get(&path)
            .is_some_and(|other| other.status == ShardStatus::Done);
        if line.status == ShardStatus::Done || !is_known_done {
            merged.insert(path, line);
        }
    }
    merged.into_values().collect()
}
