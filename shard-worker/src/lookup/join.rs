//! The lookup of `joinFromParquet`: keys first, values only where there are hits.

use std::time::Instant;

use arrow::datatypes::FieldRef;

use crate::keys::{KeyColumn, KeyKind};
use crate::lookup::gather::gather;
use crate::lookup::index::Index;
use crate::lookup::key_table::{Group, KeyTable};
use crate::lookup::probe::probe;
use crate::lookup::{Found, Limits, Lookup, NONE, PassError, PassStats, rows_of};
use crate::sources::Sources;
use crate::workers::map_parallel;

/// An index that is streamed past the shards.
///
/// Where a key occurs more than once in the index, its last row wins: files in byte order of
/// their names, row groups and rows in file order.
#[derive(Debug)]
pub struct JoinLookup {
    uri: String,
    target_key: String,
    kind: KeyKind,
    fields: Vec<FieldRef>,
    index: Index,
    sources: Sources,
}

impl JoinLookup {
    /// A lookup over an open index.
    pub fn new(
        uri: &str,
        target_key: String,
        kind: KeyKind,
        fields: Vec<FieldRef>,
        index: Index,
        sources: Sources,
    ) -> Self {
        Self {
            uri: uri.to_owned(),
            target_key,
            kind,
            fields,
            index,
            sources,
        }
    }

    fn groups(&self, keys: &KeyColumn) -> Vec<Group> {
        if self.index.by_source {
            self.sources.infer_all(keys)
        } else {
            vec![0; keys.len()]
        }
    }
}

impl Lookup for JoinLookup {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn target_key(&self) -> &str {
        &self.target_key
    }

    fn key_kind(&self) -> Option<KeyKind> {
        Some(self.kind)
    }

    fn decides_match(&self) -> bool {
        true
    }

    fn columns(&self) -> &[FieldRef] {
        &self.fields
    }

    fn value_width(&self) -> u64 {
        self.index.value_width
    }

    fn warnings(&self) -> Vec<String> {
        let missing = self.index.missing.iter();
        let warn = |source: &String| {
            format!(
                "{} has no file {source}.parquet: rows of source {source:?} match nothing",
                self.uri
            )
        };
        missing.map(warn).collect()
    }

    fn pass(&self, shards: &[&KeyColumn], limits: Limits<'_>) -> Result<Found, PassError> {
        let Limits { threads, clock, .. } = limits;
        let groups = map_parallel(threads, shards, clock, |_, keys| {
            Ok::<Vec<Group>, PassError>(self.groups(keys))
        })?;
        let table = KeyTable::build(shards.to_vec(), &groups, threads, clock);
        let begun = Instant::now();
        let probed = probe(&self.index, &table, shards, &groups, limits)?;
        let mut stats = PassStats {
            rows_read: probed.rows_read,
            rows_pruned: probed.rows_pruned,
            null_keys: probed.null_keys,
            keys: table.distinct() as u64,
            ..PassStats::default()
        };
        stats.keys_found = probed.hits.iter().map(|hits| hits.len() as u64).sum();
        let (columns, unfit) = gather(&self.index, &probed.hits, &self.fields, limits)?;
        stats.bad_values = unfit.iter().map(|column| column.rows().len() as u64).sum();
        stats.reading = begun.elapsed();
        let kind = shards.first().map(|keys| keys.kind);
        if let Some(kind) = kind.filter(|kind| *kind != self.kind)
            && (stats.keys_found, stats.rows_read > 0) == (0, true)
        {
            tracing::warn!(
                "{}: its keys are {}, main's {:?} are {}, and none of {} was found",
                self.uri,
                self.kind.describe(),
                self.target_key,
                kind.describe(),
                stats.keys
            );
        }
        let mut row_of_key = vec![NONE; table.numbers()];
        for (row, hit) in probed.hits.iter().flatten().enumerate() {
            row_of_key[hit.key as usize] = row as u32;
        }
        let rows = rows_of(table.into_rows(), &row_of_key);
        Ok(Found {
            rows,
            columns,
            unfit,
            groups: self.index.by_source.then_some(groups),
            stats,
        })
    }
}
