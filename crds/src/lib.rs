//! API types of `SidecarJob`, the one manifest that drives both a single machine and
//! a cluster.
//!
//! * [`SidecarJob`] and [`SidecarJobSpec`]: what a user writes; one noun, one module.
//! * [`SidecarJobStatus`]: what the operator reports.
//! * [`types`]: column types, the struct types that are built in, and the parser of type
//!   expressions.
//! * [`digest`]: the hash that says whether two manifests give the same shards.
//! * [`prefix`]: how prefixes are normalised and compared.
//! * [`rules`]: every cross-field rule, as CEL. The API server and [`manifest::load`]
//!   evaluate the same text.
//! * [`manifest`]: reading manifest files, with every mistake reported at its path.
//!
//! Nothing here does I/O, except that [`manifest`] reads manifest files.
#![forbid(unsafe_code)]

mod canary;
mod columns;
mod dataset;
pub mod definition;
pub mod digest;
mod lifecycle;
pub mod manifest;
mod ops;
mod output;
mod pipeline;
pub mod prefix;
pub mod reference;
pub mod rules;
mod run_id;
mod schema_check;
mod sidecar_job;
mod split_layout;
mod status;
mod storage_access;
mod suggest;
mod throughput;
pub mod types;
mod worker;

pub use canary::Canary;
pub use columns::{Column, StructField};
pub use dataset::{Dataset, SourceInference, SourceMarker};
pub use lifecycle::{FailurePolicy, OnSpecChange};
pub use ops::{
    ComputeFilters, DecodeLimits, ExtractScaffold, FilterName, JoinFromParquet, JoinMode,
    MergeFromSidecar, MergeMode, OnRowError, RecaptionMerge, RecaptionMode,
};
pub use output::Output;
pub use pipeline::{InvalidStep, Operation, PipelineStep};
pub use run_id::{InvalidRunId, RunId};
pub use sidecar_job::{GROUP, SidecarJob, SidecarJobSpec, VERSION};
pub use status::{
    BatchStatus, CanaryStatus, CanaryTerms, FailedShard, OutputStatus, RateStatus, RowCounts,
    RunStatus, ShardCounts, SidecarJobStatus, SizingStatus, WorkerCounts,
};
pub use storage_access::{ChecksumMode, SecretReference, StorageAccess};
pub use throughput::Throughput;
pub use worker::{
    Disruption, EnvironmentVariable, ImagePullPolicy, ResourceRequirements, Toleration,
    TolerationEffect, TolerationOperator, Worker,
};
