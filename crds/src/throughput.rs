//! How fast the job should run.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// How fast the job should run, and what it may use for that. Both can be changed while
/// the job runs.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Throughput {
    /// Rows to finish in an hour. The number of workers follows from it and from the speed
    /// that is measured. Absent: `maxWorkers` workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1_000_000_000_000_i64))]
    pub target_rows_per_hour: Option<i64>,
    /// Largest number of worker pods at one time.
    #[serde(default = "default_max_workers")]
    #[schemars(range(min = 1, max = 10_000))]
    pub max_workers: i32,
}

fn default_max_workers() -> i32 {
    100
}

impl Default for Throughput {
    fn default() -> Self {
        Self {
            target_rows_per_hour: None,
            max_workers: default_max_workers(),
        }
    }
}
