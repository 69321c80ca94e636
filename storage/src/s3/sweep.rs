//! Aborting what killed writers left: uploads that were begun and never completed.

use aws_sdk_s3::types::EncodingType;

use super::S3Store;
use super::attempt::Sort;
use super::list::decoded;
use crate::error::Result;

impl S3Store {
    pub(super) async fn abort_uploads(&self) -> Result<u64> {
        let client = self.connection.client().await;
        let mut aborted = 0;
        let mut key_marker: Option<String> = None;
        let mut upload_marker: Option<String> = None;
        loop {
            let request = || {
                client
                    .list_multipart_uploads()
                    .bucket(&*self.bucket)
                    .prefix(&*self.prefix)
                    .encoding_type(EncodingType::Url)
                    .set_key_marker(key_marker.clone())
                    .set_upload_id_marker(upload_marker.clone())
                    .send()
            };
            let sort = Sort::of(&self.counters.list);
            let answer = self
                .send(sort, request)
                .await
                .map_err(|failure| failure.into_error(&self.uri))?;
            let is_encoded = answer.encoding_type() == Some(&EncodingType::Url);
            for upload in answer.uploads() {
                let (Some(key), Some(id)) = (upload.key(), upload.upload_id()) else {
                    continue;
                };
                let key = decoded(&self.uri, key, is_encoded)?;
                // Servers that take the prefix lightly must not make us abort a stranger's.
                if !key.starts_with(&*self.prefix) {
                    continue;
                }
                self.abort(&key, id).await.map_err(|failure| {
                    failure.into_error(&format!("s3://{}/{key}", self.bucket))
                })?;
                aborted += 1;
            }
            if answer.is_truncated() != Some(true) {
                return Ok(aborted);
            }
            key_marker = match answer.next_key_marker() {
                Some(marker) => Some(decoded(&self.uri, marker, is_encoded)?),
                None => return Ok(aborted),
            };
            upload_marker = answer.next_upload_id_marker().map(str::to_string);
        }
    }
}
