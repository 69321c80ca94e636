//! Large objects: sent in parts, which become the object all at once or not at all.

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::attempt::Sort;
use super::failure::{Failure, Kind};
use super::get::SHA256;
use super::put::headers;
use super::{S3Store, etag_of};
use crate::store::{ETag, Payload, Permit, PutCondition};

const PART: usize = 16 << 20;
const MOST_PARTS: usize = 10_000;
const PARALLEL_PARTS: usize = 4;

impl S3Store {
    pub(super) async fn put_in_parts(
        &self,
        key: &str,
        payload: &Payload,
        condition: &PutCondition,
        permit: Option<&dyn Permit>,
    ) -> Result<ETag, Failure> {
        let full_key = self.full_key(key);
        let upload = self.begin_upload(&full_key, payload).await?;
        let outcome = match self.send_parts(&full_key, &upload, payload).await {
            Ok(parts) => {
                let upload = (&*full_key, &*upload);
                self.complete(upload, parts, condition, permit).await
            }
            Err(failure) => Err(failure),
        };
        if let Err(failure) = &outcome
            && failure.kind != Kind::Missing
        {
            // What can't be aborted now is left to the next sweep.
            if let Err(abort) = self.abort(&full_key, &upload).await {
                tracing::warn!(
                    uri = self.uri_of(key),
                    error = abort.words,
                    "can't abort an unfinished upload; the next sweep will"
                );
            }
        }
        outcome
    }

    async fn begin_upload(&self, full_key: &str, payload: &Payload) -> Result<String, Failure> {
        let client = self.connection.client().await;
        let request = || {
            client
                .create_multipart_upload()
                .bucket(&*self.bucket)
                .key(full_key)
                .metadata(SHA256, &payload.sha256)
                .send()
        };
        let sort = Sort::of(&self.counters.put);
        let answer = self.send(sort, request).await?;
        answer.upload_id.ok_or_else(|| {
            let words = "an upload was begun without an id".to_string();
            self.patience().failure(Kind::Hopeless(""), words)
        })
    }

    async fn send_parts(
        &self,
        full_key: &str,
        upload: &str,
        payload: &Payload,
    ) -> Result<Vec<CompletedPart>, Failure> {
        let client = self.connection.client().await;
        let part_size = PART.max(payload.bytes.len().div_ceil(MOST_PARTS));
        let starts = (0..payload.bytes.len()).step_by(part_size);
        let parts = starts.zip(1_i32..).map(|(start, number)| {
            let end = (start + part_size).min(payload.bytes.len());
            (number, payload.bytes.slice(start..end))
        });
        stream::iter(parts)
            .map(|(number, bytes)| async move {
                let sort = Sort {
                    counter: &self.counters.put,
                    upload: bytes.len() as u64,
                    permit: None,
                };
                let request = || {
                    client
                        .upload_part()
                        .bucket(&*self.bucket)
                        .key(full_key)
                        .upload_id(upload)
                        .part_number(number)
                        .body(ByteStream::from(bytes.clone()))
                        .send()
                };
                let answer = self.send(sort, request).await?;
                // Each part's checksum was checked as it came in. It is not repeated here: an
                // upload that was begun without naming an algorithm must not be completed with one.
                Ok(CompletedPart::builder()
                    .part_number(number)
                    .set_e_tag(answer.e_tag)
                    .build())
            })
            .buffered(PARALLEL_PARTS)
            .try_collect()
            .await
    }

    async fn complete(
        &self,
        (full_key, upload): (&str, &str),
        parts: Vec<CompletedPart>,
        condition: &PutCondition,
        permit: Option<&dyn Permit>,
    ) -> Result<ETag, Failure> {
        let client = self.connection.client().await;
        let (if_none_match, if_match) = headers(condition);
        let parts = CompletedMultipartUpload::builder()
            .set_parts(Some(parts))
            .build();
        let request = || {
            client
                .complete_multipart_upload()
                .bucket(&*self.bucket)
                .key(full_key)
                .upload_id(upload)
                .multipart_upload(parts.clone())
                .set_if_none_match(if_none_match.clone())
                .set_if_match(if_match.clone())
                .send()
        };
        let sort = Sort {
            counter: &self.counters.put,
            // Servers may take minutes to join the parts; a second for each.
            upload: (parts.parts().len() as u64) << 20,
            permit,
        };
        let answer = self.send(sort, request).await?;
        Ok(etag_of(answer.e_tag()))
    }

    pub(super) async fn abort(&self, full_key: &str, upload: &str) -> Result<(), Failure> {
        let client = self.connection.client().await;
        let request = || {
            client
                .abort_multipart_upload()
                .bucket(&*self.bucket)
                .key(full_key)
                .upload_id(upload)
                .send()
        };
        let sort = Sort::of(&self.counters.delete);
        match self.send(sort, request).await {
            Ok(_) => Ok(()),
            Err(failure) if failure.kind == Kind::Missing => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}
