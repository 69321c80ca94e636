//! The manifest of a run, as it is frozen beside the output.

use crds::{SidecarJob, SidecarJobSpec};
use kube::ResourceExt;
use serde_json::{Value, json};

/// What the workers work by: the object as it is now, with the effective output prefix, and nothing
/// of the cluster's own.
pub fn frozen_manifest(object: &SidecarJob, prefix: &str) -> Value {
    let mut spec: SidecarJobSpec = object.spec.clone();
    spec.output.prefix = Some(prefix.to_owned());
    json!({
        "apiVersion": format!("{}/{}", crds::GROUP, crds::VERSION),
        "kind": "SidecarJob",
        "metadata": {
            "name": object.name_any(),
            "namespace": object.namespace().unwrap_or_default(),
        },
        "spec": spec,
    })
}
