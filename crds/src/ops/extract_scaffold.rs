//! `extractScaffold`: the sidecar before anything is filled in.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Passes the columns of main through and adds every declared column that main lacks,
/// with its empty value: NULL, or for a struct a struct whose children are all NULL.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExtractScaffold {
    /// Columns of main that are left out, besides the image column.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 48), inner(length(min = 1, max = 128)))]
    #[x_kube(validation = rules::names_are_unique())]
    pub drop: Vec<String>,
}
