//! Finding and aborting what killed writers left: uploads that were begun and never completed.

use aws_sdk_s3::types::EncodingType;

use super::S3Store;
use super::attempt::Sort;
use super::list::decoded;
use super::pages::Pages;
use crate::error::Result;
use crate::store::Leftover;

/// Uploads that are told of at once.
const MOST: usize = 10_000;

impl S3Store {
    pub(super) async fn uploads(&self) -> Result<Vec<Leftover>> {
        let client = self.connection.client().await;
        let mut found = Vec::new();
        let mut markers: (Option<String>, Option<String>) = (None, None);
        let mut pages = Pages::default();
        loop {
            let request = || {
                client
                    .list_multipart_uploads()
                    .bucket(&*self.bucket)
                    .prefix(&*self.prefix)
                    .encoding_type(EncodingType::Url)
                    .set_key_marker(markers.0.clone())
                    .set_upload_id_marker(markers.1.clone())
                    .send()
            };
            let answer = self
                .send(Sort::of(&self.counters.list), request)
                .await
                .map_err(|failure| failure.into_error(&self.uri))?;
            let is_encoded = answer.encoding_type() == Some(&EncodingType::Url);
            for upload in answer.uploads() {
                let (Some(key), Some(id)) = (upload.key(), upload.upload_id()) else {
                    continue;
                };
                let key = decoded(&self.uri, key, is_encoded)?;
                // Servers that take the prefix lightly must not make us abort a stranger's.
                if let Some(key) = key.strip_prefix(&*self.prefix) {
                    found.push(Leftover {
                        key: Some(key.to_owned()),
                        id: id.to_owned(),
                    });
                }
            }
            let next = answer
                .next_key_marker()
                .filter(|_| answer.is_truncated() == Some(true));
            let Some(next) = next.filter(|_| found.len() < MOST) else {
                return Ok(found);
            };
            let upload = answer.next_upload_id_marker().map(str::to_owned);
            let page = format!("{next} {}", upload.as_deref().unwrap_or_default());
            pages
                .turn(Some(page), answer.uploads().len())
                .map_err(|reason| self.bad_listing("", reason))?;
            markers = (Some(decoded(&self.uri, next, is_encoded)?), upload);
        }
    }

    pub(super) async fn abort_uploads(&self, leftovers: &[Leftover]) -> Result<u64> {
        let mut aborted = 0;
        for leftover in leftovers {
            let Some(key) = &leftover.key else { continue };
            let aborting = self.abort(&self.full_key(key), &leftover.id).await;
            aborting.map_err(|failure| failure.into_error(&self.uri_of(key)))?;
            aborted += 1;
        }
        Ok(aborted)
    }
}
