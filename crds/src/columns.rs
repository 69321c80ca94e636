//! Columns that the sidecar adds, and the fields of struct types.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A column of the sidecar.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Column {
    /// Name of the column, as it appears in the Parquet file. Dots and other characters
    /// have no special meaning.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Type of the column: a primitive (`bool`, `int8` to `int64`, `uint8` to `uint64`,
    /// `float32`, `float64`, `string`, `binary`, `date`, `timestamp`), `list<TYPE>`, or
    /// the name of a struct type, built in or from `spec.schemas`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub type_expression: String,
}

/// A field of a struct type.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StructField {
    /// Name of the field.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Type of the field, written as in `spec.columns`.
    #[serde(rename = "type")]
    #[schemars(length(min = 1, max = 256))]
    pub type_expression: String,
}

impl Column {
    /// A column called `name` whose type is the expression `type_expression`.
    pub fn new(name: impl Into<String>, type_expression: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            type_expression: type_expression.into(),
        }
    }
}

impl StructField {
    /// A field called `name` whose type is the expression `type_expression`.
    pub fn new(name: impl Into<String>, type_expression: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            type_expression: type_expression.into(),
        }
    }
}
