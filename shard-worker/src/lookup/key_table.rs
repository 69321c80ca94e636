//! A hash table over the keys of the shards at hand: exact, compared as bytes.
//!
//! The table is built on the shards' side and the index streams past it, so its size follows
//! the memory budget, never the index.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::keys::KeyColumn;
use crate::workers::{CpuClock, map_parallel};

/// No key: a null key, or one whose source has no index.
pub const NONE: u32 = u32::MAX;

/// Rows are looked up only among the index files of their own group (source).
pub type Group = u16;
/// A row that belongs to no group.
pub const NO_GROUP: Group = Group::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    shard: u32,
    row: u32,
    group: Group,
}

/// Distinct keys, numbered in the order of first appearance.
#[derive(Debug)]
pub struct KeyTable<'a> {
    shards: Vec<&'a KeyColumn>,
    /// Upper half: hash bits that tell most other keys apart; lower half: number + 1, 0 is free.
    slots: Vec<u64>,
    mask: u64,
    entries: Vec<Entry>,
    rows: Vec<Vec<u32>>,
}

/// Hash of a key within a group.
#[inline]
pub fn hash(key: &[u8], group: Group) -> u64 {
    xxh3_64_with_seed(key, u64::from(group))
}

impl<'a> KeyTable<'a> {
    /// Numbers the keys of `shards`; `groups` says for each shard where its rows look. Hashing
    /// is shared out over threads, numbering is not: numbers depend on the rows' order alone.
    pub fn build(
        shards: Vec<&'a KeyColumn>,
        groups: &[Vec<Group>],
        threads: usize,
        clock: &CpuClock,
    ) -> Self {
        let hashes = map_parallel(threads, groups, clock, |shard, groups| {
            let keys = shards[shard];
            let hash_of = |(row, &group): (usize, &Group)| match keys.get(row) {
                Some(key) if group != NO_GROUP => hash(key, group),
                _ => 0,
            };
            Ok::<Vec<u64>, std::convert::Infallible>(
                groups.iter().enumerate().map(hash_of).collect(),
            )
        });
        let hashes = hashes.unwrap_or_default();
        clock.time(|| Self::number(shards, groups, &hashes))
    }

    fn number(shards: Vec<&'a KeyColumn>, groups: &[Vec<Group>], hashes: &[Vec<u64>]) -> Self {
        let total: usize = shards.iter().map(|keys| keys.len()).sum();
        let capacity = (total * 2).next_power_of_two().max(16);
        let mut table = Self {
            slots: vec![0; capacity],
            mask: capacity as u64 - 1,
            entries: Vec::with_capacity(total),
            rows: Vec::with_capacity(shards.len()),
            shards,
        };
        for (shard, groups) in groups.iter().enumerate() {
            let keys = table.shards[shard];
            let mut numbers = Vec::with_capacity(keys.len());
            for (row, &group) in groups.iter().enumerate() {
                let number = match keys.get(row) {
                    Some(key) if group != NO_GROUP => table.insert(
                        key,
                        hashes[shard][row],
                        Entry {
                            shard: shard as u32,
                            row: row as u32,
                            group,
                        },
                    ),
                    _ => NONE,
                };
                numbers.push(number);
            }
            table.rows.push(numbers);
        }
        table.entries.shrink_to_fit();
        table
    }

    fn insert(&mut self, key: &[u8], hash: u64, entry: Entry) -> u32 {
        let tag = hash & !0xffff_ffff;
        let mut at = hash & self.mask;
        loop {
            let slot = self.slots[at as usize];
            if slot == 0 {
                let number = self.entries.len() as u32;
                self.entries.push(entry);
                self.slots[at as usize] = tag | u64::from(number + 1);
                return number;
            }
            let number = slot as u32 - 1;
            if slot & !0xffff_ffff == tag && self.is(number, key, entry.group) {
                return number;
            }
            at = (at + 1) & self.mask;
        }
    }

    fn is(&self, number: u32, key: &[u8], group: Group) -> bool {
        let entry = self.entries[number as usize];
        entry.group == group
            && self.shards[entry.shard as usize].get(entry.row as usize) == Some(key)
    }

    /// Number of a key, if a shard holds it.
    #[inline]
    pub fn find(&self, key: &[u8], group: Group) -> Option<u32> {
        let hash = hash(key, group);
        let tag = hash & !0xffff_ffff;
        let mut at = hash & self.mask;
        loop {
            let slot = self.slots[at as usize];
            if slot == 0 {
                return None;
            }
            let number = slot as u32 - 1;
            if slot & !0xffff_ffff == tag && self.is(number, key, group) {
                return Some(number);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// How many distinct keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no row has a key to look up.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes out, for each shard, the number of each row's key ([`NONE`] without one).
    pub fn into_rows(self) -> Vec<Vec<u32>> {
        self.rows
    }

    /// The key numbers of one shard's rows.
    pub fn rows(&self, shard: usize) -> &[u32] {
        &self.rows[shard]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeyKind;
    use proptest::prelude::*;

    fn column(keys: &[Option<Vec<u8>>]) -> KeyColumn {
        let mut column = KeyColumn::new(KeyKind::Bytes);
        for key in keys {
            column.push(key.as_deref()).unwrap();
        }
        column
    }

    proptest! {
        #[test]
        fn finds_exactly_the_keys_of_the_group(
            keys in prop::collection::vec((prop::option::of(prop::collection::vec(0u8..4, 0..4)), 0u16..3), 0..200),
            probes in prop::collection::vec((prop::collection::vec(0u8..4, 0..4), 0u16..3), 0..50),
        ) {
            let column = column(&keys.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>());
            let groups = vec![keys.iter().map(|(_, group)| if *group == 2 { NO_GROUP } else { *group }).collect::<Vec<_>>()];
            let table = KeyTable::build(vec![&column], &groups, 2, &CpuClock::default());
            for (probe, group) in &probes {
                let expected = keys.iter().any(|(key, g)| *g != 2 && g == group && key.as_ref() == Some(probe));
                prop_assert_eq!(table.find(probe, *group).is_some(), expected);
            }
            for (row, (key, group)) in keys.iter().enumerate() {
                match key {
                    Some(key) if *group != 2 => prop_assert_eq!(table.find(key, *group), Some(table.rows(0)[row])),
                    _ => prop_assert_eq!(table.rows(0)[row], NONE),
                }
            }
        }
    }
}
