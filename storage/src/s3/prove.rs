//! Finding out whether a server keeps the conditions of writes.

use super::S3Store;
use super::failure::{Failure, Kind};
use crate::error::{Error, Result};
use crate::store::{ETag, Payload, PutCondition};

/// A tag that no object has.
const NO_TAG: &str = "00000000000000000000000000000000";

impl S3Store {
    /// Writes to an object of the caller's, which is there, as if it was not, and as if it was
    /// another version: a server that keeps conditions refuses both. One that does not writes
    /// what is there anyway. Asked once for each bucket.
    pub(super) async fn prove(&self, key: &str, payload: &Payload) -> Result<()> {
        if self.connection.proven().contains(&*self.bucket) {
            return Ok(());
        }
        let stale = PutCondition::Replace(ETag::from(NO_TAG.to_owned()));
        for (condition, header) in [(PutCondition::Create, "If-None-Match"), (stale, "If-Match")] {
            match self.put_at_once(key, payload, &condition, None).await {
                Err(Failure {
                    kind: Kind::ConditionBroken | Kind::Missing,
                    ..
                }) => {}
                Err(failure) => return Err(failure.into_error(&self.uri_of(key))),
                Ok(_) => {
                    self.remove(key, None).await?;
                    return Err(Error::invalid(
                        self.uri_of(key),
                        format!(
                            "the server ignores the condition {header} of a write, so that nothing \
                             would keep two writers apart: use a server that keeps conditions, or \
                             a newer release of this one"
                        ),
                    ));
                }
            }
        }
        self.connection.proven().insert(self.bucket.to_string());
        Ok(())
    }
}
