//! Keyed side inputs, streamed past the keys of the shards at hand.
//!
//! No table of the side input is ever built. The table is of the shards' keys; the side input
//! passes by once, sequentially, and what it has for those keys is kept. Memory follows the
//! shards at hand, whatever the size of the side input.

pub mod gather;
pub mod index;
pub mod join;
pub mod json_lines;
pub mod key_table;
pub mod probe;
pub mod read_ahead;
pub mod texts;
pub mod window;

use std::fmt::Debug;
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::FieldRef;

use crate::error::{Error, ShardError};
use crate::keys::{KeyColumn, KeyKind};
use crate::run::stop::Stop;
use crate::unfit::Unfit;
use crate::workers::CpuClock;

pub use key_table::NONE;

/// What one pass may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// Bytes that found values may take.
    pub budget: u64,
    /// Threads.
    pub threads: usize,
    /// Where CPU time is added up.
    pub clock: &'a CpuClock,
    /// Ends the pass early.
    pub stop: &'a Stop,
}

/// What a pass found.
#[derive(Debug)]
pub struct Found {
    /// For each shard, for each row: the row of `columns` that belongs to it, or [`NONE`].
    pub rows: Vec<Vec<u32>>,
    /// Found values, a column for each of the lookup's columns.
    pub columns: Vec<ArrayRef>,
    /// For each column, those of its rows whose value did not fit; they are empty.
    pub unfit: Vec<Unfit>,
    /// For each shard, the source of each row, where the lookup goes by source.
    pub groups: Option<Vec<Vec<key_table::Group>>>,
    /// Figures for the report.
    pub stats: PassStats,
}

/// Figures of a pass.
#[derive(Debug, Clone, Copy, Default, serde::Serialize)]
pub struct PassStats {
    /// Rows of the side input that were read.
    pub rows_read: u64,
    /// Rows that statistics ruled out.
    pub rows_pruned: u64,
    /// Rows of the side input without a key.
    pub null_keys: u64,
    /// Lines that are not valid JSON objects with a key.
    pub bad_lines: u64,
    /// Values that do not fit what is declared: their rows are left empty.
    pub bad_values: u64,
    /// Distinct keys of the shards.
    pub keys: u64,
    /// Of those, keys that were found.
    pub keys_found: u64,
    /// Wall time of reading the side input, which the number of shards hardly changes.
    #[serde(skip)]
    pub reading: Duration,
}

impl PassStats {
    /// Adds another pass.
    pub fn add(&mut self, other: &Self) {
        self.rows_read += other.rows_read;
        self.rows_pruned += other.rows_pruned;
        self.null_keys += other.null_keys;
        self.bad_lines += other.bad_lines;
        self.bad_values += other.bad_values;
        self.keys += other.keys;
        self.keys_found += other.keys_found;
        self.reading += other.reading;
    }
}

/// Why a pass did not end.
#[derive(Debug)]
pub enum PassError {
    /// The values found do not fit: try fewer shards.
    OverBudget,
    /// A stop was requested.
    Stopped,
    /// The side input cannot be used.
    Failed(Error),
}

impl From<Error> for PassError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A keyed side input.
pub trait Lookup: Debug + Send + Sync {
    /// Where it comes from, for messages.
    fn uri(&self) -> &str;
    /// Column of main that is looked up.
    fn target_key(&self) -> &str;
    /// What kind of keys it has; `None` takes any.
    fn key_kind(&self) -> Option<KeyKind>;
    /// Whether a hit makes a row a matched one: an index should know every row of its sources,
    /// while new texts are for some of them.
    fn decides_match(&self) -> bool;
    /// Columns it brings.
    fn columns(&self) -> &[FieldRef];
    /// Estimated bytes of values a matched row.
    fn value_width(&self) -> u64;
    /// What people should know of it, though it can be used.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
    /// Streams the side input past the keys of some shards.
    fn pass(&self, shards: &[&KeyColumn], limits: Limits<'_>) -> Result<Found, PassError>;
}

/// From an error about a file of a side input that was just listed: what a link leads to may not
/// be there, or it has gone since.
fn unopened(uri: &str, error: ShardError) -> Error {
    match error {
        ShardError::Storage(error)
            if !error.is_not_found() && !matches!(error, storage::Error::Invalid { .. }) =>
        {
            Error::Storage(error)
        }
        other => Error::side_input(uri, other),
    }
}

/// Turns, for each shard, key numbers into rows of the found values.
fn rows_of(numbers: Vec<Vec<u32>>, row_of_key: &[u32]) -> Vec<Vec<u32>> {
    let mut numbers = numbers;
    for shard in &mut numbers {
        for number in shard.iter_mut().filter(|number| **number != NONE) {
            *number = row_of_key[*number as usize];
        }
    }
    numbers
}
