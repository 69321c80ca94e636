//! First half of a pass: stream the index's keys past the table and note, for every key that a
//! shard holds, the last row of the index that has it.

use std::cmp::Reverse;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use parquet::file::statistics::Statistics;

use crate::error::{Error, Result};
use crate::keys::{self, KeyColumn};
use crate::lookup::index::{Index, Unit};
use crate::lookup::key_table::{Group, KeyTable};
use crate::lookup::read_ahead::ReadAhead;
use crate::lookup::window::WindowedChunk;
use crate::lookup::{Limits, PassError};
use crate::parquet_file::chunk_range;
use crate::workers::map_parallel;

/// Pieces of work a thread that the rows of an index should make up, so that no thread waits
/// long for the last piece.
const PARTS_PER_THREAD: usize = 16;
/// Smaller pieces, in rows, are not worth their start.
const SMALLEST_PART: usize = 16 << 10;
/// Larger chunks, in bytes, are read by one thread, window by window: pieces of a chunk share
/// its bytes.
const LARGEST_SHARED: u64 = 16 << 20;

/// A row of a unit that has a key of the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// Row in the unit.
    pub row: u32,
    /// Number of the key that was found.
    pub key: u32,
}

/// What a pass over the keys found.
#[derive(Debug, Default)]
pub struct Probed {
    /// For each unit, in the order of the index, its hits, in the order of its rows: one a
    /// matched key.
    pub hits: Vec<Vec<Hit>>,
    /// Rows of the index that were read.
    pub rows_read: u64,
    /// Rows of the index that were passed over by statistics.
    pub rows_pruned: u64,
    /// Rows of the index without a key.
    pub null_keys: u64,
}

/// Smallest and largest key of each group, for pruning.
struct Bounds<'a>(Vec<Option<(&'a [u8], &'a [u8])>>);

impl<'a> Bounds<'a> {
    fn of(
        shards: &[&'a KeyColumn],
        groups: &[Vec<Group>],
        group_count: usize,
        limits: Limits<'_>,
    ) -> Self {
        let each = map_parallel(limits.threads, shards, limits.clock, |shard, keys| {
            Ok::<_, Infallible>(Self::of_shard(keys, &groups[shard], group_count))
        });
        let mut bounds = Self(vec![None; group_count]);
        for of_shard in each.unwrap_or_default() {
            for (group, (low, high)) in of_shard
                .0
                .into_iter()
                .enumerate()
                .filter_map(|(group, bound)| Some((group, bound?)))
            {
                bounds.include(group, low, high);
            }
        }
        bounds
    }

    fn of_shard(keys: &'a KeyColumn, groups: &[Group], group_count: usize) -> Self {
        let mut bounds = Self(vec![None; group_count]);
        for (row, &group) in groups.iter().enumerate() {
            if let Some(key) = keys.get(row) {
                bounds.include(usize::from(group), key, key);
            }
        }
        bounds
    }

    /// A source without an index file has no bounds, and nothing to prune.
    fn include(&mut self, group: usize, low: &'a [u8], high: &'a [u8]) {
        if let Some(bound) = self.0.get_mut(group) {
            *bound = Some(bound.map_or((low, high), |(lowest, highest)| {
                (lowest.min(low), highest.max(high))
            }));
        }
    }

    /// Whether a row group can hold a key of its file's group. Statistics only ever rule out;
    /// without them, or with those of old writers, the row group is read.
    fn may_match(&self, group: Group, statistics: Option<&Statistics>) -> bool {
        let Some((low, high)) = self.0.get(usize::from(group)).copied().flatten() else {
            return false;
        };
        let Some(statistics @ Statistics::ByteArray(_)) = statistics else {
            return true;
        };
        // Bounds of old writers, in the deprecated fields, were ordered as signed bytes.
        if statistics.is_min_max_deprecated() {
            return true;
        }
        match (statistics.min_bytes_opt(), statistics.max_bytes_opt()) {
            (Some(min), Some(max)) => low <= max && high >= min,
            _ => true,
        }
    }
}

/// Rows of a unit that are one piece of work.
struct Part {
    unit: usize,
    rows: Range<usize>,
}

/// How many parts a unit of `rows` rows and `bytes` bytes of keys is read in, if the index has
/// `index_rows` in all.
fn part_count(rows: usize, bytes: u64, index_rows: u64, threads: usize) -> usize {
    if threads < 2 || bytes > LARGEST_SHARED {
        return 1;
    }
    let pieces = (threads * PARTS_PER_THREAD) as u64;
    let wanted = (index_rows / pieces).max(SMALLEST_PART as u64);
    (rows as u64).div_ceil(wanted).max(1) as usize
}

/// The bytes of a unit's keys, for the parts that read them; let go with the last of them.
#[derive(Default)]
struct SharedChunk(Mutex<(Option<WindowedChunk>, usize)>);

impl SharedChunk {
    fn open(
        &self,
        new: impl FnOnce() -> parquet::errors::Result<WindowedChunk>,
    ) -> parquet::errors::Result<WindowedChunk> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chunk) = &state.0 {
            return Ok(chunk.clone());
        }
        let chunk = new()?;
        state.0 = Some(chunk.clone());
        Ok(chunk)
    }

    fn part_is_read(&self, parts: usize) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.1 += 1;
        if state.1 == parts {
            state.0 = None;
        }
    }
}

