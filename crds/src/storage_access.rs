//! How object storage is reached.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::rules;

/// How object storage is reached. Everything has the default of the usual AWS variables
/// and profiles.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StorageAccess {
    /// URL of the S3 service, `https://HOST[:PORT]` or `http://HOST[:PORT]`. Absent: AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = rules::endpoint_is_a_url())]
    pub endpoint: Option<String>,
    /// Region that requests are signed for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[a-z0-9-]+$"))]
    pub region: Option<String>,
    /// Put the bucket in the path of the URL instead of the host name. Absent: true if
    /// `endpoint` is set, else false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path_style: Option<bool>,
    /// When requests carry a checksum of their body. Some servers that are not AWS need
    /// `WhenRequired`. Absent: `WhenSupported`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_checksums: Option<ChecksumMode>,
    /// Secret in the job's namespace with the keys `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and, if the credentials are temporary,
    /// `AWS_SESSION_TOKEN`. Absent: the identity of the worker's service account. On one
    /// machine it is not read; credentials come from the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<SecretReference>,
}

/// When requests carry a checksum of their body.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ChecksumMode {
    /// Whenever the operation allows one.
    #[default]
    WhenSupported,
    /// Only where the operation demands one.
    WhenRequired,
}

/// A Secret in the job's namespace.
#[derive(Clone, Debug, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// Name of the Secret.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub name: String,
}
