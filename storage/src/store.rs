//! The one trait that every store implements.
//!
//! A store is rooted at a prefix; keys are relative to it, opaque, separated by `/`,
//! and compared as bytes. Nothing outside the prefix can be reached through a store.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};

use crate::error::{Error, Result};

/// A version of an object: equal tags mean equal bytes. Opaque; never a content hash.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ETag(pub Arc<str>);

impl From<String> for ETag {
    fn from(tag: String) -> Self {
        Self(Arc::from(tag))
    }
}

impl From<ETag> for String {
    fn from(etag: ETag) -> Self {
        etag.0.to_string()
    }
}

/// What a listing says of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectMeta {
    /// Key relative to the store's prefix.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Version of the bytes.
    pub etag: ETag,
}

/// One page of a listing: shards in ascending byte order of their keys, across pages too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects whose name ends in `.parquet` and no part of whose key begins with `_` or `.`.
    pub shards: Vec<ObjectMeta>,
    /// How many objects were passed over (folder markers, `_`/`.` names, other suffixes). A
    /// folder that was passed over unread counts once, so this says "some", not how many.
    pub skipped: u64,
    /// Keys of writer locks below the prefix, other than its own (`sub/_sidecar/writer.json`).
    pub nested_locks: Vec<String>,
}

/// Bytes to write, with the hash that identifies them.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The whole object.
    pub bytes: Bytes,
    /// Lower-case hex SHA-256 of `bytes`; stored as object metadata where the store has any.
    pub sha256: String,
}

impl Payload {
    /// Hashes `bytes`, once: keep the payload rather than make it again.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let sha256 = crate::content::sha256_hex(&bytes);
        Self { bytes, sha256 }
    }
}

/// When a write may take effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutCondition {
    /// Only if there is no object of that key (`If-None-Match: *`).
    Create,
    /// Only if the object still has this version (`If-Match`).
    Replace(ETag),
}

impl PutCondition {
    /// The error of this condition not holding for the object at `uri`.
    pub(crate) fn broken(&self, uri: String) -> Error {
        match self {
            Self::Create => Error::Exists { uri },
            Self::Replace(_) => Error::Changed { uri },
        }
    }
}

/// What a write led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Version of the object that is now there.
    pub etag: ETag,
    /// Its size in bytes.
    pub size: u64,
    /// An earlier write of the same bytes (perhaps our own, whose answer was lost) was found.
    pub already_there: bool,
}

/// Requests a store has made since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RequestCounts {
    /// LIST pages, or folders read.
    pub list: u64,
    /// Metadata look-ups.
    pub head: u64,
    /// Reads of an object or of a range of it, retries included.
    pub get: u64,
    /// Writes, parts of a multipart upload included.
    pub put: u64,
    /// Deletes, aborts of uploads included.
    pub delete: u64,
    /// Answers that asked to slow down.
    pub slow_down: u64,
    /// Requests that were sent again.
    pub retries: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
}

/// What is left of a write that did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Key of the object that was to be written; none if it can't be told from what is left.
    pub key: Option<String>,
    /// How the store knows it again.
    pub id: String,
}

/// Leave to write, which somebody else may take away at any time.
#[async_trait]
pub trait Permit: Debug + Send + Sync {
    /// Asks for leave; with `anew` whatever was answered before.
    async fn ask(&self, anew: bool) -> Result<(), Withheld>;

    /// Whether the last answer is still good. Looks at nothing but the time.
    fn holds(&self) -> bool;
}

/// Leave that was not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// Why.
    pub reason: String,
    /// Whether it is gone for good; otherwise nobody can tell for now.
    pub is_final: bool,
}

/// An object store, rooted at a prefix.
#[async_trait]
pub trait Store: Debug + Send + Sync {
    /// The prefix as a URI that ends in `/`, for messages.
    fn uri(&self) -> &str;

    /// All shards below the prefix. Sub-prefixes are discovered and listed in parallel; pages
    /// come in ascending byte order of keys, and only a bounded number of them is held.
    fn list_shards(&self) -> BoxStream<'_, Result<ListPage>>;

    /// All objects below `folder` (relative, ends in `/` or is empty) whatever their names,
    /// in ascending byte order. For small folders: state files, an index.
    async fn list_folder(&self, folder: &str) -> Result<Vec<ObjectMeta>> {
        self.list_bounded(folder, usize::MAX).await
    }

