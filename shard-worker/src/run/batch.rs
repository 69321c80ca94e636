//! The shards of a chunk that are in memory at once, and the pass that they share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::{Error, ShardError};
use crate::evaluate::ShardFound;
use crate::job::Job;
use crate::keys::KeyColumn;
use crate::lookup::{Found, Limits, PassError};
use crate::panics::{caught, caught_future};
use crate::run::stop::Stop;
use crate::shard::LoadedShard;
use crate::workers::CpuClock;

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

/// What the lookups found for the first shards of a batch.
#[derive(Debug)]
pub struct Passed {
    /// How many shards; none if a stop was requested.
    pub count: usize,
    /// A result a lookup, or the budget in bytes that one shard's values exceed.
    pub found: Result<Vec<Found>, u64>,
    /// Time of passes whose result was of no use.
    pub wasted: Duration,
}

/// Streams every lookup past the first shards of a batch, `at_most` many. If the values found
/// do not fit, past half of them, until they do; a single shard that does not fit fails alone.
/// The caller finishes these before it asks for more, so that only one share is ever held.
pub fn pass_some(
    job: &Job,
    shards: &[Arc<LoadedShard>],
    at_most: usize,
    memory: u64,
    threads: usize,
    clock: &CpuClock,
    stop: &Stop,
) -> Result<Passed, Error> {
    let mut count = shards.len().min(at_most).max(1);
    let mut wasted = Duration::ZERO;
    loop {
        let begun = Instant::now();
        let found = match pass(job, &shards[..count], memory, threads, clock, stop) {
            Ok(found) => Ok(found),
            Err(PassError::OverBudget) => {
                wasted += begun.elapsed();
                if count > 1 {
                    count /= 2;
                    continue;
                }
                Err(budget(memory))
            }
            Err(PassError::Failed(error)) => return Err(error),
            // The shards were not looked up: they stay undone.
            Err(PassError::Stopped) => {
                return Ok(Passed {
                    count: 0,
                    found: Ok(Vec::new()),
                    wasted: wasted + begun.elapsed(),
                });
            }
        };
        return Ok(Passed {
            count,
            found,
            wasted,
        });
    }
}

fn pass(
    job: &Job,
    shards: &[Arc<LoadedShard>],
    memory: u64,
    threads: usize,
    clock: &CpuClock,
    stop: &Stop,
) -> Result<Vec<Found>, PassError> {
    let mut all = Vec::with_capacity(job.lookups.len());
    let mut budget = budget(memory);
    for lookup in &job.lookups {
        let keys: Vec<&KeyColumn> = shards
            .iter()
            .filter_map(|shard| shard.keys.get(lookup.target_key()))
            .map(AsRef::as_ref)
            .collect();
        let limits = Limits {
            budget,
            threads,
            clock,
            stop,
        };
        let found = caught(|| lookup.pass(&keys, limits)).unwrap_or_else(|message| {
            Err(PassError::Failed(Error::side_input(
                lookup.uri(),
                format!("a library panicked: {message}"),
            )))
        })?;
        let used: usize = found
            .columns
            .iter()
            .map(|column| column.get_array_memory_size())
            .sum();
        budget = budget.saturating_sub(used as u64);
        all.push(found);
    }
    Ok(all)
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
