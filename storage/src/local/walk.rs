//! Listing folders.

use std::collections::HashSet;
use std::fs::{self, FileType};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use async_trait::async_trait;

use super::{Root, blocking, version};
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key::{self, TEMPORARY_SUFFIX, WRITER_LOCK};
use crate::listing::{Item, PAGE_SHARDS, Page, Source};
use crate::store::ObjectMeta;

/// The tree below a root, as a source for an ordered walk.
pub(super) struct Tree {
    root: Arc<Root>,
}

/// A folder, or what is left of one whose names have been read.
pub(super) enum Cursor {
    Folder(Folder),
    Rest(Box<Rest>),
}

/// A folder and the folders that it is in.
#[derive(Clone)]
pub(super) struct Folder {
    /// Relative to the root; empty or ends in `/`.
    key: String,
    /// Device and inode of it and those above: a link to one of them is a loop.
    above: Arc<[(u64, u64)]>,
}

pub(super) struct Rest {
    folder: Folder,
    names: std::vec::IntoIter<Name>,
}

/// A name in a folder; a folder's has a `/` at the end, which puts it where its keys belong.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name(String);

impl Cursor {
    pub(super) fn root() -> Self {
        Self::Folder(Folder {
            key: String::new(),
            above: Arc::from([]),
        })
    }
}

impl Tree {
    pub(super) fn new(root: Arc<Root>) -> Self {
        Self { root }
    }
}

#[async_trait]
impl Source for Tree {
    type Cursor = Cursor;

    async fn page(&self, cursor: Cursor) -> Result<Page<Cursor>> {
        let root = Arc::clone(&self.root);
        blocking(move || read_page(&root, cursor)).await
    }
}

fn read_page(root: &Root, cursor: Cursor) -> Result<Page<Cursor>> {
    let mut page = Page::default();
    let mut rest = match cursor {
        Cursor::Rest(rest) => rest,
        Cursor::Folder(folder) => match open_folder(root, folder, &mut page)? {
            Some(rest) => Box::new(rest),
            None => return Ok(page),
        },
    };
    while page.items.len() < PAGE_SHARDS {
        let Some(Name(name)) = rest.names.next() else {
            return Ok(page);
        };
        let child_key = format!("{}{name}", rest.folder.key);
        if name.ends_with('/') {
            page.items.push(Item::Folder(Cursor::Folder(Folder {
                key: child_key,
                above: Arc::clone(&rest.folder.above),
            })));
            continue;
        }
        match fs::metadata(root.path_of(&child_key)) {
            Ok(metadata) => page
                .items
                .push(Item::Shard(version::object(child_key, &metadata))),
            Err(error) => match link_itself(root, &child_key) {
                Some(link) => page.items.push(Item::Shard(link)),
                None if error.kind() == io::ErrorKind::NotFound => page.skipped += 1,
                None => return Err(Error::local(root.uri_of(&child_key), "look at it", error)),
            },
        }
    }
    page.next = Some(Cursor::Rest(rest));
    Ok(page)
}

/// Reads and sorts the names of a folder; none if it is gone or is a loop.
fn open_folder(root: &Root, folder: Folder, page: &mut Page<Cursor>) -> Result<Option<Rest>> {
    let path = root.path_of(&folder.key);
    let failed = |error| Error::local(root.uri_of(&folder.key), "list it", error);
    let metadata = match fs::metadata(&path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    if !metadata.is_dir() {
        return Err(Error::invalid(
            root.uri_of(&folder.key),
            "it is a file; a prefix is a folder",
        ));
    }
    let identity = (metadata.dev(), metadata.ino());
    if folder.above.contains(&identity) {
        tracing::warn!(
            uri = root.uri_of(&folder.key),
            "a link leads back to a folder above it; not followed"
        );
        page.skipped += 1;
        return Ok(None);
    }
    Counters::add(&root.counters.list, 1);
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            check_no_shard(root, &folder.key, &entry)?;
            page.skipped += 1;
            continue;
        };
        let kind = entry.file_type().map_err(failed)?;
        match classify(&entry, &name, kind) {
            Entry::Folder if key::is_hidden(&name) => {
                page.skipped += 1;
                if let Some(lock) = nested_lock(root, &folder.key, &name) {
                    page.nested_locks.push(lock);
                }
            }
            Entry::Folder => names.push(Name(name + "/")),
            Entry::Shard => names.push(Name(name)),
            Entry::Temporary => {}
            Entry::Unknown(what) => {
                return Err(Error::invalid(
                    root.uri_of(&format!("{}{name}", folder.key)),
                    format!("it is {what}; it may have been one of the shards: mend or remove it"),
                ));
            }
            Entry::Other => page.skipped += 1,
        }
    }
    names.sort_unstable();
    let above: Vec<(u64, u64)> = folder.above.iter().copied().chain([identity]).collect();
    Ok(Some(Rest {
        folder: Folder {
            key: folder.key,
            above: Arc::from(above),
        },
        names: names.into_iter(),
    }))
}

