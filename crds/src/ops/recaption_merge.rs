//! `recaptionMerge`: new texts for rows, looked up by key.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Brings texts, such as captions, to the rows whose key they are listed under. A text
/// that is missing, empty or only white space never replaces one that is there.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecaptionMerge {
    /// The texts: a Parquet or JSON Lines file (`.jsonl`, also with `.gz` or `.zst`), or
    /// a folder of them.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::is_a_prefix())]
    pub source: String,
    /// Text columns to bring.
    #[schemars(length(min = 1, max = 48), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = rules::names_are_unique())]
    pub columns: Vec<String>,
    /// Which rows get the new text: `IfNull` only those without one, `Always` every row
    /// for which there is a new text.
    #[serde(default)]
    pub mode: RecaptionMode,
    /// Key column of the texts. Absent: the same name as the target's key column.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub source_key_column: Option<String>,
    /// Column of main that is looked up. Absent: `dataset.keyColumn`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub target_key_column: Option<String>,
}

/// Which rows get the new text.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum RecaptionMode {
    /// Only rows whose text is NULL, empty or white space.
    #[default]
    IfNull,
    /// Every row for which there is a new text.
    Always,
}
