//! The side inputs of a run, and their versions: what a shard is made from beside main.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::document;
use crate::error::{Error, Result};
use crate::open::Stores;
use crate::store::{ETag, ObjectMeta, Store};

/// Bytes that are read at once to tell the content of a file.
const WINDOW: u64 = 4 << 20;
/// Windows that are read of a file at most; those of a larger one are spread evenly.
const WINDOWS: u64 = 16;
/// What ends a Parquet file: the length of the footer, and the magic bytes.
const TRAILER: u64 = 8;
/// Bytes at the end of a Parquet file that are read at first.
const TAIL: u64 = 64 << 10;
/// Characters of a hash over versions.
const VERSIONS: usize = 32;

/// A side input whose rows are looked up by key, as a run found it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideInput {
    /// As the manifest names it.
    pub uri: String,
    /// How many files are used of it.
    pub files: u64,
    /// Bytes of them.
    pub size: u64,
    /// Their version: that of the file, or a hash over those of several.
    pub etag: ETag,
    /// Lower-case hex SHA-256 over name, size and content hash of each file. The content hash of
    /// Parquet is that of its footer; of other files that of 64 MiB, spread evenly.
    pub sha256: String,
}

impl SideInput {
    /// Of these files, each with its content hash.
    pub fn new<'a>(uri: &str, files: impl IntoIterator<Item = (&'a ObjectMeta, &'a str)>) -> Self {
        let (mut content, mut versions) = (Sha256::new(), Sha256::new());
        let (mut count, mut size, mut only) = (0, 0, None);
        for (meta, hash) in files {
            let name = meta.key.rsplit('/').next().unwrap_or(&meta.key);
            content.update(format!("{name}\0{}\0{hash}\n", meta.size));
            versions.update(format!("{}\0{}\0{}\n", meta.key, meta.size, meta.etag.0));
            count += 1;
            size += meta.size;
            only = Some(meta.etag.clone());
        }
        let etag = match only {
            Some(etag) if count == 1 => etag,
            _ => ETag::from(hex(versions)[..VERSIONS].to_owned()),
        };
        Self {
            uri: uri.to_owned(),
            files: count,
            size,
            etag,
            sha256: hex(content),
        }
    }

    /// For messages: how much there is, and of which version.
    pub fn describe(&self) -> String {
        let Self {
            files, size, etag, ..
        } = self;
        format!("{files} files of {size} bytes in all, version {}", etag.0)
    }
}

/// How the names of an index's files end.
pub const INDEX_SUFFIXES: [&str; 1] = [".parquet"];
/// How the names of files of texts end.
pub const TEXT_SUFFIXES: [&str; 4] = [".parquet", ".jsonl", ".jsonl.gz", ".jsonl.zst"];

/// The files that a manifest names as a side input.
#[derive(Debug)]
pub struct NamedFiles {
    /// Where they are.
    pub store: std::sync::Arc<dyn Store>,
    /// One file, or all of a folder, in byte order; none if nothing is there.
    pub objects: Vec<ObjectMeta>,
    /// Whether a folder is named.
    pub is_folder: bool,
}

/// Finds the files of a side input: the one that is named, or those of a folder that end in one
/// of `suffixes`.
///
/// # Errors
/// If the store fails, or what is named can't be looked at.
pub async fn find(stores: &Stores, uri: &str, suffixes: &[&str]) -> Result<NamedFiles> {
    let wanted = |key: &str| suffixes.iter().any(|suffix| key.ends_with(suffix));
    let mut unusable = None;
    if !uri.ends_with('/') && wanted(uri) {
        let (store, key) = stores.open_parent(uri)?;
        match store.head(&key).await {
            Ok(meta) => {
                return Ok(NamedFiles {
                    store,
                    objects: vec![meta],
                    is_folder: false,
                });
            }
            // A folder may be called `index.parquet`, as some writers do.
            Err(error) if error.is_not_found() => {}
            Err(error @ (Error::Invalid { .. } | Error::NoBucket { .. })) => unusable = Some(error),
            Err(error) => return Err(error),
        }
    }
    let store = stores.open(uri)?;
    let hidden = |key: &str| key.split('/').any(crate::key::is_hidden);
    let mut objects = store.list_folder("").await?;
    objects.retain(|object| wanted(&object.key) && !hidden(&object.key));
    match unusable {
        Some(error) if objects.is_empty() => Err(error),
        _ => Ok(NamedFiles {
            store,
            objects,
            is_folder: true,
        }),
    }
}

