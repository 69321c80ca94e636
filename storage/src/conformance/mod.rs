//! Checks that every store passes: the trait's promises, as code.
//!
//! Each is an ordinary function of a store whose prefix is empty, and panics where the store
//! breaks a promise. A new store is ready when it passes all of them.
//!
//! ```no_run
//! # async fn example() -> storage::Result<()> {
//! let stores = storage::Stores::new(&storage::StorageConfig::default());
//! let store = stores.open("s3://scratch/an-empty-prefix/")?;
//! storage::conformance::create_is_write_once(&*store).await;
//! # Ok(())
//! # }
//! ```

mod listings;
mod reads;
mod writes;

use futures::TryStreamExt;

pub use listings::{
    folders_list_everything, found_keys_are_those_that_exist, keys_are_opaque,
    listing_finds_nested_locks, listing_is_in_byte_order, listing_passes_over_what_is_no_shard,
    lists_exactly, nothing_is_no_error,
};
pub use reads::{
    changed_objects_are_refused, large_objects_are_left_alone, missing_objects_are_told,
    ranges_are_exact,
};
pub use writes::{
    bad_keys_are_refused, compare_and_swap_loses_nothing, create_is_write_once,
    deletes_are_conditional, leave_is_asked_for, one_of_a_race_wins, put_get_delete,
    replace_is_conditional, sweep_spares_objects, versions_never_repeat,
};

use crate::error::Result;
use crate::store::{ListPage, Payload, Published, PutCondition, Store};

fn payload(text: impl Into<String>) -> Payload {
    Payload::new(text.into())
}

async fn create(store: &dyn Store, key: &str, text: &str) -> Published {
    store
        .put(key, payload(text), PutCondition::Create)
        .await
        .unwrap_or_else(|error| panic!("create {key}: {error}"))
}

async fn text_of(store: &dyn Store, key: &str) -> String {
    let (_, bytes) = store
        .read(key)
        .await
        .unwrap_or_else(|error| panic!("read {key}: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// All pages of a listing as one.
///
/// # Errors
/// Those of the listing.
pub async fn collect(store: &dyn Store) -> Result<ListPage> {
    store
        .list_shards()
        .try_fold(ListPage::default(), |mut all, page| async move {
            all.shards.extend(page.shards);
            all.skipped += page.skipped;
            all.nested_locks.extend(page.nested_locks);
            Ok(all)
        })
        .await
}
