//! `manifest.json`: the summary of an output, and the list of the files of lines that make its
//! manifest. Workers wrote them; sealing a run writes only this small file.

use std::collections::HashSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::document::{self, Document, FORMAT_VERSION};
use super::error::Result;
use super::merge::{MergedLines, OnDamage};
use super::shard_lines::{LINES_WHAT, ShardLines};
use super::{RunId, layout, limits};
use crate::store::{ETag, PutCondition, Store};

/// Files of lines that are read at the same time.
const READS_IN_FLIGHT: usize = 16;

/// Lines that are read, at most, to find out whether an older part is superseded.
const CHEAP_LINES: u64 = 100_000;

/// Parts that are read for that, at most, when a run seals; and lines.
const MOST_PARTS: usize = 4096;
const MOST_LINES: u64 = 2_000_000;

/// Whether the output is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Completeness {
    /// Every main shard that was listed has its shard.
    Complete,
    /// Some failed, or were left out.
    Incomplete,
}

/// What the output holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// Shards that are there.
    pub shards: u64,
    /// Shards that failed.
    pub failed: u64,
    /// Rows.
    pub rows: u64,
    /// Rows that matched.
    pub matched: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A file of lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestPart {
    /// Key relative to the output prefix.
    pub key: String,
    /// The run that wrote it.
    pub run: RunId,
    /// Digest of that run's pipeline.
    pub digest: String,
    /// The chunk.
    pub chunk: u64,
    /// Lines in it.
    pub shards: u64,
    /// Smallest path in it.
    pub first: String,
    /// Largest path in it.
    pub last: String,
    /// Lower-case hex SHA-256 of the file.
    pub sha256: String,
    /// Size of the file.
    pub size: u64,
}

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub version: u32,
    /// The main prefix that the output belongs to.
    pub main: String,
    /// Digest of the pipeline.
    pub digest: String,
    /// The run that sealed it last.
    pub run: RunId,
    /// Whether the output is whole.
    pub state: Completeness,
    /// When it was sealed.
    #[serde(with = "time::serde::rfc3339")]
    pub sealed_at: OffsetDateTime,
    /// What the output holds.
    pub totals: Totals,
    /// The files of lines, oldest first: of two lines for one path the later file's counts.
    pub parts: Vec<ManifestPart>,
    /// Keys of files of lines that are still there and that `parts` supersede: nobody adopts them
    /// again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub superseded: Vec<String>,
}

impl Document for Manifest {
    const WHAT: &'static str = "manifest";
    const LIMIT: u64 = limits::MANIFEST;
}

/// A manifest as it is in the store.
#[derive(Debug, Clone)]
pub struct Sealed {
    /// What it says.
    pub manifest: Manifest,
    /// Its version, for sealing the next one over it.
    pub etag: ETag,
    /// Lower-case hex SHA-256 of its bytes, for the sentinel.
    pub sha256: String,
}

/// What a run knows of an output before it starts: the sealed manifest, and what later runs
/// that were killed left.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// The manifest, if one was ever sealed.
    pub sealed: Option<Sealed>,
    /// Its parts, and finished parts that no manifest names, oldest first.
    pub parts: Vec<Arc<ManifestPart>>,
    /// How many of them no manifest names.
    pub adopted: usize,
    /// Keys of files that are there and that the manifest says are superseded.
    pub superseded: Vec<String>,
}

/// What a run seals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seal {
    /// The main prefix.
    pub main: String,
    /// Digest of the pipeline.
    pub digest: String,
    /// The run.
    pub run: RunId,
    /// Whether the output is whole.
    pub state: Completeness,
    /// What the output holds, with what earlier runs made.
    pub totals: Totals,
    /// The parts that the run wrote.
    pub parts: Vec<ManifestPart>,
}

impl Manifest {
    /// Reads the manifest; `None` if none was sealed.
    ///
    /// # Errors
    /// If it can't be read, is damaged, or is of another version.
    pub async fn load(store: &dyn Store) -> Result<Option<Sealed>> {
        let Some((meta, bytes)) =
            document::read_bytes(store, layout::MANIFEST, Self::WHAT, Self::LIMIT).await?
        else {
            return Ok(None);
        };
        let manifest = document::decode(&document::uri(store, layout::MANIFEST), &bytes)?;
        Ok(Some(Sealed {
            manifest,
            etag: meta.etag,
            sha256: document::sha256(&bytes),
        }))
    }

