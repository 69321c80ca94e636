//! Files on disk.
//!
//! A key is a path below the root; a folder exists as long as somebody made it, and an empty
//! one holds no objects. Links are followed when reading. A write replaces a link, never what it
//! points to, and is refused where a linked folder leads out of the root. Files of other owners that appear half-written are theirs to publish
//! better: our own appear whole, by a rename.

mod exclusive;
mod folder_sync;
mod publish;
mod read;
mod sweep;
mod version;
mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use std::ops::Range;

use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key;
use crate::listing;
use crate::store::{
    ETag, Leftover, ListPage, ObjectMeta, Payload, Permit, Published, PutCondition, RequestCounts,
    Store,
};

/// A folder on disk.
#[derive(Debug)]
pub(crate) struct LocalStore {
    shared: Arc<Root>,
}

/// What the blocking calls of a store share.
#[derive(Debug)]
struct Root {
    /// Ends in `/`.
    uri: String,
    path: PathBuf,
    counters: Counters,
    folders: folder_sync::FolderSync,
}

impl Root {
    fn path_of(&self, key: &str) -> PathBuf {
        self.path.join(key)
    }

    fn uri_of(&self, key: &str) -> String {
        format!("{}{key}", self.uri)
    }
}

impl LocalStore {
    pub(crate) fn new(uri: &str, path: &Path) -> Self {
        let shared = Arc::new(Root {
            uri: uri.to_string(),
            path: path.to_path_buf(),
            counters: Counters::default(),
            folders: folder_sync::FolderSync::default(),
        });
        Self { shared }
    }

    async fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Root) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let root = Arc::clone(&self.shared);
        blocking(move || call(&root)).await
    }
}

/// Runs a call that waits for the disk where it holds up nobody.
async fn blocking<T: Send + 'static>(
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(call).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(error) => Err(Error::Unavailable {
            uri: "local file".to_string(),
            reason: "the program is shutting down".to_string(),
            attempts: 1,
            seconds: 0.0,
            source: Some(Box::new(error)),
        }),
    }
}

#[async_trait]
impl Store for LocalStore {
    fn uri(&self) -> &str {
        &self.shared.uri
    }

    fn list_shards(&self) -> BoxStream<'_, Result<ListPage>> {
        let source = Arc::new(walk::Tree::new(Arc::clone(&self.shared)));
        listing::walk(&self.shared.uri, source, walk::Cursor::root())
    }

    async fn list_bounded(&self, folder: &str, limit: usize) -> Result<Vec<ObjectMeta>> {
        key::check_folder(&self.shared.uri, folder)?;
        let folder = folder.to_string();
        self.blocking(move |root| walk::list_all(root, &folder, limit))
            .await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        key::check(&self.shared.uri, key)?;
        let key = key.to_string();
        self.blocking(move |root| read::head(root, &key)).await
    }

    async fn read_bounded(&self, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)> {
        key::check(&self.shared.uri, key)?;
        let key = key.to_string();
        self.blocking(move |root| read::whole(root, &key, limit))
            .await
    }

    async fn read_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        expected: Option<&ETag>,
    ) -> Result<Vec<Bytes>> {
        key::check(&self.shared.uri, key)?;
        let key = key.to_string();
        let ranges = ranges.to_vec();
        let expected = expected.cloned();
        self.blocking(move |root| read::ranges(root, &key, &ranges, expected.as_ref()))
            .await
    }

    async fn put(&self, key: &str, payload: Payload, condition: PutCondition) -> Result<Published> {
        key::check(&self.shared.uri, key)?;
        let key = key.to_string();
        self.blocking(move |root| publish::put(root, &key, &payload, &condition))
            .await
    }

    async fn put_permitted(
        &self,
        key: &str,
        payload: Payload,
        condition: PutCondition,
        permit: Arc<dyn Permit>,
    ) -> Result<Published> {
        key::check(&self.shared.uri, key)?;
        publish::put_permitted(&self.shared, key, payload, condition, permit).await
    }

    async fn prove_conditions(&self, key: &str, _payload: &Payload) -> Result<()> {
        key::check(&self.shared.uri, key)?;
        let key = key.to_string();
        self.blocking(move |root| exclusive::prove(root, &key))
            .await
    }

    async fn delete(&self, key: &str, expected: Option<&ETag>) -> Result<()> {
        key::check(&self.shared.uri, key)?;
        let key = key.to_string();
        let expected = expected.cloned();
        self.blocking(move |root| publish::delete(root, &key, expected.as_ref()))
            .await
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        self.blocking(sweep::leftovers).await
    }

    async fn sweep(&self, leftovers: &[Leftover]) -> Result<u64> {
        let leftovers = leftovers.to_vec();
        self.blocking(move |root| sweep::sweep(root, &leftovers))
            .await
    }

    fn requests(&self) -> RequestCounts {
        self.shared.counters.snapshot()
    }
}
