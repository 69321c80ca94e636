//! What the operator reports. It has a fixed size: counts, never a list of all shards.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::storage_access::StorageAccess;

/// What the operator reports about a job. Words in it (phases, reasons) may grow in later
/// versions: treat an unknown one as news, not as an error.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SidecarJobStatus {
    /// The `metadata.generation` that this status is about; -1 before the operator has
    /// seen the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pending, Planning, Canary, Running, Verifying, Succeeded, Failed, Suspended or Stalled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub phase: Option<String>,
    /// What is going on, in a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 4096))]
    pub message: Option<String>,
    /// Ready, Reconciling and Stalled as in kstatus; also Planned, CanaryPassed,
    /// OutputLocked, WorkersUnschedulable, Queued, Suspended, Complete and Failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["type".into()]))]
    pub conditions: Vec<Condition>,
    /// Where the sidecar goes, in full.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1200))]
    pub output: Option<String>,
    /// The run that is going on, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStatus>,
    /// Shards by state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<ShardCounts>,
    /// Rows of the shards that are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<RowCounts>,
    /// Worker pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<WorkerCounts>,
    /// How fast it goes, over the last few minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<RateStatus>,
    /// What the canary measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryStatus>,
    /// How the number of workers was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sizing: Option<SizingStatus>,
    /// The latest Jobs of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub batches: Vec<BatchStatus>,
    /// The first shards that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub failures: Vec<FailedShard>,
    /// Object that lists every failed shard with its reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1400))]
    pub failure_report: Option<String>,
    /// Token of the last re-run that was asked for by annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub last_handled_rerun: Option<String>,
    /// Where this job has written, and with which pipelines: what it may replace there.
    /// The latest output is the first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub outputs: Vec<OutputStatus>,
}

/// An output prefix that the job has written.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutputStatus {
    /// The prefix, in full.
    #[schemars(length(max = 1200))]
    pub prefix: String,
    /// Digests of the pipelines whose shards the job made there, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub digests: Vec<String>,
}

/// A run: one pass over the dataset with one pipeline.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// Name of the run; also its folder below `_sidecar/runs/` in the output.
    #[schemars(length(max = 128))]
    pub name: String,
    /// Digest of what decides the bytes of the shards, in lower-case hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub pipeline_digest: Option<String>,
    /// Hash of the dataset, the columns and the pipeline as they were written when the run
    /// began, by which a change of them is noticed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub spec_hash: Option<String>,
    /// Image of the workers where `spec.worker.image` names none: the operator's default
    /// when the run was planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub image: Option<String>,
    /// Main prefix of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub main_prefix: Option<String>,
    /// How the run reaches object storage, but for the credentials. Absent: everything has
    /// its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageAccess>,
    /// Whether the pipeline of the run looks keys up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looks_up: Option<bool>,
    /// Number of this run among those of the job, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// Digests of earlier pipelines whose shards in the output this run replaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub replaces: Vec<String>,
    /// Whether every shard is made again, also those that are in place and right.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redo_all: bool,
    /// Fencing number of the writer lock that the workers carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// When planning began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the run ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
}

/// Shards by state.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShardCounts {
    /// Main shards.
    #[serde(default)]
    pub total: i64,
    /// Shards that are in the output and current, those from earlier runs included.
    #[serde(default)]
    pub done: i64,
    /// Of those, shards from earlier runs that were kept.
    #[serde(default)]
    pub kept: i64,
    /// Shards that failed for a reason of their own.
    #[serde(default)]
    pub failed: i64,
    /// Done and total, as `12034/50000`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub progress: Option<String>,
}

/// Rows of the shards that are done.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RowCounts {
    /// Rows written.
    #[serde(default)]
    pub written: i64,
    /// Rows whose key was looked up.
    #[serde(default)]
    pub looked_up: i64,
    /// Rows whose key was found.
    #[serde(default)]
    pub matched: i64,
    /// Share of looked-up rows that were found, as `98.2%`.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub match_share: Option<String>,
}

/// Worker pods.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerCounts {
    /// Workers asked for.
    #[serde(default)]
    pub desired: i32,
    /// Workers that run.
    #[serde(default)]
    pub ready: i32,
    /// Workers that wait for a node.
    #[serde(default)]
    pub pending: i32,
    /// Ready and desired, as `38/40`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub summary: Option<String>,
}

/// How fast it goes, over the last few minutes.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RateStatus {
    /// Rows an hour, rounded.
    #[serde(default)]
    pub rows_per_hour: i64,
    /// Shards a second.
    #[serde(default)]
    pub shards_per_second: f64,
    /// When the rest will be done at this speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_end: Option<Time>,
}

/// What the canary measured.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// Shards that the canary finished.
    #[serde(default)]
    pub shards: i32,
    /// Shards that one worker finishes in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards_per_second_per_worker: Option<f64>,
    /// Share of looked-up rows that were found, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_rate: Option<f64>,
    /// Share of rows without a value in the emptiest declared column, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub null_rate: Option<f64>,
    /// What is asked of the canary: `spec.canary` when the run was planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<CanaryTerms>,
    /// Whether the rates are within what is accepted. Absent: not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
}

/// What is asked of a canary.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryTerms {
    /// Shards of the canary.
    #[serde(default)]
    pub shards: i32,
    /// Smallest accepted match rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_match_rate: Option<f64>,
    /// Largest accepted null rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_null_rate: Option<f64>,
}

/// How the number of workers was found: the inputs of the formula, and its result.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SizingStatus {
    /// Rows to finish in an hour, from the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_rows_per_hour: Option<i64>,
    /// Rows of a shard, on average over sampled footers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows_per_shard: Option<f64>,
    /// Shards a second that the target asks for: target rows an hour / rows of a shard /
    /// 3600.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_shards_per_second: Option<f64>,
    /// Shards a second that were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_shards_per_second: Option<f64>,
    /// Workers that were at work at a time, on average, while that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_workers: Option<f64>,
    /// Workers that the formula asks for: target / observed shards a second x observed
    /// workers, rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted_workers: Option<i32>,
    /// Workers after the limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<i32>,
    /// Which limit applies: `maxWorkers`, the chunks left, or one of the Job API's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 128))]
    pub limited_by: Option<String>,
    /// Shards of a chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards_per_chunk: Option<i64>,
    /// When the number was last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_at: Option<Time>,
}

/// A Job of the run.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchStatus {
    /// Name of the Job.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Number of the batch within the run, from 0.
    #[serde(default)]
    pub batch: i32,
    /// Number of the attempt at this batch, from 1.
    #[serde(default)]
    pub attempt: i32,
    /// Chunks of the batch.
    #[serde(default)]
    pub chunks: i32,
    /// Chunks that are done.
    #[serde(default)]
    pub done: i32,
    /// Chunks that were given up.
    #[serde(default)]
    pub failed: i32,
    /// Waiting, Active, Suspended, Replaced, Deleted, Ended, Complete or Failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub state: Option<String>,
}

/// A shard that failed, and why.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedShard {
    /// Path of the shard relative to the main prefix.
    #[schemars(length(max = 1024))]
    pub path: String,
    /// Why it failed.
    #[schemars(length(max = 1024))]
    pub reason: String,
}
