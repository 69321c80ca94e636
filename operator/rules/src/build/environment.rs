//! The environment of a worker: how it reaches object storage, and what the spec adds.

use std::collections::BTreeMap;

use crds::{ChecksumMode, SidecarJob};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, SecretKeySelector};

use crate::model::{Settings, frozen};

/// Variables of the credentials, and whether a Secret may lack them.
const CREDENTIALS: [(&str, bool); 3] = [
    ("AWS_ACCESS_KEY_ID", false),
    ("AWS_SECRET_ACCESS_KEY", false),
    ("AWS_SESSION_TOKEN", true),
];

/// Beginnings of names that only the operator gives variables: they say where and as whom a worker
/// reaches its prefixes. An object that is older than the rule against them may still have some.
const RESERVED: [&str; 2] = ["AWS_", "SIDECARJOB_"];

/// Each variable once, by name. Of two sources the later counts: the installation, the spec's own
/// variables, how the run reaches storage, which is what operator and workers agree on.
/// `has_identity`: whether the workers have an identity of their own; then that of the node that
/// they happen to run on is none of their business.
pub(super) fn of(object: &SidecarJob, has_identity: bool, settings: &Settings) -> Vec<EnvVar> {
    let storage = frozen::storage(object);
    let mut variables: BTreeMap<String, EnvVar> = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        variables.insert(name.to_owned(), plain(name, value));
    };
    for (name, value) in &settings.worker_environment {
        set(name, value);
    }
    for variable in &object.spec.worker.env {
        let mut reserved = RESERVED.iter();
        if !reserved.any(|start| variable.name.starts_with(start)) {
            set(&variable.name, &variable.value);
        }
    }
    if has_identity {
        set("AWS_EC2_METADATA_DISABLED", "true");
    }
    // The only place of a worker that can be written to.
    set("TMPDIR", "/tmp");
    if let Some(endpoint) = &storage.endpoint {
        set("AWS_ENDPOINT_URL_S3", endpoint);
    }
    if let Some(region) = &storage.region {
        set("AWS_REGION", region);
    }
    if let Some(path_style) = storage.path_style {
        set("SIDECARJOB_S3_PATH_STYLE", &path_style.to_string());
    }
    if let Some(mode) = storage.request_checksums {
        let word = match mode {
            ChecksumMode::WhenSupported => "when_supported",
            ChecksumMode::WhenRequired => "when_required",
        };
        set("AWS_REQUEST_CHECKSUM_CALCULATION", word);
    }
    if let Some(secret) = &storage.credentials_secret_ref {
        for (name, optional) in CREDENTIALS {
            variables.insert(name.to_owned(), from_secret(name, &secret.name, optional));
        }
    }
    variables.into_values().collect()
}

fn plain(name: &str, value: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        value_from: None,
    }
}

fn from_secret(name: &str, secret: &str, optional: bool) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                key: name.to_owned(),
                name: secret.to_owned(),
                optional: optional.then_some(true),
            }),
            ..EnvVarSource::default()
        }),
    }
}
