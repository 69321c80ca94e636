//! `joinFromParquet`: columns of an index, looked up by key.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Brings columns of a Parquet index to the rows whose key it holds. A row that is not
/// found keeps its place, with empty values.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinFromParquet {
    /// The index: a Parquet file, or a folder. In a folder with a file for each source
    /// (`SOURCE.parquet`), a row looks only into the file of its own source, and a row
    /// without a source matches nothing.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::is_a_prefix())]
    pub source: String,
    /// Columns of the index to bring. Each is declared in `spec.columns`, where its type
    /// is.
    #[schemars(length(min = 1, max = 48), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = rules::names_are_unique())]
    pub columns: Vec<String>,
    /// Which rows get the index's value: `OverwriteAll` gives it to every row, and an
    /// empty one to rows that are not found; `UpdateIfNull` gives it only to rows whose
    /// value is NULL, or a struct whose children are all NULL.
    #[serde(default)]
    pub mode: JoinMode,
    /// Key column of the index. Absent: the same name as the target's key column.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub source_key_column: Option<String>,
    /// Column of main that is looked up. Absent: `dataset.keyColumn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub target_key_column: Option<String>,
}

/// Which rows get the index's value.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum JoinMode {
    /// Every row gets the index's value, or an empty one.
    #[default]
    OverwriteAll,
    /// Only rows without a value get the index's.
    UpdateIfNull,
}
