//! Writing and deleting objects on condition.

use aws_sdk_s3::primitives::ByteStream;

use super::attempt::Sort;
use super::failure::{Failure, Kind};
use super::get::SHA256;
use super::{S3Store, etag_of, quoted};
use crate::content::sha256_hex;
use crate::counting::Counters;
use crate::error::{Error, Result};
use crate::store::{ETag, Payload, Permit, Published, PutCondition};

/// Larger objects are sent in parts.
pub(super) const SINGLE_PUT: usize = 64 << 20;

/// How often a create starts anew because the object that stood in its way has vanished.
const VANISHED_ATTEMPTS: u32 = 5;

/// The headers of a condition.
pub(super) fn headers(condition: &PutCondition) -> (Option<String>, Option<String>) {
    match condition {
        PutCondition::Create => (Some("*".to_string()), None),
        PutCondition::Replace(etag) => (None, Some(quoted(etag))),
    }
}

impl S3Store {
    pub(super) async fn publish(
        &self,
        key: &str,
        payload: &Payload,
        condition: &PutCondition,
        permit: Option<&dyn Permit>,
    ) -> Result<Published> {
        for _ in 0..VANISHED_ATTEMPTS {
            let outcome = if payload.bytes.len() > SINGLE_PUT {
                self.put_in_parts(key, payload, condition, permit).await
            } else {
                self.put_at_once(key, payload, condition, permit).await
            };
            let failure = match outcome {
                Ok(etag) => {
                    Counters::add(&self.counters.bytes_written, payload.bytes.len() as u64);
                    return Ok(Published {
                        etag,
                        size: payload.bytes.len() as u64,
                        already_there: false,
                    });
                }
                Err(failure) => failure,
            };
            // `Missing` is how servers answer a condition on an object that is gone, and an
            // upload that an answer we never got has completed.
            if !matches!(failure.kind, Kind::ConditionBroken | Kind::Missing) {
                return Err(failure.into_error(&self.uri_of(key)));
            }
            if let Some(published) = self.found(key, payload, condition).await? {
                return Ok(published);
            }
        }
        Err(condition.broken(self.uri_of(key)))
    }

    pub(super) async fn put_at_once(
        &self,
        key: &str,
        payload: &Payload,
        condition: &PutCondition,
        permit: Option<&dyn Permit>,
    ) -> Result<ETag, Failure> {
        let full_key = self.full_key(key);
        let (if_none_match, if_match) = headers(condition);
        let client = self.connection.client().await;
        let request = || {
            client
                .put_object()
                .bucket(&*self.bucket)
                .key(&full_key)
                .set_if_none_match(if_none_match.clone())
                .set_if_match(if_match.clone())
                .metadata(SHA256, &payload.sha256)
                .body(ByteStream::from(payload.bytes.clone()))
                .send()
        };
        let sort = Sort {
            counter: &self.counters.put,
            upload: payload.bytes.len() as u64,
            permit,
        };
        let answer = self.send(sort, request).await?;
        if answer.e_tag().is_none() {
            // Whoever answers like that has written nothing.
            let words = "a write is answered without an ETag".to_owned();
            return Err(self.patience().failure(Kind::Garbled, words));
        }
        Ok(etag_of(answer.e_tag()))
    }

    /// The condition did not hold. Success all the same if the very bytes are there, perhaps by
    /// an earlier attempt of ours whose answer was lost; none if there is nothing in the way.
    async fn found(
        &self,
        key: &str,
        payload: &Payload,
        condition: &PutCondition,
    ) -> Result<Option<Published>> {
        let broken = || Err(condition.broken(self.uri_of(key)));
        let details = match self.look_up(key).await {
            Ok(details) => details,
            Err(Error::NotFound { .. }) if *condition == PutCondition::Create => return Ok(None),
            Err(Error::NotFound { .. }) => return broken(),
            Err(error) => return Err(error),
        };
        if details.meta.size != payload.bytes.len() as u64 {
            return broken();
        }
        let (meta, sha256) = match details.sha256 {
            Some(sha256) => (details.meta, sha256),
            // Not written by us; copied from a disk, perhaps.
            None => {
                let (meta, bytes) = match self.get_whole(key, details.meta.size).await {
                    Err(Error::TooLarge { .. }) => return broken(),
                    read => read?,
                };
                (meta, sha256_hex(&bytes))
            }
        };
        if sha256 != payload.sha256 {
            return broken();
        }
        Ok(Some(Published {
            etag: meta.etag,
            size: meta.size,
            already_there: true,
        }))
    }

    pub(super) async fn remove(&self, key: &str, expected: Option<&ETag>) -> Result<()> {
        let full_key = self.full_key(key);
        let client = self.connection.client().await;
        let request = || {
            client
                .delete_object()
                .bucket(&*self.bucket)
                .key(&full_key)
                .set_if_match(expected.map(quoted))
                .send()
        };
        let sort = Sort::of(&self.counters.delete);
        match self.send(sort, request).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.kind == Kind::Missing => Ok(()),
            // Some servers answer a condition on an object that is gone like a broken one.
            Err(failure) if failure.kind == Kind::ConditionBroken => {
                match self.look_up(key).await {
                    Err(Error::NotFound { .. }) => Ok(()),
                    Err(error) => Err(error),
                    Ok(_) => Err(failure.into_error(&self.uri_of(key))),
                }
            }
            Err(failure) => Err(failure.into_error(&self.uri_of(key))),
        }
    }
}