    /// As [`Store::list_folder`], for folders that somebody else may have filled: no more than
    /// `limit` objects and a page are held, and a folder that has more is `Error::TooLarge`.
    async fn list_bounded(&self, folder: &str, limit: usize) -> Result<Vec<ObjectMeta>>;

    /// Those of `keys` that exist. `keys` are in ascending byte order, and so is the answer.
    /// Where a store can list from a key on, neighbours are answered for by one request a
    /// thousand; keys that are far apart are looked at one by one, many at once.
    async fn find(&self, keys: &[String]) -> Result<Vec<ObjectMeta>> {
        look_at_each(self, keys).await
    }

    /// Metadata of one object; `Error::NotFound` if there is none.
    async fn head(&self, key: &str) -> Result<ObjectMeta>;

    /// A whole object and its metadata.
    async fn read(&self, key: &str) -> Result<(ObjectMeta, Bytes)> {
        self.read_bounded(key, u64::MAX).await
    }

    /// As [`Store::read`], for objects that somebody else may have written: one of more than
    /// `limit` bytes is `Error::TooLarge`, and nothing of its body is taken in.
    async fn read_bounded(&self, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)>;

    /// Ranges of one object, in the order asked for. Neighbours are fetched together where the
    /// gap costs less than another request. With `expected`, a changed object is
    /// `Error::Changed` and never a mix of two versions.
    async fn read_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        expected: Option<&ETag>,
    ) -> Result<Vec<Bytes>>;

    /// Writes a whole object atomically, or not at all. An object that is there already with
    /// the same content hash is success (`already_there`); with another one it is
    /// `Error::Exists` (`Create`) or `Error::Changed` (`Replace`).
    async fn put(&self, key: &str, payload: Payload, condition: PutCondition) -> Result<Published>;

    /// As [`Store::put`], with leave: `permit` is asked right before the write takes effect, as
    /// late as the store lets anybody ask. What is on its way to a server then can't be called
    /// back.
    ///
    /// # Errors
    /// `Error::Withheld` without leave: nothing was written.
    async fn put_permitted(
        &self,
        key: &str,
        payload: Payload,
        condition: PutCondition,
        permit: Arc<dyn Permit>,
    ) -> Result<Published> {
        let asked = permit.ask(false).await;
        asked.map_err(|withheld| Error::withheld(format!("{}{key}", self.uri()), withheld))?;
        self.put(key, payload, condition).await
    }

    /// Makes sure that conditions are kept here, on which a lock rests: by writes to `key`, which
    /// holds `payload` and is the caller's, that have to be refused. Stores that keep theirs by
    /// themselves need no proof.
    ///
    /// # Errors
    /// `Error::Invalid` if they are not kept; the object is removed then.
    async fn prove_conditions(&self, key: &str, payload: &Payload) -> Result<()> {
        let _ = (key, payload);
        Ok(())
    }

    /// Deletes an object, only if it still has version `expected` where given. No object is
    /// success.
    async fn delete(&self, key: &str, expected: Option<&ETag>) -> Result<()>;

    /// What killed writers left below the prefix: temporary files, unfinished multipart uploads.
    /// Some of it, if there is a lot.
    async fn leftovers(&self) -> Result<Vec<Leftover>>;

    /// Removes some of them. Only for the holder of the writer lock. Returns how many.
    async fn sweep(&self, leftovers: &[Leftover]) -> Result<u64>;

    /// Requests made since the store was opened.
    fn requests(&self) -> RequestCounts;
}

/// Look-ups in flight.
const LOOK_UPS: usize = 32;

/// Those of `keys` that exist, each by a look-up of its own.
pub(crate) async fn look_at_each(
    store: &(impl Store + ?Sized),
    keys: &[String],
) -> Result<Vec<ObjectMeta>> {
    let mut looks = stream::iter(keys.to_vec())
        .map(|key| async move { store.head(&key).await })
        .buffered(LOOK_UPS);
    let mut found = Vec::new();
    while let Some(look) = looks.next().await {
        match look {
            Ok(meta) => found.push(meta),
            // No object has a key that can't be one.
            Err(Error::NotFound { .. } | Error::Invalid { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
