//! First half of a pass: stream the index's keys past the table and note, for every key that a
//! shard holds, the last row of the index that has it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::file::statistics::Statistics;

use crate::error::{Error, Result};
use crate::keys::{self, KeyColumn};
use crate::lookup::index::{Index, Unit};
use crate::lookup::key_table::{Group, KeyTable};
use crate::lookup::window::WindowedChunk;
use crate::lookup::{Limits, PassError};
use crate::parquet_file::chunk_range;
use crate::workers::map_parallel;

/// A row of the index: unit and row within it, ordered by position in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hit {
    /// Number of the unit.
    pub unit: u32,
    /// Row in the unit.
    pub row: u32,
    /// Number of the key that was found.
    pub key: u32,
}

/// What a pass over the keys found.
#[derive(Debug, Default)]
pub struct Probed {
    /// One entry a matched key, in the order of the index.
    pub hits: Vec<Hit>,
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
    fn of(shards: &[&'a KeyColumn], groups: &[Vec<Group>], group_count: usize) -> Self {
        let mut bounds: Vec<Option<(&[u8], &[u8])>> = vec![None; group_count];
        for (keys, groups) in shards.iter().zip(groups) {
            for (row, &group) in groups.iter().enumerate() {
                // A source without an index file has no bounds, and nothing to prune.
                let Some(bound) = bounds.get_mut(usize::from(group)) else {
                    continue;
                };
                if let Some(key) = keys.get(row) {
                    *bound =
                        Some(bound.map_or((key, key), |(low, high)| (low.min(key), high.max(key))));
                }
            }
        }
        Self(bounds)
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

/// Streams the keys. Deterministic: the last row of the index wins, whatever thread met it.
pub fn probe(
    index: &Index,
    table: &KeyTable<'_>,
    shards: &[&KeyColumn],
    groups: &[Vec<Group>],
    limits: Limits<'_>,
) -> Result<Probed, PassError> {
    let group_count = index
        .files
        .iter()
        .map(|file| usize::from(file.group) + 1)
        .max()
        .unwrap_or(0);
    let bounds = Bounds::of(shards, groups, group_count);
    // Position in the index + 1; 0 is no match.
    let last: Vec<AtomicU64> = (0..table.len()).map(|_| AtomicU64::new(0)).collect();
    // Long units first, so that no thread is left with one at the end.
    let mut order: Vec<usize> = (0..index.units.len()).collect();
    order.sort_by_key(|&unit| (std::cmp::Reverse(index.units[unit].rows), unit));
    let counts = map_parallel(limits.threads, &order, limits.clock, |_, &unit| {
        if limits.stop.is_requested() {
            return Err(PassError::Stopped);
        }
        probe_unit(index, unit, table, &bounds, &last).map_err(PassError::Failed)
    })?;
    let mut probed = Probed::default();
    for (read, pruned, nulls) in counts {
        probed.rows_read += read;
        probed.rows_pruned += pruned;
        probed.null_keys += nulls;
    }
    probed.hits = last
        .iter()
        .enumerate()
        .filter_map(|(key, position)| {
            let position = position.load(Ordering::Relaxed).checked_sub(1)?;
            Some(Hit {
                unit: (position >> 32) as u32,
                row: position as u32,
                key: key as u32,
            })
        })
        .collect();
    probed.hits.sort_unstable();
    Ok(probed)
}

fn probe_unit(
    index: &Index,
    number: usize,
    table: &KeyTable<'_>,
    bounds: &Bounds<'_>,
    last: &[AtomicU64],
) -> Result<(u64, u64, u64)> {
    let Unit { file, group, rows } = index.units[number];
    let index_file = &index.files[file];
    let chunk = index_file
        .file
        .metadata
        .row_group(group)
        .column(index_file.key_leaf);
    if !bounds.may_match(index_file.group, chunk.statistics()) {
        return Ok((0, rows as u64, 0));
    }
    let range = chunk_range(chunk, index_file.file.meta.size).ok_or_else(|| {
        Error::side_input(&index_file.file.uri, "key column lies outside the file")
    })?;
    let source = Arc::new(WindowedChunk::new(index_file.object.clone(), range));
    let base = (number as u64) << 32;
    let mut nulls = 0;
    keys::visit(
        source,
        &index_file.file,
        group,
        index_file.key_leaf,
        |row, key| {
            match key {
                Some(key) => {
                    if let Some(found) = table.find(key, index_file.group) {
                        last[found as usize].fetch_max(base + row as u64 + 1, Ordering::Relaxed);
                    }
                }
                None => nulls += 1,
            }
            Ok(())
        },
    )
    .map_err(|error| {
        Error::side_input(
            &index_file.file.uri,
            format!("row group {group}, key column: {error}"),
        )
    })?;
    Ok((rows as u64, 0, nulls))
}
