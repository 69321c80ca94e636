//! What happens when a job changes or parts of it fail.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to do when the pipeline or the dataset of a job changes after its run started.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum OnSpecChange {
    /// Finish the run as it began and report the change as a condition.
    #[default]
    Reject,
    /// Start again with the new pipeline; shards in the output prefix that the old one
    /// wrote are replaced.
    Rerun,
    /// Start again in a new prefix below the output prefix, named after the new digest.
    NewPrefix,
}

/// How many failures a run may have and still count as complete.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailurePolicy {
    /// Largest number of shards that may fail before the job is Failed. The other shards
    /// are finished either way, and failed ones are listed with the reason.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub max_failed_shards: i64,
    /// How often a chunk whose worker died is tried again. Shards that fail for a reason
    /// of their own, such as a malformed file, are not tried again.
    #[serde(default = "default_retries_per_chunk")]
    #[schemars(range(min = 0, max = 20))]
    pub retries_per_chunk: i32,
}

fn default_retries_per_chunk() -> i32 {
    3
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self {
            max_failed_shards: 0,
            retries_per_chunk: default_retries_per_chunk(),
        }
    }
}
