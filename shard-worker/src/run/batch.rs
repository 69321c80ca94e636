//! The shards of a chunk that are in memory at once.

use crate::error::ShardError;
use crate::evaluate::ShardFound;
use crate::job::Job;
use crate::lookup::Found;
use crate::panics::{caught, caught_future};
use crate::shard::LoadedShard;

/// Bytes of bookkeeping a row: hash table, key numbers, rows of the found values.
pub const ROW_OVERHEAD: u64 = 82;

/// What a batch may take of the memory at hand; the rest is for decoding, encoding and what
/// the process holds anyway.
pub fn budget(memory: u64) -> u64 {
    memory.saturating_sub(96 << 20).max(memory / 4) / 5 * 2
}

/// What images may take of the memory at hand, beside the shards of a batch if there is one.
pub fn image_budget(memory: u64, has_lookups: bool) -> u64 {
    if has_lookups {
        budget(memory)
    } else {
        2 * budget(memory)
    }
}

/// Memory that a loaded shard will take until it is published.
pub fn memory_of(job: &Job, shard: &LoadedShard) -> u64 {
    let width: u64 = job.lookups.iter().map(|lookup| lookup.value_width()).sum();
    shard.memory() + shard.files.main.num_rows() as u64 * (width + ROW_OVERHEAD)
}

/// What one shard of a batch sees of the results.
pub fn found_for(found: &[Found], shard: usize) -> Vec<ShardFound<'_>> {
    found
        .iter()
        .map(|found| ShardFound {
            rows: &found.rows[shard],
            columns: &found.columns,
            unfit: &found.unfit,
        })
        .collect()
}

/// Runs work on a shard; a panic in a library is the shard's failure, not the run's.
pub fn guarded<T>(
    uri: &str,
    work: impl FnOnce() -> Result<T, ShardError>,
) -> Result<T, ShardError> {
    caught(work).unwrap_or_else(|message| {
        Err(ShardError::Panic {
            uri: uri.to_owned(),
            message,
        })
    })
}

/// As [`guarded`], for work that waits on a store: corrupt footers make parsers panic, too.
pub async fn guarded_future<T>(
    uri: &str,
    work: impl Future<Output = Result<T, ShardError>>,
) -> Result<T, ShardError> {
    caught_future(work).await.unwrap_or_else(|message| {
        Err(ShardError::Panic {
            uri: uri.to_owned(),
            message,
        })
    })
}
