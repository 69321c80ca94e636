//! Giving up a lock that was left: its holder ended while it was taking the lock, or after its
//! run and before it gave the lock up. Others would have to wait until it expires.

use time::OffsetDateTime;

use super::document;
use super::error::Result;
use super::lock::{self, LockFile, LockState};
use super::{RunId, layout};
use crate::store::{PutCondition, Store};

/// Releases the lock of a prefix if it is that of `instance` for `run`; whether it was. Only for
/// whoever knows that nobody works on that run any more.
///
/// # Errors
/// If the lock can't be read or written.
pub async fn abandon(store: &dyn Store, instance: &str, run: &RunId) -> Result<bool> {
    let Some((meta, file)) = document::read::<LockFile>(store, layout::WRITER).await? else {
        return Ok(false);
    };
    let is_theirs = file.holder.instance == instance && file.run == *run;
    if !is_theirs || file.state == LockState::Released {
        return Ok(false);
    }
    let released = lock::release(&file, OffsetDateTime::now_utc());
    let bytes = document::encode(layout::WRITER, &released)?;
    let condition = PutCondition::Replace(meta.etag);
    match document::put(store, layout::WRITER, bytes, condition).await {
        Ok(_) => Ok(true),
        // Somebody has it now, or has given it up.
        Err(error) if document::is_conflict(&error) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
