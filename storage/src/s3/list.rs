//! Listing: folder by folder where folders are large, in runs over many where they are small.

use std::collections::VecDeque;

use async_trait::async_trait;
use aws_sdk_s3::operation::list_objects_v2::ListObjectsV2Output;
use aws_sdk_s3::types::EncodingType;
use crds::prefix::percent_decode;

use super::attempt::Sort;
use super::fanout::Fanout;
use super::pages::Pages;
use super::{S3Store, etag_of};
use crate::error::{Error, Result};
use crate::key::{self, Role, WRITER_LOCK};
use crate::listing::{Item, Page, Source};
use crate::store::ObjectMeta;

/// Most characters of a key; a server that lists longer ones is none.
const LONGEST_KEY: usize = 1024;

/// Most bytes of keys of a listing that is held as a whole: of a folder of what a run keeps beside
/// its output, or of a folder of a bucket that lists in no order.
const MOST_HELD: usize = 64 << 20;

/// The keys below a prefix, as a source for an ordered walk.
pub(super) struct Tree {
    store: S3Store,
    fanout: Fanout,
    /// Directory buckets list neither in order nor from a key on.
    is_ordered: bool,
}

/// Where a listing goes on. Keys and folders are relative to the store's prefix.
pub(super) enum Cursor {
    /// What is directly in a folder.
    Folder { folder: String, at: Position },
    /// Everything in the neighbouring folders `first` to `last`.
    Run {
        first: String,
        last: String,
        folders: usize,
        at: Position,
    },
}

#[derive(Debug, Default)]
pub(super) struct Position {
    token: Option<String>,
    pages: Pages,
    keys: usize,
    folders: usize,
}

impl Tree {
    pub(super) fn new(store: S3Store) -> (Self, Cursor) {
        let is_ordered = store.lists_in_order();
        let tree = Self {
            store,
            fanout: Fanout::default(),
            is_ordered,
        };
        (tree, Cursor::folder(String::new()))
    }

    async fn folder_page(&self, folder: String, mut at: Position) -> Result<Page<Cursor>> {
        let mut page = Page::default();
        let mut found = Vec::new();
        let mut held = 0;
        loop {
            let request = Request {
                prefix: &folder,
                by_folder: true,
                after: None,
                token: at.token.as_deref(),
            };
            let listed = self.store.list_page(request).await?;
            let count = listed.objects.len() + listed.folders.len();
            at.keys += listed.objects.len();
            at.folders += listed.folders.len();
            let keys = listed.objects.iter().map(|object| &object.key);
            held += keys.chain(&listed.folders).map(String::len).sum::<usize>();
            self.store.check_held(&folder, held)?;
            for object in listed.objects {
                match Role::of(&object.key) {
                    Role::Shard => found.push((object.key.clone(), Item::Shard(object))),
                    Role::NestedLock | Role::Other => page.skipped += 1,
                }
            }
            for child in listed.folders {
                if key::is_hidden(&child[folder.len()..]) {
                    page.skipped += 1;
                    let lock = self.nested_lock(&folder, &child).await?;
                    page.nested_locks.extend(lock);
                } else {
                    found.push((child.clone(), Item::Folder(Cursor::folder(child))));
                }
            }
            let turned = at.pages.turn(listed.next, count);
            at.token = turned.map_err(|reason| self.store.bad_listing(&folder, reason))?;
            if self.is_ordered || at.token.is_none() {
                break;
            }
        }
        // Within a page objects and folders come apart, and in directory buckets in no order.
        found.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        page.items = found.into_iter().map(|(_, item)| item).collect();
        if at.token.is_some() {
            page.next = Some(Cursor::Folder { folder, at });
        } else if at.folders == 0 {
            self.fanout.saw_keys(depth(&folder), 1, at.keys);
        } else {
            self.fanout.saw_folders(depth(&folder), at.folders, at.keys);
        }
        Ok(page)
    }

