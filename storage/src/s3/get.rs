//! Reading objects, whole or in ranges, through broken connections.

use std::ops::Range;
use std::time::Instant;

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use bytes::{Bytes, BytesMut};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::attempt::{Patience, Sort};
use super::failure::{Failure, Kind};
use super::{S3Store, etag_of, quoted};
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::ranges::{Plan, check_within};
use crate::store::{ETag, ObjectMeta};

/// Requests of one call that are in flight together.
const PARALLEL_PARTS: usize = 16;

/// So many bytes show that a connection works: the budget for retries starts anew.
const PROGRESS: usize = 64 << 10;

/// The size that a whole object is first asked for with, when it may be large.
const SINGLE_READ: u64 = 16 << 20;

/// What a look-up tells of an object.
pub(super) struct Details {
    pub(super) meta: ObjectMeta,
    /// The hash that its writer recorded.
    pub(super) sha256: Option<String>,
}

/// Name of the metadata entry with the hash.
pub(super) const SHA256: &str = "sidecar-sha256";

/// What has been received of a range, and where to go on.
struct Progress {
    wanted: Range<u64>,
    received: BytesMut,
    etag: Option<ETag>,
}

impl S3Store {
    pub(super) async fn look_up(&self, key: &str) -> Result<Details> {
        let full_key = self.full_key(key);
        let client = self.connection.client().await;
        let request = || {
            client
                .head_object()
                .bucket(&*self.bucket)
                .key(&full_key)
                .send()
        };
        let sort = Sort::of(&self.counters.head);
        let answer = self
            .send(sort, request)
            .await
            .map_err(|failure| failure.into_error(&self.uri_of(key)))?;
        let size = self.size_of(key, answer.content_length())?;
        let sha256 = answer
            .metadata()
            .and_then(|metadata| metadata.get(SHA256))
            .cloned();
        Ok(Details {
            meta: ObjectMeta {
                key: key.to_string(),
                size,
                etag: etag_of(answer.e_tag()),
            },
            sha256,
        })
    }

    pub(super) async fn get_whole(&self, key: &str, limit: u64) -> Result<(ObjectMeta, Bytes)> {
        let error = |failure: Failure| failure.into_error(&self.uri_of(key));
        let mut patience = self.patience();
        let (answer, pass) = self
            .request_body(key, None, None, &mut patience)
            .await
            .map_err(error)?;
        let size = self.size_of(key, answer.content_length())?;
        // The body of an answer that is dropped stays with the server.
        Error::check_size(|| self.uri_of(key), size, limit)?;
        let etag = etag_of(answer.e_tag());
        let mut progress = Progress {
            wanted: 0..size,
            received: BytesMut::new(),
            etag: Some(etag.clone()),
        };
        if size <= SINGLE_READ {
            self.receive(key, answer, &mut progress, &mut patience)
                .await
                .map_err(error)?;
            drop(pass);
            self.finish(key, &mut progress, &mut patience).await?;
        } else {
            // Too large for one connection: this answer is dropped unread.
            drop((answer, pass));
            let whole = std::slice::from_ref(&progress.wanted);
            let parts = self.get_ranges(key, whole, Some(&etag)).await?;
            progress.received = parts.into_iter().next().unwrap_or_default().into();
        }
        let meta = ObjectMeta {
            key: key.to_string(),
            size,
            etag,
        };
        Ok((meta, progress.received.freeze()))
    }

    pub(super) async fn get_ranges(
        &self,
        key: &str,
        ranges: &[Range<u64>],
        expected: Option<&ETag>,
    ) -> Result<Vec<Bytes>> {
        for range in ranges {
            check_within(range, u64::MAX)
                .map_err(|reason| Error::invalid(self.uri_of(key), reason))?;
        }
        let plan = Plan::of(ranges);
        let fetched: Vec<(Bytes, ETag)> = stream::iter(plan.fetches().to_vec())
            .map(|range| self.get_range(key, range, expected))
            .buffered(PARALLEL_PARTS)
            .try_collect()
            .await?;
        if fetched.windows(2).any(|pair| pair[0].1 != pair[1].1) {
            return Err(Error::Changed {
                uri: self.uri_of(key),
            });
        }
        let bytes = fetched.into_iter().map(|(bytes, _)| bytes).collect();
        Ok(plan.cut(bytes))
    }

    async fn get_range(
        &self,
        key: &str,
        range: Range<u64>,
        expected: Option<&ETag>,
    ) -> Result<(Bytes, ETag)> {
        let mut patience = self.patience();
        let mut progress = Progress {
            wanted: range,
            received: BytesMut::new(),
            etag: expected.cloned(),
        };
        self.finish(key, &mut progress, &mut patience).await?;
        let etag = progress.etag.unwrap_or_else(|| etag_of(None));
        Ok((progress.received.freeze(), etag))
    }