    /// Writes the manifest of a run over what was recorded before it: its parts are kept, but
    /// for those that the new ones are cheaply seen to supersede.
    ///
    /// # Errors
    /// `Error::Changed` or `Error::Exists` if somebody sealed meanwhile.
    pub async fn seal(
        store: &Arc<dyn Store>,
        recorded: &Recorded,
        seal: Seal,
        now: OffsetDateTime,
    ) -> Result<Sealed> {
        let Seal {
            main,
            digest,
            run,
            state,
            totals,
            parts: mut new_parts,
        } = seal;
        new_parts.sort_by_key(|part| part.chunk);
        let rewritten: HashSet<&str> = new_parts.iter().map(|part| part.key.as_str()).collect();
        let left: Vec<Arc<ManifestPart>> = recorded
            .parts
            .iter()
            .filter(|part| !rewritten.contains(part.key.as_str()))
            .cloned()
            .collect();
        let newer: Vec<_> = new_parts.iter().cloned().map(Arc::new).collect();
        let is_over: Vec<bool> = stream::iter(looks(&left, newer))
            .map(|look| {
                let store = Arc::clone(store);
                async move {
                    match look {
                        Some(look) => is_superseded(store, look).await,
                        None => false,
                    }
                }
            })
            .buffered(READS_IN_FLIGHT)
            .collect()
            .await;
        let mut superseded = recorded.superseded.clone();
        superseded.retain(|key| !rewritten.contains(key.as_str()));
        let mut parts = Vec::with_capacity(left.len() + new_parts.len());
        for (part, is_over) in left.iter().zip(is_over) {
            if is_over {
                superseded.push(part.key.clone());
            } else {
                parts.push(ManifestPart::clone(part));
            }
        }
        superseded.sort_unstable();
        parts.extend(new_parts.into_iter().filter(|part| part.shards > 0));
        let manifest = Self {
            version: FORMAT_VERSION,
            main,
            digest,
            run,
            state,
            sealed_at: super::clock::to_milliseconds(now),
            totals,
            parts,
            superseded,
        };
        let bytes = document::encode(layout::MANIFEST, &manifest)?;
        let sha256 = document::sha256(&bytes);
        let condition = match &recorded.sealed {
            Some(sealed) => PutCondition::Replace(sealed.etag.clone()),
            None => PutCondition::Create,
        };
        let published = document::put(&**store, layout::MANIFEST, bytes, condition).await?;
        Ok(Sealed {
            manifest,
            etag: published.etag,
            sha256,
        })
    }
}

impl Recorded {
    /// Reads the manifest and adopts the finished parts that killed runs left beside it.
    ///
    /// # Errors
    /// If the manifest or the folder of runs can't be read, or a file is of another version. A
    /// left part that is damaged is passed over with a warning: its shards' footers decide.
    pub async fn load(store: &Arc<dyn Store>) -> Result<Self> {
        let (sealed, listed) = futures::try_join!(Manifest::load(&**store), async {
            Ok(store.list_bounded(layout::RUNS, limits::FOLDER).await?)
        })?;
        let named: HashSet<&str> = sealed
            .iter()
            .flat_map(|sealed| &sealed.manifest.parts)
            .map(|part| part.key.as_str())
            .collect();
        let over: HashSet<&str> = sealed
            .iter()
            .flat_map(|sealed| &sealed.manifest.superseded)
            .map(String::as_str)
            .collect();
        let keys = listed.into_iter().map(|meta| meta.key);
        let (superseded, left): (Vec<String>, Vec<String>) = keys
            .filter(|key| !named.contains(key.as_str()) && layout::parse_chunk_lines(key).is_some())
            .partition(|key| over.contains(key.as_str()));
        // Owned keys, so that the future of this can be spawned.
        let mut adopted: Vec<ManifestPart> = stream::iter(left)
            .map(|key| async move { adopt(store, &key).await })
            .buffered(READS_IN_FLIGHT)
            .try_filter_map(async |part| Ok(part))
            .try_collect()
            .await?;
        let count = adopted.len();
        let sealed_parts = sealed
            .iter()
            .flat_map(|sealed| sealed.manifest.parts.clone());
        // The manifest says what is older; what it neither names nor has superseded came after it.
        // Names of runs, which rest on a clock, are asked only between runs that were both killed.
        adopted.sort_by(|left, right| (&left.run, left.chunk).cmp(&(&right.run, right.chunk)));
        let parts = sealed_parts.chain(adopted).map(Arc::new).collect();
        Ok(Self {
            sealed,
            parts,
            adopted: count,
            superseded,
        })
    }

    /// The newest line of each path, in ascending byte order of paths.
    pub fn lines(&self, store: &Arc<dyn Store>, on_damage: OnDamage) -> MergedLines {
        MergedLines::new(Arc::clone(store), self.parts.clone(), on_damage)
    }
}