/// One pass of keys.
struct Probe<'a> {
    index: &'a Index,
    table: &'a KeyTable<'a>,
    /// For each key, the last row of the index that has it: unit and row + 1; 0 is none.
    last: Vec<AtomicU64>,
    parts_of_unit: Vec<usize>,
    chunks: Vec<SharedChunk>,
    /// The keys of the units that are read in one part.
    ahead: ReadAhead,
}

/// Streams the keys. Deterministic: the last row of the index wins, whatever thread met it.
pub fn probe(
    index: &Index,
    table: &KeyTable<'_>,
    shards: &[&KeyColumn],
    groups: &[Vec<Group>],
    limits: Limits<'_>,
) -> Result<Probed, PassError> {
    let Limits { threads, clock, .. } = limits;
    let group_count = index
        .files
        .iter()
        .map(|file| usize::from(file.group) + 1)
        .max()
        .unwrap_or(0);
    let bounds = Bounds::of(shards, groups, group_count, limits);
    let mut probed = Probed::default();
    let mut parts_of_unit = vec![0; index.units.len()];
    let mut order = Vec::with_capacity(index.units.len());
    for (number, unit) in index.units.iter().enumerate() {
        let file = &index.files[unit.file];
        let chunk = file
            .file
            .metadata
            .row_group(unit.group)
            .column(file.key_leaf);
        if bounds.may_match(file.group, chunk.statistics()) {
            let bytes = chunk.compressed_size().max(0) as u64;
            parts_of_unit[number] = part_count(unit.rows, bytes, index.rows, threads);
            order.push(number);
        } else {
            probed.rows_pruned += unit.rows as u64;
        }
    }
    // Long units first, so that no thread is left with one at the end.
    order.sort_by_key(|&unit| (Reverse(index.units[unit].rows), unit));
    let parts: Vec<Part> = order
        .iter()
        .flat_map(|&unit| {
            let (count, rows) = (parts_of_unit[unit], index.units[unit].rows);
            (0..count).map(move |part| Part {
                unit,
                rows: rows * part / count..rows * (part + 1) / count,
            })
        })
        .collect();
    let ahead = ReadAhead::of(order.iter().filter_map(|&number| {
        let unit = index.units[number];
        let file = &index.files[unit.file];
        let chunk = file.file.metadata.row_group(unit.group);
        let range = chunk_range(chunk.column(file.key_leaf), file.file.meta.size)?;
        let id = (unit.file, unit.group, file.key_leaf);
        (parts_of_unit[number] == 1).then_some((id, &file.object, range))
    }));
    let probe = Probe {
        index,
        table,
        ahead,
        last: std::iter::repeat_with(AtomicU64::default)
            .take(table.numbers())
            .collect(),
        chunks: std::iter::repeat_with(SharedChunk::default)
            .take(index.units.len())
            .collect(),
        parts_of_unit,
    };
    let counts = map_parallel(threads, &parts, clock, |_, part| {
        if limits.stop.is_requested() {
            return Err(PassError::Stopped);
        }
        probe.read(part).map_err(PassError::Failed)
    })?;
    for (read, nulls) in counts {
        probed.rows_read += read;
        probed.null_keys += nulls;
    }
    probed.hits = probe.into_hits(limits)?;
    Ok(probed)
}

