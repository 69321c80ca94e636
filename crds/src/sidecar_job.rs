//! The resource itself: what a user writes.

// Printer columns repeat their keys by design; the lint takes nested keys for attributes.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    canary::Canary,
    columns::{Column, StructField},
    dataset::Dataset,
    lifecycle::{FailurePolicy, OnSpecChange},
    output::Output,
    pipeline::PipelineStep,
    rules,
    status::SidecarJobStatus,
    storage_access::StorageAccess,
    throughput::Throughput,
    worker::Worker,
};

/// API group of the resource.
pub const GROUP: &str = "sidecarjob.dev";

/// API version of the resource.
pub const VERSION: &str = "v1alpha1";

/// What to do: which dataset gets a sidecar, which columns it has, and how they are
/// filled.
#[derive(Clone, CustomResource, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[kube(
    group = "sidecarjob.dev",
    version = "v1alpha1",
    kind = "SidecarJob",
    plural = "sidecarjobs",
    singular = "sidecarjob",
    shortname = "sj",
    category = "all",
    namespaced,
    status = "SidecarJobStatus",
    derive = "PartialEq",
    doc = "Adds columns to a Parquet dataset as a sidecar: the same shards, rows and order, without the bytes of the main dataset.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Shards",
        type_ = "string",
        json_path = ".status.shards.progress"
    ),
    printcolumn(
        name = "Rows/h",
        type_ = "integer",
        json_path = ".status.rates.rowsPerHour"
    ),
    printcolumn(
        name = "Workers",
        type_ = "string",
        json_path = ".status.workers.summary"
    ),
    printcolumn(name = "Match", type_ = "string", json_path = ".status.rows.match"),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.shards.failed"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message"),
    printcolumn(
        name = "Run",
        type_ = "string",
        json_path = ".status.run.name",
        priority = 1
    ),
    printcolumn(
        name = "Output",
        type_ = "string",
        json_path = ".status.output",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::columns_are_not_key_or_image(),
    validation = rules::filters_need_the_image(),
    validation = rules::joined_columns_are_declared(),
    validation = rules::output_apart_from_main(),
    validation = rules::output_apart_from_sidecar(),
    validation = rules::output_apart_from_join_sources(),
    validation = rules::output_apart_from_merge_sources(),
    validation = rules::output_apart_from_recaption_sources()
)]
pub struct SidecarJobSpec {
    /// The dataset that gets a sidecar.
    pub dataset: Dataset,
    /// Struct types of this job, by name, beside the built-in ones. A type is the list of
    /// its fields, in order.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "struct_types")]
    #[x_kube(validation = rules::built_in_types_are_not_redefined())]
    pub schemas: BTreeMap<String, Vec<StructField>>,
    /// The columns that the sidecar adds to those of main, in order, with their types.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    #[x_kube(validation = rules::column_names_are_unique())]
    pub columns: Vec<Column>,
    /// The operations, one after the other.
    #[schemars(length(min = 1, max = 64))]
    pub pipeline: Vec<PipelineStep>,
    /// Where the sidecar goes.
    #[serde(default)]
    pub output: Output,
    /// How object storage is reached. Absent: by the usual AWS variables and profiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<StorageAccess>,
    /// How fast the job should run, and with how many workers.
    #[serde(default)]
    pub throughput: Throughput,
    /// The small run that goes before the large one.
    #[serde(default)]
    pub canary: Canary,
    /// The pods that do the work.
    #[serde(default)]
    pub worker: Worker,
    /// How many failures the job may have and still count as complete.
    #[serde(default)]
    pub failure_policy: FailurePolicy,
    /// Stop taking new work and let workers publish what is finished; false goes on from
    /// there.
    #[serde(default)]
    pub suspend: bool,
    /// Queue (Kueue `LocalQueue`) that decides when the workers may start. Absent: at
    /// once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 63),
        regex(pattern = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    )]
    pub queue: Option<String>,
    /// Seconds after its end when the job is deleted; the sidecar stays. Absent: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 315_360_000))]
    pub ttl_seconds_after_finished: Option<i32>,
    /// What a change of the dataset, the columns or the pipeline does to a run that has
    /// started: `Reject` finishes it as it began and reports the change, `Rerun` replaces
    /// it, `NewPrefix` starts another in a new folder below the output prefix.
    #[serde(default)]
    pub on_spec_change: OnSpecChange,
}

impl SidecarJobSpec {
    /// A spec with nothing but what every job needs; all else has its default.
    pub fn new(dataset: Dataset, columns: Vec<Column>, pipeline: Vec<PipelineStep>) -> Self {
        Self {
            dataset,
            schemas: BTreeMap::new(),
            columns,
            pipeline,
            output: Output::default(),
            storage: None,
            throughput: Throughput::default(),
            canary: Canary::default(),
            worker: Worker::default(),
            failure_policy: FailurePolicy::default(),
            suspend: false,
            queue: None,
            ttl_seconds_after_finished: None,
            on_spec_change: OnSpecChange::default(),
        }
    }
}

/// A map of lists has bounds on both levels, which no attribute can express.
fn struct_types(generator: &mut SchemaGenerator) -> Schema {
    let mut fields = json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": 40,
        "items": generator.subschema_for::<StructField>(),
    });
    let rule = rules::field_names_are_unique();
    // A rule is a struct of strings; turning it into JSON can't fail.
    kube::core::validate(&mut fields, rule).expect("a rule is valid JSON");
    json_schema!({
        "type": "object",
        "maxProperties": 32,
        "additionalProperties": fields,
    })
}
