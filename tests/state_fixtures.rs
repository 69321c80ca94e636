//! Shards and runs for the tests of the state files.

use std::sync::Arc;

use storage::state::RunId;
use storage::{ETag, ObjectMeta, StorageConfig, Store, Stores};
use time::OffsetDateTime;
use time::macros::datetime;

/// When everything happens.
pub const NOW: OffsetDateTime = datetime!(2025-06-01 10:00 UTC);

/// The output prefix below `root`.
pub fn open(root: &tempfile::TempDir) -> Arc<dyn Store> {
    let stores = Stores::new(&StorageConfig::default());
    stores
        .open(&format!("{}/out/", root.path().display()))
        .unwrap()
}

/// The run of that number; later ones began later.
pub fn run(number: u8) -> RunId {
    RunId::new(NOW + time::Duration::seconds(number.into()), number.into())
}

/// The path of the shard of that number.
pub fn path(number: u64) -> String {
    format!("a/{number:06}.parquet")
}

/// A version.
pub fn tag(text: String) -> ETag {
    ETag(text.into())
}

/// The main shard of that number as it is listed.
pub fn main_meta(number: u64) -> ObjectMeta {
    ObjectMeta {
        key: path(number),
        size: 1000 + number,
        etag: tag(format!("main-{number}")),
    }
}
