//! A hash table over the keys of the shards at hand: exact, compared as bytes.
//!
//! The table is built on the shards' side and the index streams past it, so its size follows
//! the memory budget, never the index.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::keys::KeyColumn;
use crate::workers::{CpuClock, map_parallel};

/// No key: a null key, or one whose source has no index.
pub const NONE: u32 = u32::MAX;

/// Rows are looked up only among the index files of their own group (source).
pub type Group = u16;
/// A row that belongs to no group.
pub const NO_GROUP: Group = Group::MAX;

/// Hash bits that a slot holds beside a number.
const TAG: u64 = !0xffff_ffff;

/// Distinct keys. The number of a key is that of a row that has it, all shards' rows counted
/// on: which of several rows depends on chance, that equal keys have one number does not.
#[derive(Debug)]
pub struct KeyTable<'a> {
    shards: Vec<&'a KeyColumn>,
    groups: &'a [Vec<Group>],
    /// For each shard, the number of its first row; at the end, how many rows there are.
    starts: Vec<u32>,
    /// Upper half: hash bits that tell most other keys apart; lower half: number + 1, 0 is free.
    slots: Vec<AtomicU64>,
    mask: u64,
    rows: Vec<Vec<u32>>,
    distinct: usize,
}

/// Hash of a key within a group.
#[inline]
pub fn hash(key: &[u8], group: Group) -> u64 {
    xxh3_64_with_seed(key, u64::from(group))
}

impl<'a> KeyTable<'a> {
    /// Numbers the keys of `shards`; `groups` says for each shard where its rows look. Shards
    /// are shared out over threads, which all fill one table.
    pub fn build(
        shards: Vec<&'a KeyColumn>,
        groups: &'a [Vec<Group>],
        threads: usize,
        clock: &CpuClock,
    ) -> Self {
        let mut starts = Vec::with_capacity(shards.len() + 1);
        starts.push(0_u32);
        for keys in &shards {
            starts.push(starts[starts.len() - 1] + keys.len() as u32);
        }
        let total = starts[shards.len()] as usize;
        let capacity = (total * 2).next_power_of_two().max(16);
        let mut table = Self {
            groups,
            starts,
            slots: std::iter::repeat_with(|| AtomicU64::new(0))
                .take(capacity)
                .collect(),
            mask: capacity as u64 - 1,
            rows: Vec::new(),
            distinct: 0,
            shards,
        };
        let numbered = map_parallel(threads, &table.shards, clock, |shard, _| {
            Ok::<_, Infallible>(table.number(shard))
        });
        for (rows, new) in numbered.unwrap_or_default() {
            table.rows.push(rows);
            table.distinct += new;
        }
        table
    }

    /// Numbers the rows of one shard; returns how many keys were new, too.
    fn number(&self, shard: usize) -> (Vec<u32>, usize) {
        let keys = self.shards[shard];
        let mut new = 0;
        let number_of = |(row, &group): (usize, &Group)| match keys.get(row) {
            Some(key) if group != NO_GROUP => {
                let own = self.starts[shard] + row as u32;
                let number = self.insert(key, group, own);
                new += usize::from(number == own);
                number
            }
            _ => NONE,
        };
        let rows = self.groups[shard]
            .iter()
            .enumerate()
            .map(number_of)
            .collect();
        (rows, new)
    }

    /// The number of a key, which is `own` if no row had it before. A slot is filled once and
    /// never changes, and all that it refers to was there before the threads were: no order of
    /// memory accesses matters.
    fn insert(&self, key: &[u8], group: Group, own: u32) -> u32 {
        let hash = hash(key, group);
        let mut at = hash & self.mask;
        loop {
            let place = &self.slots[at as usize];
            let mut slot = place.load(Ordering::Relaxed);
            if slot == 0 {
                let filled = (hash & TAG) | u64::from(own + 1);
                match place.compare_exchange(0, filled, Ordering::Relaxed, Ordering::Relaxed) {
                    Ok(_) => return own,
                    Err(other) => slot = other,
                }
            }
            if let Some(number) = self.matching(slot, hash, key, group) {
                return number;
            }
            at = (at + 1) & self.mask;
        }
    }

    /// Number of a key, if a shard holds it.
    #[inline]
    pub fn find(&self, key: &[u8], group: Group) -> Option<u32> {
        let hash = hash(key, group);
        let mut at = hash & self.mask;
        loop {
            let slot = self.slots[at as usize].load(Ordering::Relaxed);
            if slot == 0 {
                return None;
            }
            if let Some(number) = self.matching(slot, hash, key, group) {
                return Some(number);
            }
            at = (at + 1) & self.mask;
        }
    }

    /// The number in a filled slot, if that is the key's.
    #[inline]
    fn matching(&self, slot: u64, hash: u64, key: &[u8], group: Group) -> Option<u32> {
        let number = slot as u32 - 1;
        (slot & TAG == hash & TAG && self.is(number, key, group)).then_some(number)
    }

    fn is(&self, number: u32, key: &[u8], group: Group) -> bool {
        let shard = self.starts.partition_point(|&start| start <= number) - 1;
        let row = (number - self.starts[shard]) as usize;
        self.groups[shard][row] == group && self.shards[shard].get(row) == Some(key)
    }

    /// Every number is below this.
    pub fn numbers(&self) -> usize {
        self.starts[self.shards.len()] as usize
    }

    /// How many distinct keys there are.
    pub fn distinct(&self) -> usize {
        self.distinct
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
        let mut column = KeyColumn::new(KeyKind::Binary);
        for key in keys {
            column.push(key.as_deref()).unwrap();
        }
        column
    }

    #[test]
    fn threads_that_meet_agree_on_one_number_a_key() {
        let keys: Vec<_> = (0..5000_u32)
            .map(|key| Some(key.to_le_bytes().to_vec()))
            .collect();
        // Every key is in every shard, so that all threads insert the same ones at once.
        let columns: Vec<_> = (0..8).map(|_| column(&keys)).collect();
        let groups = vec![vec![0; keys.len()]; columns.len()];
        let table = KeyTable::build(columns.iter().collect(), &groups, 4, &CpuClock::default());
        assert_eq!(table.distinct(), keys.len());
        for (row, key) in keys.iter().flatten().enumerate() {
            let number = table.find(key, 0);
            assert!(
                (0..8).all(|shard| Some(table.rows(shard)[row]) == number),
                "{row}"
            );
        }
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
            let distinct: std::collections::BTreeSet<_> = keys
                .iter()
                .filter_map(|(key, group)| (*group != 2).then_some((key.as_ref()?, group)))
                .collect();
            prop_assert_eq!(table.distinct(), distinct.len());
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
