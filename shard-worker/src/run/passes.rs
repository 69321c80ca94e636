//! Passes of lookups over their side inputs: for as many shards at once as the values found leave
//! room for, or for a shard part by part.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arrow::array::Array;

use crate::error::{Error, ShardError};
use crate::job::Job;
use crate::keys::KeyColumn;
use crate::lookup::{Found, Limits, PassError, PassStats};
use crate::panics::caught;
use crate::run::batch::{ROW_OVERHEAD, budget};
use crate::run::stop::Stop;
use crate::shard::LoadedShard;
use crate::workers::CpuClock;

/// Main's key columns that lookups need, by name.
type Keys = BTreeMap<String, Arc<KeyColumn>>;

/// What passes over side inputs took.
#[derive(Debug, Default)]
pub struct Measured {
    passes: u64,
    stats: PassStats,
    begun: Option<Instant>,
}

impl Measured {
    /// Seconds that side inputs were read for. What a pass does for each key of its shards is
    /// theirs, once it has ended; of one that is on, nobody knows yet.
    pub fn pass_seconds(&self) -> f64 {
        let now = self.begun.map(|begun| begun.elapsed());
        (self.stats.reading + now.unwrap_or_default()).as_secs_f64()
    }

    fn end(&mut self, wasted: Duration, found: &[Found]) {
        self.begun = None;
        self.stats.reading += wasted;
        for found in found {
            self.stats.add(&found.stats);
        }
    }
}

/// What the lookups found for the first shards of a batch.
#[derive(Debug)]
pub struct Passed {
    /// How many shards; none if a stop was requested.
    pub count: usize,
    /// A result a lookup; none if the values of one shard alone do not fit.
    pub found: Option<Vec<Found>>,
}

/// Does the passes of a run.
#[derive(Debug)]
pub struct Passes {
    job: Arc<Job>,
    memory: u64,
    threads: usize,
    stop: Stop,
    clock: CpuClock,
    measured: Arc<Mutex<Measured>>,
}

impl Passes {
    /// Passes that may take `memory` bytes and `threads` threads.
    pub fn new(job: Arc<Job>, memory: u64, threads: usize, stop: Stop) -> Self {
        Self {
            job,
            memory,
            threads,
            stop,
            clock: CpuClock::default(),
            measured: Arc::default(),
        }
    }

    /// What they took.
    pub fn measured(&self) -> Arc<Mutex<Measured>> {
        self.measured.clone()
    }

    /// How many there were so far, and their figures.
    pub fn so_far(&self) -> (u64, PassStats) {
        let measured = self.look();
        (measured.passes, measured.stats)
    }

    /// CPU time so far.
    pub fn cpu_time(&self) -> Duration {
        self.clock.total()
    }

