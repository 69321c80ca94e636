//! Printing a manifest.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value as Json;
use serde_yaml::Value as Yaml;

use super::value_to_json;
use crate::{definition, sidecar_job::SidecarJob};

/// The manifest as YAML, ready for a cluster: fields in the order of the reference, without
/// status, and without what the defaults say anyway.
pub fn to_yaml(job: &SidecarJob) -> String {
    let mut job = job.clone();
    job.status = None;
    // All keys are strings and all numbers finite, so neither step can fail.
    let mut value = serde_yaml::to_value(&job).expect("a manifest is valid YAML");
    let schema = definition::schema();
    if let Some(spec_schema) = schema.properties.as_ref().and_then(|all| all.get("spec"))
        && let Some(spec) = value.get_mut("spec")
    {
        remove_defaults(spec_schema, spec);
    }
    serde_yaml::to_string(&value).expect("a manifest is valid YAML")
}

/// Removes members that equal their default, innermost first, so that a struct of defaults
/// goes as a whole.
fn remove_defaults(schema: &JSONSchemaProps, value: &mut Yaml) {
    match value {
        Yaml::Mapping(map) => {
            let Some(properties) = &schema.properties else {
                return;
            };
            map.retain(|name, member| {
                let Some(property) = name.as_str().and_then(|name| properties.get(name)) else {
                    return true;
                };
                let full = value_to_json(member, "").unwrap_or(Json::Null);
                let is_default = property.default.as_ref().is_some_and(|json| json.0 == full);
                remove_defaults(property, member);
                !is_default && !member.is_null()
            });
        }
        Yaml::Sequence(values) => {
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                for value in values {
                    remove_defaults(items, value);
                }
            }
        }
        _ => {}
    }
}