/// Reads a part that no manifest names.
async fn adopt(store: &Arc<dyn Store>, key: &str) -> Result<Option<ManifestPart>> {
    let file = document::uri(&**store, key);
    let limit = limits::SHARD_LINES.file;
    let bytes = match document::read_bytes(&**store, key, LINES_WHAT, limit).await {
        Ok(Some((_, bytes))) => bytes,
        Ok(None) => return Ok(None),
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "a part of the manifest is passed over");
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let described = tokio::task::spawn_blocking({
        let key = key.to_owned();
        move || describe(&file, key, bytes)
    })
    .await
    .unwrap_or_else(|error| Err(document::malformed(key, LINES_WHAT, error)));
    match described {
        Ok(part) => Ok((part.shards > 0).then_some(part)),
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "a part of the manifest is passed over");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// What a manifest says of a file of lines.
fn describe(file: &str, key: String, bytes: bytes::Bytes) -> Result<ManifestPart> {
    let (sha256, size) = (document::sha256(&bytes), bytes.len() as u64);
    let (header, mut lines) = ShardLines::open(file, bytes)?;
    let (mut first, mut last, mut shards) = (None, String::new(), 0);
    while let Some(line) = lines.next_line()? {
        shards += 1;
        if first.is_none() {
            first = Some(line.path.clone());
        }
        last = line.path;
    }
    Ok(ManifestPart {
        key,
        run: header.run,
        digest: header.digest,
        chunk: header.chunk,
        shards,
        first: first.unwrap_or_default(),
        last,
        sha256,
        size,
    })
}

/// A part, and the newer ones that may hold all of its paths.
struct Look {
    old: Arc<ManifestPart>,
    newer: Vec<Arc<ManifestPart>>,
}

/// For each old part the look that tells whether `newer` supersede it; none where it is plain
/// that they don't, or where it would cost too much to know: of this one, or of all together.
/// What is not looked at now stays, and is looked at when a run seals again.
fn looks(old: &[Arc<ManifestPart>], mut newer: Vec<Arc<ManifestPart>>) -> Vec<Option<Look>> {
    newer.retain(|part| part.shards > 0);
    newer.sort_by(|left, right| left.first.cmp(&right.first));
    // The largest path up to each: ascending, so that those before a path are found at once.
    let mut largest: Vec<&str> = Vec::with_capacity(newer.len());
    for part in &newer {
        let before = largest.last().copied().unwrap_or_default();
        largest.push(before.max(&part.last));
    }
    let (mut parts_left, mut lines_left) = (MOST_PARTS, MOST_LINES);
    let look = |old: &Arc<ManifestPart>| {
        let start = largest.partition_point(|last| *last < old.first.as_str());
        let end = newer.partition_point(|part| part.first <= old.last);
        let among = newer.get(start..end)?;
        if among.len() > parts_left {
            return None;
        }
        let newer: Vec<_> = among
            .iter()
            .filter(|part| part.last >= old.first)
            .cloned()
            .collect();
        let new_lines: u64 = newer.iter().map(|part| part.shards).sum();
        let (parts, lines) = (newer.len() + 1, new_lines + old.shards);
        if new_lines < old.shards || lines > CHEAP_LINES || parts > parts_left || lines > lines_left
        {
            return None;
        }
        (parts_left, lines_left) = (parts_left - parts, lines_left - lines);
        let old = Arc::clone(old);
        Some(Look { old, newer })
    };
    old.iter().map(look).collect()
}

/// Whether every path of the old part is in one of the newer.
async fn is_superseded(store: Arc<dyn Store>, look: Look) -> bool {
    let Look { old, newer } = look;
    let mut parts = vec![Arc::clone(&old)];
    parts.extend(newer);
    let mut lines = MergedLines::new(store, parts, OnDamage::Fail);
    loop {
        match lines.next_line().await {
            Ok(Some(line)) if Arc::ptr_eq(&line.part, &old) => return false,
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(run: u64, chunk: u64, paths: std::ops::Range<u64>) -> Arc<ManifestPart> {
        let run = format!("20250601-1015{run:02}-aaaaaa");
        Arc::new(ManifestPart {
            key: format!("{run}/{chunk}"),
            run: run.parse().expect("a run"),
            digest: "d".to_owned(),
            chunk,
            shards: paths.end - paths.start,
            first: format!("{:08}", paths.start),
            last: format!("{:08}", paths.end - 1),
            sha256: String::new(),
            size: 1,
        })
    }

    fn parts(run: u64, count: u64, width: u64) -> Vec<Arc<ManifestPart>> {
        let part = |chunk| part(run, chunk, chunk * width..(chunk + 1) * width);
        (0..count).map(part).collect()
    }

    #[test]
    fn a_seal_looks_at_so_many_parts_however_many_are_superseded() {
        for (width, newer) in [
            (10, parts(2, 20_000, 10)),
            (10, parts(2, 1, 90_000)),
            (1, parts(2, 20_000, 1)),
        ] {
            let looks = looks(&parts(1, 20_000, width), newer);
            assert_eq!(looks.len(), 20_000);
            let looks: Vec<_> = looks.into_iter().flatten().collect();
            let read: usize = looks.iter().map(|look| 1 + look.newer.len()).sum();
            assert!(!looks.is_empty() && read <= MOST_PARTS, "{read}");
        }
    }

    #[test]
    fn parts_are_compared_with_those_that_overlap() {
        let newer = vec![part(2, 0, 0..50), part(2, 1, 10..20), part(2, 2, 60..80)];
        let old = [
            part(1, 0, 12..18),
            part(1, 1, 45..65),
            part(1, 2, 90..99),
            part(1, 3, 0..99),
        ];
        let found: Vec<Option<Vec<u64>>> = looks(&old, newer)
            .into_iter()
            .map(|look| look.map(|look| look.newer.iter().map(|part| part.chunk).collect()))
            .collect();
        assert_eq!(found, [Some(vec![0, 1]), Some(vec![0, 2]), None, None]);
    }
}
