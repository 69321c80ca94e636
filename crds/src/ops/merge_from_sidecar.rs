//! `mergeFromSidecar`: columns of another sidecar of the same main shards.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Brings columns of another sidecar, row by row. The other sidecar has a shard at the
/// same relative path, with as many rows, and the same key in each row; otherwise the
/// shard fails and nothing is written for it. A NULL key agrees with nothing.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MergeFromSidecar {
    /// Folder of the other sidecar, written as `dataset.mainPrefix`.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::is_a_prefix())]
    pub source_prefix: String,
    /// Columns to bring. Absent: every column but the key column.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 48), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = rules::names_are_unique())]
    pub columns: Option<Vec<String>>,
    /// What happens to columns that exist on both sides: `FillMissing` keeps what is
    /// there, `PreferSidecar` takes the other sidecar's, except for the key and image
    /// columns, which always come from main.
    #[serde(default)]
    pub mode: MergeMode,
    /// Whether every main shard needs a shard in the other sidecar. False: where it is
    /// missing, this step does nothing.
    #[serde(default = "default_required")]
    pub required: bool,
    /// Key column of main for the comparison of rows. Absent: `dataset.keyColumn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub target_key_column: Option<String>,
    /// Key column of the other sidecar for the comparison of rows. Absent: the same name
    /// as the target's key column.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub source_key_column: Option<String>,
}

/// What happens to columns that exist on both sides.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum MergeMode {
    /// Only columns that are not there yet are brought.
    #[default]
    FillMissing,
    /// The other sidecar's columns win, but for the key and image columns.
    PreferSidecar,
}

fn default_required() -> bool {
    true
}