enum Entry {
    Folder,
    Shard,
    Temporary,
    /// Nobody can tell whether it holds shards.
    Unknown(&'static str),
    Other,
}

/// A link that leads nowhere, or where we may not look, is listed as what it is named for:
/// whoever opens it is told. Large enough to be opened at all.
fn link_itself(root: &Root, key: &str) -> Option<ObjectMeta> {
    let metadata = fs::symlink_metadata(root.path_of(key)).ok()?;
    let object = version::object(key.to_string(), &metadata);
    metadata.is_symlink().then(|| ObjectMeta {
        size: object.size.max(16),
        ..object
    })
}

/// Whether a name looks like that of a file: a folder's rarely has an ending of letters.
fn has_ending(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| ending.chars().any(|letter| letter.is_ascii_alphabetic()))
}

fn classify(entry: &fs::DirEntry, name: &str, kind: FileType) -> Entry {
    let kind = if kind.is_symlink() {
        match fs::metadata(entry.path()) {
            Ok(metadata) => metadata.file_type(),
            Err(_) if key::is_hidden(name) || name.ends_with(TEMPORARY_SUFFIX) => {
                return Entry::Other;
            }
            Err(_) if name.ends_with(".parquet") => return Entry::Shard,
            Err(_) if has_ending(name) => return Entry::Other,
            Err(_) => return Entry::Unknown("a link that leads nowhere"),
        }
    } else {
        kind
    };
    if kind.is_dir() {
        Entry::Folder
    } else if name.ends_with(TEMPORARY_SUFFIX) {
        Entry::Temporary
    } else if kind.is_file() && !key::is_hidden(name) && name.ends_with(".parquet") {
        Entry::Shard
    } else if !kind.is_file() && !key::is_hidden(name) && name.ends_with(".parquet") {
        Entry::Unknown("neither a file nor a folder")
    } else {
        Entry::Other
    }
}

/// A shard that can't be named would be missing from the output without a word.
fn check_no_shard(root: &Root, folder: &str, entry: &fs::DirEntry) -> Result<()> {
    let name = entry.file_name();
    let is_folder = entry.path().is_dir();
    let hidden =
        name.as_encoded_bytes().starts_with(b"_") || name.as_encoded_bytes().starts_with(b".");
    if !hidden && (is_folder || name.as_encoded_bytes().ends_with(b".parquet")) {
        return Err(Error::invalid(
            format!("{}{folder}{}", root.uri, name.to_string_lossy()),
            format!("its name {name:?} is not UTF-8, so it can't be a key; rename it"),
        ));
    }
    Ok(())
}

fn nested_lock(root: &Root, folder: &str, name: &str) -> Option<String> {
    let (lock_folder, _) = WRITER_LOCK.split_once('/')?;
    if name != lock_folder || folder.is_empty() {
        return None;
    }
    let key = format!("{folder}{WRITER_LOCK}");
    root.path_of(&key).is_file().then_some(key)
}

/// Everything below `folder`, in byte order.
pub(super) fn list_all(root: &Root, top: &str, limit: usize) -> Result<Vec<ObjectMeta>> {
    let mut objects = Vec::new();
    let mut folders = vec![top.to_string()];
    let identity = |metadata: &fs::Metadata| (metadata.dev(), metadata.ino());
    let start = fs::metadata(root.path_of(top)).ok();
    let mut linked: HashSet<(u64, u64)> = start.iter().map(identity).collect();
    while let Some(folder) = folders.pop() {
        let failed = |error| Error::local(root.uri_of(&folder), "list it", error);
        Counters::add(&root.counters.list, 1);
        let entries = match fs::read_dir(root.path_of(&folder)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(Error::invalid(
                    format!("{}{folder}{}", root.uri, name.to_string_lossy()),
                    "its name is not UTF-8, so it can't be a key; rename it",
                ));
            };
            let key = format!("{folder}{name}");
            if entry.file_type().map_err(failed)?.is_dir() {
                folders.push(key + "/");
                Error::check_count(|| root.uri_of(top), folders.len(), limit)?;
                continue;
            }
            match fs::metadata(entry.path()) {
                Ok(metadata) if metadata.is_file() && !name.ends_with(TEMPORARY_SUFFIX) => {
                    objects.push(version::object(key, &metadata));
                    Error::check_count(|| root.uri_of(top), objects.len(), limit)?;
                }
                // Each folder behind a link is looked into once: links may lead in circles.
                Ok(metadata) if metadata.is_dir() => {
                    if linked.insert(identity(&metadata)) {
                        folders.push(key + "/");
                    }
                }
                Ok(_) => {}
                Err(error) => match link_itself(root, &key) {
                    Some(link) => objects.push(link),
                    None if error.kind() == io::ErrorKind::NotFound => {}
                    None => return Err(failed(error)),
                },
            }
        }
    }
    objects.sort_unstable_by(|left, right| left.key.cmp(&right.key));
    Ok(objects)
}