    async fn run_page(
        &self,
        first: String,
        last: String,
        folders: usize,
        mut at: Position,
    ) -> Result<Page<Cursor>> {
        let mut page = Page::default();
        let request = Request {
            prefix: parent(&first),
            by_folder: false,
            after: at.token.is_none().then_some(first.as_str()),
            token: at.token.as_deref(),
        };
        let listed = self.store.list_page(request).await?;
        let mut objects = listed.objects;
        let count = objects.len();
        objects.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        let mut is_at_end = listed.next.is_none();
        for object in objects {
            if object.key.as_str() > last.as_str() && !object.key.starts_with(&last) {
                is_at_end = true;
                break;
            }
            at.keys += 1;
            match Role::of(&object.key) {
                Role::Shard => page.items.push(Item::Shard(object)),
                Role::NestedLock => {
                    page.skipped += 1;
                    page.nested_locks.push(object.key);
                }
                Role::Other => page.skipped += 1,
            }
        }
        let turned = at.pages.turn(listed.next, count);
        at.token = turned.map_err(|reason| self.store.bad_listing(&first, reason))?;
        if is_at_end {
            self.fanout.saw_keys(depth(&first), folders, at.keys);
        } else {
            page.next = Some(Cursor::Run {
                first,
                last,
                folders,
                at,
            });
        }
        Ok(page)
    }

    /// The lock in `child`, a hidden folder of `folder`, if that is where another run keeps one.
    async fn nested_lock(&self, folder: &str, child: &str) -> Result<Option<String>> {
        let lock = format!("{folder}{WRITER_LOCK}");
        if folder.is_empty() || !lock.starts_with(child) {
            return Ok(None);
        }
        let request = Request {
            prefix: &lock,
            by_folder: false,
            after: None,
            token: None,
        };
        let listed = self.store.list_page(request).await?;
        let is_there = listed.objects.iter().any(|object| object.key == lock);
        Ok(is_there.then_some(lock))
    }
}

impl Cursor {
    fn folder(folder: String) -> Self {
        Self::Folder {
            folder,
            at: Position::default(),
        }
    }
}

#[async_trait]
impl Source for Tree {
    type Cursor = Cursor;

    async fn page(&self, cursor: Cursor) -> Result<Page<Cursor>> {
        match cursor {
            Cursor::Folder { folder, at } => self.folder_page(folder, at).await,
            Cursor::Run {
                first,
                last,
                folders,
                at,
            } => self.run_page(first, last, folders, at).await,
        }
    }

    fn group(&self, neighbours: &mut VecDeque<Cursor>) -> Option<Cursor> {
        let Cursor::Folder { folder: first, at } = neighbours.pop_front()? else {
            return None;
        };
        let wanted = match self.is_ordered {
            true => self.fanout.group(depth(&first)),
            false => 1,
        };
        let mut folders = 1;
        let mut last = None;
        while folders < wanted
            && let Some(Cursor::Folder { folder, .. }) = neighbours.pop_front()
        {
            last = Some(folder);
            folders += 1;
        }
        Some(match last {
            None => Cursor::Folder { folder: first, at },
            Some(last) => Cursor::Run {
                first,
                last,
                folders,
                at,
            },
        })
    }
}

/// Folders between the root of the listing and this one, itself included.
fn depth(folder: &str) -> usize {
    folder.matches('/').count()
}

/// The folder that a folder is in.
fn parent(folder: &str) -> &str {
    let name_end = folder.len().saturating_sub(1);
    match folder[..name_end].rfind('/') {
        Some(slash) => &folder[..=slash],
        None => "",
    }
}

/// One LIST request. Names are relative to the store's prefix.
pub(super) struct Request<'a> {
    pub(super) prefix: &'a str,
    pub(super) by_folder: bool,
    pub(super) after: Option<&'a str>,
    pub(super) token: Option<&'a str>,
}

pub(super) struct Listed {
    pub(super) objects: Vec<ObjectMeta>,
    folders: Vec<String>,
    pub(super) next: Option<String>,
}

impl S3Store {
    /// Directory buckets don't, nor can they list from a key on.
    pub(super) fn lists_in_order(&self) -> bool {
        !self.bucket.ends_with("--x-s3")
    }

    /// Everything below `folder`, in byte order.
    pub(super) async fn list_all(&self, folder: &str, limit: usize) -> Result<Vec<ObjectMeta>> {
        let mut objects = Vec::new();
        let mut held = 0;
        let mut token: Option<String> = None;
        let mut pages = Pages::default();
        loop {
            let request = Request {
                prefix: folder,
                by_folder: false,
                after: None,
                token: token.as_deref(),
            };
            let listed = self.list_page(request).await?;
            let keys = listed.objects.iter();
            held += keys.map(|object| object.key.len()).sum::<usize>();
            self.check_held(folder, held)?;
            let turned = pages.turn(listed.next, listed.objects.len());
            token = turned.map_err(|reason| self.bad_listing(folder, reason))?;
            objects.extend(listed.objects);
            Error::check_count(|| self.uri_of(folder), objects.len(), limit)?;
            if token.is_none() {
                break;
            }
        }
        objects.retain(|object: &ObjectMeta| !object.key.ends_with('/') && !object.key.is_empty());
        objects.sort_unstable_by(|left, right| left.key.cmp(&right.key));
        Ok(objects)
    }

