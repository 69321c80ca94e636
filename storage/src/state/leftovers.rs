//! What killed runs of an output have left, as against what others have.

use std::collections::HashSet;

use super::layout;
use crate::error::Result;
use crate::key;
use crate::store::{Leftover, Store};

/// Removes what killed runs left of the shards of `main` and of what runs keep beside them; for
/// the holder of the writer lock. Unfinished writes of other objects are others', and stay.
///
/// # Errors
/// If the store can't be asked, or denies it.
pub async fn sweep(output: &dyn Store, main: &dyn Store) -> Result<u64> {
    let found = output.leftovers().await?;
    let mut keys: Vec<String> = found
        .iter()
        .filter_map(|leftover| leftover.key.clone())
        .filter(|key| !is_state(key) && key::check(main.uri(), key).is_ok())
        .collect();
    keys.sort_unstable();
    keys.dedup();
    let shards = main.find(&keys).await?;
    let shards: HashSet<&str> = shards.iter().map(|shard| shard.key.as_str()).collect();
    let is_ours = |leftover: &Leftover| match &leftover.key {
        Some(key) => is_state(key) || shards.contains(key.as_str()),
        // A name that was cut begins and ends as only ours do.
        None => leftover.id.len() > key::TEMPORARY_SUFFIX.len() + LONG,
    };
    let ours: Vec<Leftover> = found.into_iter().filter(is_ours).collect();
    output.sweep(&ours).await
}

/// Names that are cut are longer than this.
const LONG: usize = 150;

fn is_state(key: &str) -> bool {
    key == layout::SENTINEL || key.starts_with(layout::FOLDER)
}