impl Probe<'_> {
    /// Looks up the keys of a part. Returns its rows, and how many of them have none.
    fn read(&self, part: &Part) -> Result<(u64, u64)> {
        let Unit {
            file: number,
            group,
            ..
        } = self.index.units[part.unit];
        let file = &self.index.files[number];
        let (uri, leaf) = (&file.file.uri, file.key_leaf);
        let chunk = file.file.metadata.row_group(group).column(leaf);
        let range = chunk_range(chunk, file.file.meta.size)
            .ok_or_else(|| Error::side_input(uri, "key column lies outside the file"))?;
        let parts = self.parts_of_unit[part.unit];
        let failed = |error: &dyn std::fmt::Display| {
            let reason = format!("row group {group}, key column: {error}");
            Error::side_input(uri, reason)
        };
        let source = self.chunks[part.unit]
            .open(|| {
                if parts > 1 {
                    Ok(WindowedChunk::whole(file.object.clone(), range))
                } else {
                    self.ahead.open((number, group, leaf))
                }
            })
            .map_err(|error| failed(&error))?;
        let base = (part.unit as u64) << 32;
        let (mut rows, mut nulls) = (0, 0);
        let visit = |row: usize, key: Option<&[u8]>| {
            rows += 1;
            match key {
                Some(key) => {
                    if let Some(found) = self.table.find(key, file.group) {
                        let position = base + row as u64 + 1;
                        self.last[found as usize].fetch_max(position, Ordering::Relaxed);
                    }
                }
                None => nulls += 1,
            }
            Ok(())
        };
        let rows_of_part = part.rows.clone();
        keys::visit_part(
            Arc::new(source),
            &file.file,
            group,
            leaf,
            rows_of_part,
            visit,
        )
        .map_err(|error| failed(&error))?;
        self.chunks[part.unit].part_is_read(parts);
        Ok((rows, nulls))
    }

    /// The hits of each unit, in order.
    fn into_hits(self, limits: Limits<'_>) -> Result<Vec<Vec<Hit>>, PassError> {
        let mut units: Vec<Vec<Hit>> = vec![Vec::new(); self.index.units.len()];
        for (key, position) in self.last.into_iter().enumerate() {
            if let Some(position) = position.into_inner().checked_sub(1) {
                units[(position >> 32) as usize].push(Hit {
                    row: position as u32,
                    key: key as u32,
                });
            }
        }
        let units: Vec<Mutex<Vec<Hit>>> = units.into_iter().map(Mutex::new).collect();
        map_parallel(limits.threads, &units, limits.clock, |_, hits| {
            hits.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .sort_unstable();
            Ok::<_, PassError>(())
        })?;
        let unlock =
            |hits: Mutex<Vec<Hit>>| hits.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(units.into_iter().map(unlock).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_split_only_where_threads_would_wait() {
        const MIB: u64 = 1 << 20;
        // (rows, bytes of keys, rows of the index, threads) and how many parts that makes.
        let table = [
            ((131_072, MIB, 2_000_000, 2), 3),
            ((131_072, MIB, 2_000_000, 1), 1),
            ((131_072, MIB, 262_000_000, 64), 1),
            ((1_000_000, 10 * MIB, 1_000_000, 2), 32),
            // Too large to be held as a whole.
            ((10_000_000, 100 * MIB, 10_000_000, 2), 1),
            ((1_000, MIB, 1_000, 64), 1),
        ];
        for ((rows, bytes, index_rows, threads), expected) in table {
            assert_eq!(
                part_count(rows, bytes, index_rows, threads),
                expected,
                "{rows} rows, {threads} threads"
            );
        }
    }
}
