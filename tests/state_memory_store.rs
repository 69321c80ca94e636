//! A store in memory that lets others run before each call, in an order that a seed decides:
//! races that a file system or a server would show once in a million runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use storage::{
    ETag, Error, Leftover, ListPage, ObjectMeta, Payload, Published, PutCondition, RequestCounts,
    Result, Store,
};

/// The objects of a bucket, by whole key.
#[derive(Debug, Default)]
pub struct Bucket {
    objects: Mutex<Objects>,
    random: Mutex<u64>,
}

#[derive(Debug, Default)]
struct Objects {
    versions: u64,
    by_key: BTreeMap<String, (ETag, Bytes)>,
}

impl Bucket {
    /// An empty bucket whose calls are interleaved as `seed` says.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            objects: Mutex::default(),
            random: Mutex::new(seed * 2 + 1),
        })
    }

    /// A store rooted at `prefix`, which is empty or ends in `/`.
    pub fn open(self: &Arc<Self>, prefix: &str) -> Arc<dyn Store> {
        Arc::new(MemoryStore {
            bucket: Arc::clone(self),
            prefix: prefix.to_owned(),
            uri: format!("s3://memory/{prefix}"),
        })
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets others run for a while.
    async fn interleave(&self) {
        let turns = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            *random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (*random >> 33) % 8
        };
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }
}

#[derive(Debug)]
struct MemoryStore {
    bucket: Arc<Bucket>,
    prefix: String,
    uri: String,
}

impl MemoryStore {
    fn error_uri(&self, key: &str) -> String {
        format!("{}{key}", self.uri)
    }

    fn listed(&self, folder: &str) -> Vec<ObjectMeta> {
        let root = format!("{}{folder}", self.prefix);
        let objects = self.bucket.objects();
        objects
            .by_key
            .range(root.clone()..)
            .take_while(|(key, _)| key.starts_with(&root))
            .map(|(key, (etag, bytes))| ObjectMeta {
                key: key[self.prefix.len()..].to_owned(),
                size: bytes.len() as u64,
                etag: etag.clone(),
            })
            .collect()
    }
}

#[async_trait::async_trait]
impl Store for MemoryStore {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn list_shards(&self) -> BoxStream<'_, Result<ListPage>> {
        let page = async {
            self.bucket.interleave().await;
            let mut page = ListPage::default();
            for object in self.listed("") {
                if object.key.ends_with("/_sidecar/writer.json") {
                    page.nested_locks.push(object.key);
                } else if object.key.ends_with(".parquet") {
                    page.shards.push(object);
                } else {
                    page.skipped += 1;
                }
            }
            Ok(page)
        };
        stream::once(page).boxed()
    }

    async fn list_bounded(&self, folder: &str, limit: usize) -> Result<Vec<ObjectMeta>> {
        self.bucket.interleave().await;
        let listed = self.listed(folder);
        if listed.len() > limit {
            return Err(Error::TooLarge {
                uri: self.error_uri(folder),
                found: format!("{} objects", listed.len()),
                limit: limit as u64,
            });
        }
        Ok(listed)
    }

    async fn head(&self, key: &str) -> Result<ObjectMeta> {
        Ok(self.read(key).await?.0)
    }

    async fn read_bounded(&self, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)> {
        self.bucket.interleave().await;
        let found = self
            .bucket
            .objects()
            .by_key
            .get(&format!("{}{key}", self.prefix))
            .cloned();
        self.bucket.interleave().await;
        let (etag, bytes) = found.ok_or_else(|| Error::NotFound {
            uri: self.error_uri(key),
        })?;
        if bytes.len() as u64 > limit {
            return Err(Error::TooLarge {
                uri: self.error_uri(key),
                found: format!("{} bytes", bytes.len()),
                limit,
            });
        }
        Ok((
            ObjectMeta {
                key: key.to_owned(),
                size: bytes.len() as u64,
                etag,
            },
            bytes,
        ))
    }

    async fn read_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        _expected: Option<&ETag>,
    ) -> Result<Vec<Bytes>> {
        let (_, bytes) = self.read(key).await?;
        let slice = |range: &Range<u64>| bytes.slice(range.start as usize..range.end as usize);
        Ok(ranges.iter().map(slice).collect())
    }

    async fn put(&self, key: &str, payload: Payload, condition: PutCondition) -> Result<Published> {
        self.bucket.interleave().await;
        let uri = self.error_uri(key);
        let published = {
            let mut objects = self.bucket.objects();
            let whole_key = format!("{}{key}", self.prefix);
            match (objects.by_key.get(&whole_key), condition) {
                (Some(_), PutCondition::Create) => return Err(Error::Exists { uri }),
                (None, PutCondition::Replace(_)) => return Err(Error::NotFound { uri }),
                (Some((etag, _)), PutCondition::Replace(expected)) if *etag != expected => {
                    return Err(Error::Changed { uri });
                }
                _ => {}
            }
            objects.versions += 1;
            let etag = ETag(objects.versions.to_string().into());
            let size = payload.bytes.len() as u64;
            objects
                .by_key
                .insert(whole_key, (etag.clone(), payload.bytes));
            Published {
                etag,
                size,
                already_there: false,
            }
        };
        self.bucket.interleave().await;
        Ok(published)
    }

    async fn delete(&self, key: &str, _expected: Option<&ETag>) -> Result<()> {
        self.bucket.interleave().await;
        self.bucket
            .objects()
            .by_key
            .remove(&format!("{}{key}", self.prefix));
        Ok(())
    }

    async fn leftovers(&self) -> Result<Vec<Leftover>> {
        Ok(Vec::new())
    }

    async fn sweep(&self, _leftovers: &[Leftover]) -> Result<u64> {
        Ok(0)
    }

    fn requests(&self) -> RequestCounts {
        RequestCounts::default()
    }
}
