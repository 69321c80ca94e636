//! The end of the work on a run: its lock is given up, also one that was being taken, or that a
//! process before this one has left.

use std::time::Duration;

use storage::state::abandon::abandon as give_up;
use storage::{Store, Stores};

/// How long is waited between two looks at what is about to go.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Gives up the lock of a prefix if it is that of `uid` for `run`.
pub(super) async fn abandon(stores: &Stores, uid: &str, run: &str, prefix: &str, within: Duration) {
    let Ok(run) = run.parse() else {
        return;
    };
    let given_up = async { give_up(&*stores.open(prefix)?, uid, &run).await };
    let words = match tokio::time::timeout(within, given_up).await {
        Ok(Ok(false)) => return,
        Ok(Ok(true)) => {
            tracing::info!(
                prefix,
                "gave up the writer lock that was left when its run ended"
            );
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the store has not answered in time".to_owned(),
    };
    tell(prefix, &words);
}

/// Gives up a lock that was being taken when the work was ended: a request that was on its way
/// then may take effect a moment later.
pub(super) async fn abandon_claim(store: &dyn Store, uid: &str, run: &storage::state::RunId) {
    for _ in 0..2 {
        match give_up(store, uid, run).await {
            Ok(true) => return,
            Ok(false) => tokio::time::sleep(LOOK_AGAIN).await,
            Err(error) => return tell(store.uri(), &error.to_string()),
        }
    }
}

/// Says that a lock could not be given up.
pub(super) fn tell(prefix: &str, words: &str) {
    tracing::warn!(
        prefix,
        "the writer lock could not be given up: {words}; it will expire"
    );
}
