//! A prefix in a bucket, by the AWS SDK.

mod attempt;
mod connection;
mod failure;
mod fanout;
mod find;
mod get;
mod http;
mod list;
mod multipart;
mod pace;
mod pages;
mod prove;
mod provided;
mod put;
mod sweep;
mod web_identity;

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;

pub(crate) use connection::Connection;
pub use http::HttpClients;
pub use web_identity::{WebIdentity, assume_role_with_web_identity};

use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::key;
use crate::listing;
use crate::store::{
    ETag, Leftover, ListPage, ObjectMeta, Payload, Permit, Published, PutCondition, RequestCounts,
    Store,
};
use pace::Pacer;

/// A prefix in a bucket. Cloning is cheap.
#[derive(Debug, Clone)]
pub(crate) struct S3Store {
    /// Ends in `/`.
    uri: Arc<str>,
    bucket: Arc<str>,
    /// Empty, or ends in `/`.
    prefix: Arc<str>,
    connection: Arc<Connection>,
    pacer: Arc<Pacer>,
    counters: Arc<Counters>,
}

impl S3Store {
    /// `uri` is that of the prefix `key` in `bucket`, and ends in `/`.
    pub(crate) fn new(uri: &str, bucket: &str, key: &str, connection: Arc<Connection>) -> Self {
        let prefix = match key {
            "" => String::new(),
            key => format!("{}/", key.trim_end_matches('/')),
        };
        Self {
            uri: Arc::from(uri),
            bucket: Arc::from(bucket),
            prefix: Arc::from(prefix),
            pacer: connection.pacer(bucket),
            connection,
            counters: Arc::default(),
        }
    }

    fn full_key(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    fn uri_of(&self, key: &str) -> String {
        format!("{}{key}", self.uri)
    }

    /// The key below our prefix; an error if the server lists something else.
    fn relative<'a>(&self, full_key: &'a str) -> Result<&'a str> {
        full_key.strip_prefix(&*self.prefix).ok_or_else(|| {
            Error::bad_answer(
                &*self.uri,
                format!("it lists `{full_key}`, which is not below the prefix"),
            )
        })
    }
}

/// The tag without the quotes that some answers have and others lack.
fn etag_of(tag: Option<&str>) -> ETag {
    ETag(Arc::from(tag.unwrap_or_default().trim_matches('"')))
}

/// The tag as conditions want it.
fn quoted(etag: &ETag) -> String {
    if etag.0.starts_with("W/") {
        return etag.0.to_string();
    }
    format!("\"{}\"", etag.0)
}

#[async_trait]
impl Store for S3Store {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn list_shards(&self) -> BoxStream<'_, Result<ListPage>> {
        let (source, root) = list::Tree::new(self.clone());
        listing::walk(&self.uri, Arc::new(source), root)
    }

    async fn list_bounded(&self, folder: &str, limit: usize) -> Result<Vec<ObjectMeta>> {
        key::check_folder(&self.uri, folder)?;
        self.list_all(folder, limit).await
    }

    async fn find(&self, keys: &[String]) -> Result<Vec<ObjectMeta>> {
        self.find_neighbours(keys).await
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        key::check(&self.uri, key)?;
        Ok(self.look_up(key).await?.meta)
    }

    async fn read_bounded(&self, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)> {
        key::check(&self.uri, key)?;
        self.get_whole(key, limit).await
    }

    async fn read_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        expected: Option<&ETag>,
    ) -> Result<Vec<Bytes>> {
        key::check(&self.uri, key)?;
        self.get_ranges(key, ranges, expected).await
    }

    async fn put(&self, key: &str, payload: Payload, condition: PutCondition) -> Result<Published> {
        key::check(&self.uri, key)?;
        self.publish(key, &payload, &condition, None).await
    }

    async fn put_permitted(
        &self,
        key: &str,
        payload: Payload,
        condition: PutCondition,
        permit: Arc<dyn Permit>,
    ) -> Result<Published> {
        key::check(&self.uri, key)?;
        self.publish(key, &payload, &condition, Some(&*permit))
            .await
    }

    async fn prove_conditions(&self, key: &str, payload: &Payload) -> Result<()> {
        key::check(&self.uri, key)?;
        self.prove(key, payload).await
    }

    async fn delete(&self, key: &str, expected: Option<&ETag>) -> Result<()> {
        key::check(&self.uri, key)?;
        self.remove(key, expected).await
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        self.uploads().await
    }

    async fn sweep(&self, leftovers: &[Leftover]) -> Result<u64> {
        self.abort_uploads(leftovers).await
    }

    fn requests(&self) -> RequestCounts {
        self.counters.snapshot()
    }
}
