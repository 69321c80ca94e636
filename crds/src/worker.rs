//! The pods that do the work.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{rules, storage_access::SecretReference};

/// The pods that do the work. A chosen set of pod options, not a whole pod template;
/// on one machine nothing here is used.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Worker {
    /// Container image. Absent: the image that the operator was installed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub image: Option<String>,
    /// When the image is pulled. Absent: the cluster's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets with credentials of image registries.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<SecretReference>,
    /// CPU and memory of a worker. It uses as many threads as its CPU limit allows and
    /// sizes its buffers by its memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Service account of the pods; also the identity towards object storage, unless
    /// `spec.storage.credentialsSecretRef` is set. Absent: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub service_account_name: Option<String>,
    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "label_map")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that the pods accept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub tolerations: Vec<Toleration>,
    /// Priority class of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub priority_class_name: Option<String>,
    /// Further environment variables of the worker, as they are: `$(NAME)` is not expanded.
    /// Names that begin with `AWS_` or `SIDECARJOB_` are the operator's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(
        validation = rules::environment_is_unique(),
        validation = rules::environment_is_not_the_operators()
    )]
    pub env: Vec<EnvironmentVariable>,
    /// Further labels of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "label_map")]
    pub pod_labels: BTreeMap<String, String>,
    /// Further annotations of the pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "annotation_map")]
    pub pod_annotations: BTreeMap<String, String>,
    /// Whether tools that consolidate nodes should leave running workers alone.
    #[serde(default)]
    pub disruption: Disruption,
    /// Seconds that a worker has after SIGTERM to publish what is finished.
    #[serde(default = "default_grace_period")]
    #[schemars(range(min = 1, max = 600))]
    pub termination_grace_period_seconds: i64,
}

fn default_grace_period() -> i64 {
    30
}

impl Default for Worker {
    fn default() -> Self {
        Self {
            image: None,
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            resources: None,
            service_account_name: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            priority_class_name: None,
            env: Vec::new(),
            pod_labels: BTreeMap::new(),
            pod_annotations: BTreeMap::new(),
            disruption: Disruption::default(),
            termination_grace_period_seconds: default_grace_period(),
        }
    }
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ImagePullPolicy {
    /// Before every start.
    Always,
    /// If the node does not have it.
    IfNotPresent,
    /// Never; the node must have it.
    Never,
}

/// Whether running workers may be moved for a reason other than need.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Disruption {
    /// Pods ask node consolidation to leave them alone while they run.
    #[default]
    Avoid,
    /// Pods may be moved at any time; what they were doing is done again.
    Allow,
}

/// CPU and memory of a worker, as in any pod.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequirements {
    /// What the scheduler sets aside for a worker, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantity_map")]
    pub requests: BTreeMap<String, Quantity>,
    /// What a worker may use at most, by resource name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "quantity_map")]
    pub limits: BTreeMap<String, Quantity>,
}

/// A taint of nodes that the pods accept, as in any pod.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// Key of the taint. Absent: every key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 316))]
    pub key: Option<String>,
    /// How `value` is compared. Absent: `Equal`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<TolerationOperator>,
    /// Value of the taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub value: Option<String>,
    /// Effect of the taint. Absent: every effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effect: Option<TolerationEffect>,
    /// Seconds that a pod stays on a node that gets a `NoExecute` taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub toleration_seconds: Option<i64>,
}

/// How the value of a taint is compared.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TolerationOperator {
    /// The taint has the same value.
    Equal,
    /// The taint may have any value.
    Exists,
}

/// What a taint does to pods that do not accept it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum TolerationEffect {
    /// New pods are not scheduled.
    NoSchedule,
    /// New pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Running pods are evicted too.
    NoExecute,
}

/// An environment variable of the worker.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentVariable {
    /// Name of the variable.
    #[schemars(
        length(min = 1, max = 128),
        regex(pattern = r"^[A-Za-z_][A-Za-z0-9_]*$")
    )]
    pub name: String,
    /// Value of the variable. Secrets do not belong here: everyone who can read the job
    /// can read it.
    #[schemars(length(max = 1024))]
    pub value: String,
}

fn label_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 63}
    })
}

fn annotation_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": {"type": "string", "maxLength": 4096}
    })
}

fn quantity_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "maxLength": 32,
            "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][0-9]+)?$"
        }
    })
}
