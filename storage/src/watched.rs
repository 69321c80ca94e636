//! A store that remembers its last failure, for readers that turn errors into text.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

use crate::error::{Error, Result};
use crate::store::{
    ETag, Leftover, ListPage, ObjectMeta, Payload, Permit, Published, PutCondition, RequestCounts,
    Store,
};

/// Passes everything on, and notes in words when the store refuses, is away or fails, or when an
/// object is gone or changed. One that is unusable is not the store's failure.
#[derive(Debug)]
pub struct Watched {
    store: Arc<dyn Store>,
    failure: Mutex<Option<Failure>>,
}

/// What went wrong, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The store refuses, is away or fails.
    OfStore(String),
    /// An object has gone, or has another version.
    Changed(String),
}

impl Watched {
    /// Watches a store from now on.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            failure: Mutex::default(),
        }
    }

    /// The failure since the last call, if there was one.
    pub fn take_failure(&self) -> Option<Failure> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }

    fn note<T>(&self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome
            && let Some(new) = failure(error)
        {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            *failure = Some(new);
        }
        outcome
    }
}

fn failure(error: &Error) -> Option<Failure> {
    match error {
        Error::Refused { .. }
        | Error::Unavailable { .. }
        | Error::BadAnswer { .. }
        | Error::Io { .. } => Some(Failure::OfStore(error.to_string())),
        Error::NotFound { .. } | Error::Changed { .. } => Some(Failure::Changed(error.to_string())),
        Error::NoBucket { .. }
        | Error::Exists { .. }
        | Error::Withheld { .. }
        | Error::TooLarge { .. }
        | Error::Invalid { .. } => None,
    }
}

#[async_trait]
impl Store for Watched {
    fn uri(&self) -> &str {
        self.store.uri()
    }

    fn list_shards(&self) -> BoxStream<'_, Result<ListPage>> {
        use futures::StreamExt;
        self.store.list_shards().map(|page| self.note(page)).boxed()
    }

    async fn list_bounded(&self, folder: &str, limit: usize) -> Result<Vec<ObjectMeta>> {
        self.note(self.store.list_bounded(folder, limit).await)
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        self.note(self.store.head(key).await)
    }

    async fn read_bounded(&self, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)> {
        self.note(self.store.read_bounded(key, limit).await)
    }

    async fn read_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        expected: Option<&ETag>,
    ) -> Result<Vec<Bytes>> {
        self.note(self.store.read_ranges(key, ranges, expected).await)
    }

    async fn put(&self, key: &str, payload: Payload, condition: PutCondition) -> Result<Published> {
        self.note(self.store.put(key, payload, condition).await)
    }

    async fn put_permitted(
        &self,
        key: &str,
        payload: Payload,
        condition: PutCondition,
        permit: Arc<dyn Permit>,
    ) -> Result<Published> {
        let put = self.store.put_permitted(key, payload, condition, permit);
        self.note(put.await)
    }

    async fn prove_conditions(&self, key: &str, payload: &Payload) -> Result<()> {
        self.note(self.store.prove_conditions(key, payload).await)
    }

    async fn delete(&self, key: &str, expected: Option<&ETag>) -> Result<()> {
        self.note(self.store.delete(key, expected).await)
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        self.note(self.store.leftovers().await)
    }

    async fn sweep(&self, leftovers: &[Leftover]) -> Result<u64> {
        self.note(self.store.sweep(leftovers).await)
    }

    fn requests(&self) -> RequestCounts {
        self.store.requests()
    }
}