    fn look(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Streams every lookup past the first shards of a batch, `at_most` many. If the values found
    /// do not fit, past half of them, until they do; those of a single shard may still not.
    /// The caller finishes these before it asks for more, so that only one share is ever held.
    ///
    /// # Errors
    /// If a side input cannot be used.
    pub fn some(&self, shards: &[Arc<LoadedShard>], at_most: usize) -> Result<Passed, Error> {
        self.look().begun = Some(Instant::now());
        let mut wasted = Duration::ZERO;
        let passed = self.halving(shards, at_most, &mut wasted);
        let mut measured = self.look();
        match &passed {
            Ok(Passed { count, found }) => {
                measured.end(wasted, found.as_deref().unwrap_or_default());
                measured.passes += u64::from(*count > 0 && found.is_some());
            }
            Err(_) => measured.end(wasted, &[]),
        }
        passed
    }

    fn halving(
        &self,
        shards: &[Arc<LoadedShard>],
        at_most: usize,
        wasted: &mut Duration,
    ) -> Result<Passed, Error> {
        let mut count = shards.len().min(at_most).max(1);
        loop {
            let begun = Instant::now();
            let keys: Vec<&Keys> = shards[..count].iter().map(|shard| &shard.keys).collect();
            let passed = match shards {
                [only, ..] if count == 1 && self.is_long(only) => Err(PassError::OverBudget),
                _ => self.pass(&keys),
            };
            let found = match passed {
                Ok(found) => Some(found),
                Err(PassError::OverBudget) => {
                    *wasted += begun.elapsed();
                    if count > 1 {
                        count /= 2;
                        continue;
                    }
                    None
                }
                Err(PassError::Failed(error)) => return Err(error),
                // The shards were not looked up: they stay undone.
                Err(PassError::Stopped) => {
                    *wasted += begun.elapsed();
                    count = 0;
                    Some(Vec::new())
                }
            };
            return Ok(Passed { count, found });
        }
    }

    /// Streams every lookup past a shard whose values do not fit, a part of its rows at a time, and
    /// hands over what was found for each part before it goes on.
    ///
    /// # Errors
    /// If a side input cannot be used, the values of one row do not fit, or `each` fails.
    pub fn by_parts(
        &self,
        shard: &LoadedShard,
        mut each: impl FnMut(Range<usize>, &[Found]) -> Result<(), ShardError>,
    ) -> Result<(), ShardError> {
        let main = &shard.files.main;
        let rows = main.num_rows();
        let budget = budget(self.memory);
        let lookups = self.job.lookups.iter();
        let width: u64 = lookups.map(|lookup| lookup.value_width()).sum();
        // Found values are held twice for a while.
        let by_width = budget / 4 / width.max(1);
        let by_rows = budget / 2 / ROW_OVERHEAD;
        let by_width = usize::try_from(by_width.min(by_rows)).unwrap_or(rows);
        let most = usize::try_from(by_rows).unwrap_or(rows).max(1);
        let mut at_once = by_width.clamp(1, (rows / 2).max(1));
        tracing::info!(
            "{}: what is found for its {rows} rows exceeds the {budget} bytes that --memory leaves: its side inputs are read again for about every {at_once} rows; raise --memory to read them once",
            main.uri
        );
        let mut row = 0;
        while row < rows {
            if self.stop.is_requested() {
                return Err(ShardError::Stopped);
            }
            let part = row..rows.min(row + at_once);
            let keys = shard.keys.iter();
            let keys: Keys = keys
                .map(|(name, keys)| (name.clone(), Arc::new(keys.part(part.clone()))))
                .collect();
            let begun = Instant::now();
            match self.pass(&[&keys]) {
                Ok(found) => {
                    let mut measured = self.look();
                    measured.end(Duration::ZERO, &found);
                    measured.passes += 1;
                    drop(measured);
                    let used: usize = found.iter().map(size_of).sum();
                    if (used as u64) < budget / 8 {
                        at_once = at_once.saturating_mul(2).min(most);
                    }
                    each(part.clone(), &found)?;
                    row = part.end;
                }
                Err(PassError::OverBudget) => {
                    self.look().end(begun.elapsed(), &[]);
                    if part.len() == 1 {
                        let reason = format!(
                            "the values found for row {row} exceed the {budget} bytes that --memory leaves; raise --memory"
                        );
                        return Err(ShardError::malformed(&main.uri, reason));
                    }
                    at_once = part.len() / 2;
                }
                Err(PassError::Stopped) => return Err(ShardError::Stopped),
                Err(PassError::Failed(Error::Storage(error))) => return Err(error.into()),
                Err(PassError::Failed(error)) => {
                    return Err(ShardError::malformed(&main.uri, error));
                }
            }
        }
        Ok(())
    }

    /// Whether the rows of a shard, without any value, are too many for one pass.
    fn is_long(&self, shard: &LoadedShard) -> bool {
        shard.files.main.num_rows() as u64 * ROW_OVERHEAD > self.memory / 2
    }

    fn pass(&self, shards: &[&Keys]) -> Result<Vec<Found>, PassError> {
        let mut all = Vec::with_capacity(self.job.lookups.len());
        let mut budget = budget(self.memory);
        for lookup in &self.job.lookups {
            let keys: Vec<&KeyColumn> = shards
                .iter()
                .filter_map(|keys| keys.get(lookup.target_key()))
                .map(AsRef::as_ref)
                .collect();
            let limits = Limits {
                budget,
                threads: self.threads,
                clock: &self.clock,
                stop: &self.stop,
            };
            let found = caught(|| lookup.pass(&keys, limits)).unwrap_or_else(|message| {
                Err(PassError::Failed(Error::side_input(
                    lookup.uri(),
                    format!("a library panicked: {message}"),
                )))
            })?;
            budget = budget.saturating_sub(size_of(&found) as u64);
            all.push(found);
        }
        Ok(all)
    }
}

/// Bytes of the values that a lookup found.
fn size_of(found: &Found) -> usize {
    let columns = found.columns.iter();
    columns.map(Array::get_array_memory_size).sum()
}
