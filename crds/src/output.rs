//! Where the sidecar goes.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// Where the sidecar goes.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Folder of the sidecar's shards, written as `dataset.mainPrefix`. It may be neither
    /// inside nor around a folder that is read. Absent: a new sibling of
    /// `dataset.sidecarPrefix` (or of `dataset.mainPrefix`) named after the time, so that
    /// nothing is overwritten.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    #[x_kube(validation = rules::is_a_prefix())]
    pub prefix: Option<String>,
    /// Keep shards that are already in the output prefix and were made by this pipeline
    /// from the same main shard. False: every shard is made again.
    #[serde(default = "default_skip_existing")]
    pub skip_existing: bool,
}

fn default_skip_existing() -> bool {
    true
}

impl Default for Output {
    fn default() -> Self {
        Self {
            prefix: None,
            skip_existing: default_skip_existing(),
        }
    }
}
