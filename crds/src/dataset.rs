//! The dataset that gets a sidecar.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// The dataset that gets a sidecar: where its shards are, and what identifies a row.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::image_is_not_the_key(),
    validation = rules::sidecar_apart_from_main()
)]
pub struct Dataset {
    /// Folder of the main shards: `s3://BUCKET/PATH/`, `file:///PATH/`, or, on one
    /// machine only, a path (a relative one starts at the current folder). All Parquet
    /// files below it are shards, but for names that begin with `_` or `.`. A missing
    /// final `/` is added.
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::is_a_prefix())]
    pub main_prefix: String,
    /// Folder where the team's present sidecar lives. It is never written unless
    /// `output.prefix` names it; a run without an output prefix goes to a sibling of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::is_a_prefix())]
    pub sidecar_prefix: Option<String>,
    /// Column of the main shards that identifies a row. Joins look rows up by it, and
    /// row-aligned files must agree on it in every row. Its values always come from main.
    #[schemars(length(min = 1, max = 128))]
    pub key_column: String,
    /// Column of the main shards that holds encoded images. It is neither read nor
    /// written unless an operation needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub image_column: Option<String>,
    /// How the source of a row is found. Absent: rows have no source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<SourceInference>,
}

/// How the source of a row is found from its key.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::sources_say_something())]
pub struct SourceInference {
    /// Markers, tried in this order; the first that occurs in the key decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::markers_are_unique())]
    pub markers: Vec<SourceMarker>,
    /// Source of rows whose key contains no marker. Absent: such rows have the source
    /// NULL.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 128))]
    pub default: Option<String>,
}

/// A piece of a key that tells its source.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceMarker {
    /// Text that occurs anywhere in the keys of this source, compared byte by byte.
    #[schemars(length(min = 1, max = 256))]
    pub contains: String,
    /// Name of the source. It is also the stem of the source's file in an index folder.
    #[schemars(length(min = 1, max = 128))]
    pub source: String,
}

impl SourceInference {
    /// The source of the row with this key: that of the first marker that occurs in it,
    /// else the default.
    pub fn infer(&self, key: &str) -> Option<&str> {
        self.markers
            .iter()
            .find(|marker| key.contains(&marker.contains))
            .map(|marker| marker.source.as_str())
            .or(self.default.as_deref())
    }
}