/// What tells the content of a file from another: see [`SideInput::sha256`].
///
/// # Errors
/// If it can't be read, or has another version meanwhile.
pub async fn content_hash(store: &dyn Store, meta: &ObjectMeta) -> Result<String> {
    if meta.key.ends_with(".parquet") {
        return footer_hash(store, meta).await;
    }
    let whole = meta.size <= WINDOW * WINDOWS;
    let windows = meta.size.div_ceil(WINDOW).min(WINDOWS);
    let mut hash = Sha256::new();
    for window in 0..windows {
        let start = if whole {
            window * WINDOW
        } else {
            // Exact: the product of a size and a small number.
            let last = u128::from(meta.size - WINDOW) * u128::from(window);
            (last / u128::from(WINDOWS - 1)) as u64
        };
        let range = start..(start + WINDOW).min(meta.size);
        hash.update(read(store, meta, range).await?);
    }
    Ok(hex(hash))
}

/// The hash of a Parquet file's footer; of the file's end, if that is none.
async fn footer_hash(store: &dyn Store, meta: &ObjectMeta) -> Result<String> {
    let mut tail = read(store, meta, meta.size - TAIL.min(meta.size)..meta.size).await?;
    let Some([a, b, c, d, ..]) = tail.last_chunk::<{ TRAILER as usize }>() else {
        return Ok(document::sha256(&tail));
    };
    let end = meta.size - TRAILER;
    let length = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
    let Some(start) = end.checked_sub(length) else {
        return Ok(document::sha256(&tail));
    };
    if length + TRAILER <= tail.len() as u64 {
        let from = tail.len() - (length + TRAILER) as usize;
        return Ok(document::sha256(&tail.slice(from..from + length as usize)));
    }
    let mut hash = Sha256::new();
    let mut at = start;
    while at < end {
        tail = read(store, meta, at..(at + WINDOW).min(end)).await?;
        at += tail.len() as u64;
        hash.update(&tail);
    }
    Ok(hex(hash))
}

async fn read(
    store: &dyn Store,
    meta: &ObjectMeta,
    range: std::ops::Range<u64>,
) -> Result<bytes::Bytes> {
    let ranges = std::slice::from_ref(&range);
    let read = store
        .read_ranges(&meta.key, ranges, Some(&meta.etag))
        .await?;
    let bytes = read.into_iter().next().unwrap_or_default();
    if bytes.len() as u64 == range.end - range.start {
        Ok(bytes)
    } else {
        let uri = document::uri(store, &meta.key);
        Err(Error::Changed { uri })
    }
}

/// The versions of everything beside main that a shard is made from, as one text: those of the
/// keyed side inputs, and of its siblings. `None` if there is nothing beside main.
pub fn versions<'a>(
    keyed: &[SideInput],
    siblings: impl IntoIterator<Item = Option<&'a ObjectMeta>>,
) -> Option<String> {
    let mut hash = Sha256::new();
    let mut is_empty = true;
    for input in keyed {
        hash.update(format!("{}\0{}\n", input.size, input.etag.0));
        is_empty = false;
    }
    for sibling in siblings {
        match sibling {
            Some(meta) => hash.update(format!("{}\0{}\n", meta.size, meta.etag.0)),
            None => hash.update("-\n"),
        }
        is_empty = false;
    }
    (!is_empty).then(|| hex(hash)[..VERSIONS].to_owned())
}

fn hex(hash: Sha256) -> String {
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(key: &str, size: u64, etag: &str) -> ObjectMeta {
        ObjectMeta {
            key: key.to_owned(),
            size,
            etag: ETag(etag.into()),
        }
    }

    #[test]
    fn a_version_is_of_the_files_and_content_of_the_bytes() {
        let of =
            |key: &str, etag: &str, hash: &str| SideInput::new("i/", [(&meta(key, 9, etag), hash)]);
        let before = of("a.parquet", "1", "h");
        let touched = of("a.parquet", "2", "h");
        assert_eq!(before.sha256, touched.sha256);
        assert_ne!(before.etag, touched.etag);
        assert_ne!(before.sha256, of("a.parquet", "1", "other").sha256);
        assert_ne!(before.sha256, of("b.parquet", "1", "h").sha256);
    }

    #[test]
    fn versions_tell_every_input_apart() {
        let index = |etag: &str| SideInput::new("i/", [(&meta("a.parquet", 9, etag), "h")]);
        let sibling = meta("a.parquet", 9, "s");
        let all = [
            versions(&[], []),
            versions(&[index("1")], []),
            versions(&[index("2")], []),
            versions(&[index("1")], [None]),
            versions(&[index("1")], [Some(&sibling)]),
            versions(&[index("1"), index("1")], []),
        ];
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), all.len(), "{all:?}");
        assert_eq!(all[0], None);
    }
}