    pub(super) fn bad_listing(&self, folder: &str, reason: String) -> Error {
        Error::bad_answer(self.uri_of(folder), reason)
    }

    pub(super) async fn list_page(&self, wanted: Request<'_>) -> Result<Listed> {
        let client = self.connection.client().await;
        let request = || {
            client
                .list_objects_v2()
                .bucket(&*self.bucket)
                .prefix(self.full_key(wanted.prefix))
                .encoding_type(EncodingType::Url)
                .set_delimiter(wanted.by_folder.then(|| "/".to_string()))
                .set_start_after(wanted.after.map(|after| self.full_key(after)))
                .set_continuation_token(wanted.token.map(str::to_string))
                .send()
        };
        let sort = Sort::of(&self.counters.list);
        let answer = self
            .send(sort, request)
            .await
            .map_err(|failure| failure.into_error(&self.uri_of(wanted.prefix)))?;
        self.take_listing(wanted.prefix, answer)
    }

    fn check_length(&self, key: &str) -> Result<()> {
        match key.len() > LONGEST_KEY {
            false => Ok(()),
            true => Err(Error::invalid(
                &*self.uri,
                format!(
                    "the server lists a key of {} bytes; S3 has {LONGEST_KEY} at most",
                    key.len()
                ),
            )),
        }
    }

    fn check_held(&self, folder: &str, bytes: usize) -> Result<()> {
        match bytes > MOST_HELD {
            false => Ok(()),
            true => Err(Error::invalid(
                self.uri_of(folder),
                format!("the server lists more than {MOST_HELD} bytes of keys in one folder"),
            )),
        }
    }

    fn take_listing(&self, prefix: &str, answer: ListObjectsV2Output) -> Result<Listed> {
        let is_encoded = answer.encoding_type() == Some(&EncodingType::Url);
        let mut listed = Listed {
            objects: Vec::with_capacity(answer.contents().len()),
            folders: Vec::with_capacity(answer.common_prefixes().len()),
            next: None,
        };
        for object in answer.contents() {
            let Some(key) = object.key() else { continue };
            let key = decoded(&self.uri, key, is_encoded)?;
            self.check_length(&key)?;
            let key = self.relative(&key)?.to_string();
            let size = self.size_of(&key, object.size())?;
            listed.objects.push(ObjectMeta {
                key,
                size,
                etag: etag_of(object.e_tag()),
            });
        }
        for folder in answer.common_prefixes() {
            let Some(folder) = folder.prefix() else {
                continue;
            };
            let folder = decoded(&self.uri, folder, is_encoded)?;
            self.check_length(&folder)?;
            listed.folders.push(self.relative(&folder)?.to_string());
        }
        if answer.is_truncated() == Some(true) {
            let token = answer.next_continuation_token.ok_or_else(|| {
                Error::bad_answer(
                    self.uri_of(prefix),
                    "the server cuts a listing short without telling how to go on",
                )
            })?;
            listed.next = Some(token);
        }
        Ok(listed)
    }
}

/// A key of a listing; `+` is how servers encode a space.
pub(super) fn decoded(uri: &str, key: &str, is_encoded: bool) -> Result<String> {
    if !is_encoded {
        return Ok(key.to_string());
    }
    percent_decode(&key.replace('+', " "))
        .ok_or_else(|| Error::bad_answer(uri, format!("it lists `{key}`, badly encoded")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_once() {
        for (listed, key) in [
            ("a%2Fb+c%2B%25%3D%23%C3%A9", "a/b c+%=#é"),
            ("a%2520b", "a%20b"),
            ("plain", "plain"),
        ] {
            assert_eq!(decoded("s3://b/", listed, true).expect(listed), key);
            assert_eq!(decoded("s3://b/", listed, false).expect(listed), listed);
        }
        assert!(decoded("s3://b/", "a%", true).is_err());
    }

    #[test]
    fn folders_have_a_depth_and_a_parent() {
        assert_eq!((depth(""), depth("a/"), depth("a/b/")), (0, 1, 2));
        assert_eq!((parent("a/"), parent("a/b/")), ("", "a/"));
    }
}
