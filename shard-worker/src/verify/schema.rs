//! Whether a sidecar's schema is the one that the manifest and main lead to, and that of the other
//! shards.

use std::collections::BTreeMap;

use crate::column_plan::{ColumnPlan, ShardFiles, Value, passes_unchanged};
use crate::encode::parquet_type;
use crate::parquet_file::ParquetFile;
use crate::spelling::spell;

/// Where the physical schema is not the one that the manifest and main lead to.
pub fn schema_differences(
    plan: &ColumnPlan,
    files: &ShardFiles,
    side: &ParquetFile,
) -> Vec<String> {
    let mut differences = Vec::new();
    let expected: Vec<&str> = plan
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let found: Vec<&str> = side.roots().iter().map(|field| field.name()).collect();
    if expected != found {
        differences.push(format!(
            "columns are {}, expected {}",
            found.join(", "),
            expected.join(", ")
        ));
        return differences;
    }
    for (column, found) in plan.columns.iter().zip(side.roots()) {
        let expected = match (&column.value, &column.declared) {
            (Value::File { file, root }, declared) => match files.get(*file) {
                Some(file) if passes_unchanged(file, *root, declared.as_ref()).unwrap_or(false) => {
                    Some(file.roots()[*root].clone())
                }
                _ => declared.as_ref().and_then(|field| parquet_type(field).ok()),
            },
            (_, Some(declared)) => parquet_type(declared).ok(),
            (_, None) => None,
        };
        if let Some(expected) = expected.filter(|expected| expected != found) {
            let (expected_kind, found_kind) = (spell(&expected), spell(found));
            differences.push(if expected_kind == found_kind {
                format!(
                    "column {:?} is {found_kind} in another physical type than expected",
                    column.name
                )
            } else {
                format!(
                    "column {:?} is {found_kind}, expected {expected_kind}",
                    column.name
                )
            });
        }
    }
    differences
}

/// The columns of a shard: what their values are, and whether they are main's alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Columns(BTreeMap<String, (String, bool)>);

impl Columns {
    /// The columns of a sidecar made by `plan`.
    pub fn of(plan: &ColumnPlan, side: &ParquetFile) -> Self {
        let own = plan.columns.iter().map(|column| {
            let is_main = matches!(column.value, Value::File { file: 0, .. });
            (column.name.as_str(), !is_main || column.declared.is_some())
        });
        let own: BTreeMap<&str, bool> = own.collect();
        let columns = side.roots().iter().map(|field| {
            let is_own = own.get(field.name()).copied().unwrap_or(true);
            (field.name().to_owned(), (spell(field), is_own))
        });
        Self(columns.collect())
    }

    /// In what the columns that the sidecar adds differ from those of another shard. Where main's
    /// shards differ among themselves, so do their sidecars.
    pub fn differences(&self, first: &Self, first_path: &str) -> Vec<String> {
        let mut differences = Vec::new();
        for (name, (kind, is_own)) in &self.0 {
            match first.0.get(name) {
                Some((other, other_is_own)) if kind != other && (*is_own || *other_is_own) => {
                    differences.push(format!(
                        "column {name:?} is {kind}, but {other} in {first_path}; declare it in spec.columns"
                    ));
                }
                None if *is_own => differences.push(format!(
                    "column {name:?} is not in {first_path}; declare it in spec.columns"
                )),
                _ => {}
            }
        }
        for (name, (_, is_own)) in &first.0 {
            if *is_own && !self.0.contains_key(name) {
                differences.push(format!(
                    "no column {name:?}, which {first_path} has; declare it in spec.columns"
                ));
            }
        }
        differences
    }
}