    /// Asks for what is missing until nothing is.
    async fn finish(
        &self,
        key: &str,
        progress: &mut Progress,
        patience: &mut Patience,
    ) -> Result<()> {
        let error = |failure: Failure| failure.into_error(&self.uri_of(key));
        loop {
            let start = progress.wanted.start + progress.received.len() as u64;
            if start >= progress.wanted.end {
                return Ok(());
            }
            let missing = start..progress.wanted.end;
            let (answer, pass) = self
                .request_body(key, Some(&missing), progress.etag.as_ref(), patience)
                .await
                .map_err(|failure| self.range_error(key, &missing, failure))?;
            let length = self.size_of(key, answer.content_length())?;
            let is_partial = answer.content_range().is_some() || start == 0;
            if length != missing.end - missing.start || !is_partial {
                return Err(Error::invalid(
                    self.uri_of(key),
                    format!(
                        "bytes {}..{} were asked for, but {length} bytes are answered ({}); the \
                         object is shorter, or the server does not know ranges",
                        missing.start,
                        missing.end,
                        answer.content_range().unwrap_or("no range"),
                    ),
                ));
            }
            let etag = etag_of(answer.e_tag());
            if progress.etag.get_or_insert_with(|| etag.clone()) != &etag {
                return Err(Error::Changed {
                    uri: self.uri_of(key),
                });
            }
            self.receive(key, answer, progress, patience)
                .await
                .map_err(error)?;
            drop(pass);
        }
    }

    fn range_error(&self, key: &str, range: &Range<u64>, failure: Failure) -> Error {
        match failure.kind {
            Kind::Hopeless(_) if failure.words.contains("status 416") => Error::invalid(
                self.uri_of(key),
                format!("bytes {}..{} are beyond its end", range.start, range.end),
            ),
            _ => failure.into_error(&self.uri_of(key)),
        }
    }

    async fn request_body(
        &self,
        key: &str,
        range: Option<&Range<u64>>,
        etag: Option<&ETag>,
        patience: &mut Patience,
    ) -> Result<(GetObjectOutput, super::pace::Pass), Failure> {
        let full_key = self.full_key(key);
        let client = self.connection.client().await;
        let request = || {
            client
                .get_object()
                .bucket(&*self.bucket)
                .key(&full_key)
                .set_range(range.map(|range| format!("bytes={}-{}", range.start, range.end - 1)))
                .set_if_match(etag.map(quoted))
                .send()
        };
        let sort = Sort::of(&self.counters.get);
        self.send_patiently(sort, patience, request).await
    }

    /// Takes in a body; one that breaks off, ends early or stalls is left where it stopped.
    async fn receive(
        &self,
        key: &str,
        answer: GetObjectOutput,
        progress: &mut Progress,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        let total = progress.wanted.end - progress.wanted.start;
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        let before = progress.received.len();
        let stall_timeout = self.connection.config.stall_timeout;
        let mut body = answer.body;
        // A body that drips would take for ever without ever standing still.
        let (mut lap, mut brought) = (Instant::now(), 0);
        let words = loop {
            if progress.received.len() >= total {
                progress.received.truncate(total);
                break None;
            }
            let left = stall_timeout.saturating_sub(lap.elapsed());
            match tokio::time::timeout(left, body.next()).await {
                Ok(Some(Ok(bytes))) => {
                    if progress.received.capacity() == 0 {
                        progress.received.reserve(total);
                    }
                    progress.received.extend_from_slice(&bytes);
                    brought += bytes.len();
                    if brought >= PROGRESS {
                        (lap, brought) = (Instant::now(), 0);
                    }
                }
                Ok(Some(Err(error))) => break Some(format!("the body broke off: {error}")),
                Ok(None) => break Some("the body ended early".to_string()),
                Err(_) => {
                    let seconds = stall_timeout.as_secs_f64();
                    break Some(format!(
                        "the body stalled: {brought} bytes in {seconds:.1} s"
                    ));
                }
            }
        };
        let received = progress.received.len() - before;
        Counters::add(&self.counters.bytes_read, received as u64);
        let Some(words) = words else {
            return Ok(());
        };
        if received >= PROGRESS {
            patience.restore();
        }
        let words = format!("{words} after {received} bytes of `{key}`");
        self.pause_after_broken_body(patience, started.elapsed(), words)
            .await
    }

    pub(super) fn size_of(&self, key: &str, length: Option<i64>) -> Result<u64> {
        length
            .and_then(|length| u64::try_from(length).ok())
            .ok_or_else(|| {
                Error::bad_answer(self.uri_of(key), "it does not tell the object's size")
            })
    }
}
