//! Writers that race for a prefix.

use storage::Stores;
use storage::state::RunId;
use storage::state::ancestors::open_ancestors;
use storage::state::identity;
use storage::state::lock::{Holder, Identity};
use storage::state::writer::{AcquireError, LockRequest, WriterLock};

/// `holder`, for a run of its own.
pub fn identity_of(holder: Holder) -> Identity {
    Identity {
        holder,
        run: RunId::generate(),
        digest: "d".to_owned(),
        epoch: None,
    }
}

/// Another writer each time.
pub fn somebody() -> Identity {
    identity_of(identity::this_process("test"))
}

/// What `identity` asks to lock the prefix `uri`.
pub fn request(stores: &Stores, uri: &str, identity: Identity) -> LockRequest {
    let store = stores.open(uri).unwrap();
    let ancestors = open_ancestors(store.uri(), |uri| stores.open(uri)).unwrap();
    LockRequest::new(store, ancestors, identity)
}

/// Those who hold their prefix in the end, and what the others were told.
pub async fn race(requests: Vec<LockRequest>) -> (Vec<WriterLock>, Vec<AcquireError>) {
    let tasks: Vec<_> = requests
        .into_iter()
        .map(|request| tokio::spawn(WriterLock::acquire(request)))
        .collect();
    let (mut winners, mut losers) = (Vec::new(), Vec::new());
    for task in tasks {
        match task.await.unwrap() {
            Ok(lock) => winners.push(lock),
            Err(error) => losers.push(error),
        }
    }
    (winners, losers)
}
