//! Settling an attempt whose Job is over: what its reports say last is what became of it.

use std::sync::Arc;

use time::OffsetDateTime;

use super::follower::look;
use super::lock;
use super::session::Session;

/// Reads the reports of all items of an attempt, and settles it.
pub(super) async fn settle(session: Arc<Session>, batch: u32, attempt: u32, death: Option<String>) {
    let items = lock(&session.book).items_of(batch, attempt);
    // It only fails for good if the output's location is none; the facts say so already.
    if look(&session, &items).await.is_ok() {
        let now = OffsetDateTime::now_utc();
        lock(&session.book).settle(batch, attempt, death.as_deref(), now);
        session.publish_items();
    }
}
