//! The small run that goes before the large one.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// A small first run over a spread of shards. It measures the speed of a worker and the
/// match and null rates, and stops the job before the large spend if they are worse than
/// what is accepted here.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// Number of shards in the canary, spread over the whole dataset. 0: no canary.
    #[serde(default = "default_shards")]
    #[schemars(range(min = 0, max = 10_000))]
    pub shards: i32,
    /// Smallest accepted share of rows, from 0 to 1, whose key was found by every
    /// `joinFromParquet` and `recaptionMerge`. Absent: any rate is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub min_match_rate: Option<f64>,
    /// Largest accepted share of rows, from 0 to 1, without a value in any one declared
    /// column (all children null, for a struct). Absent: any rate is accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub max_null_rate: Option<f64>,
    /// Wait for a person after a canary that passed: the job goes on when this is set to
    /// false.
    #[serde(default)]
    pub pause: bool,
}

fn default_shards() -> i32 {
    20
}

impl Default for Canary {
    fn default() -> Self {
        Self {
            shards: default_shards(),
            min_match_rate: None,
            max_null_rate: None,
            pause: false,
        }
    }
}
