//! The CustomResourceDefinition, as it is installed in a cluster.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::json;

use crate::sidecar_job::SidecarJob;

/// The CustomResourceDefinition of `SidecarJob`.
///
/// Beyond what the types say, `status` defaults to `{observedGeneration: -1}`, so that
/// tools that wait for a resource never take one for ready that the operator has not seen
/// yet, and keeps no rules, since a copy of a spec's part was held to them when it was
/// applied, and by an older definition's maybe; and no field is nullable, so that null means
/// absent, in a cluster and on the command line.
pub fn custom_resource_definition() -> CustomResourceDefinition {
    let mut definition = SidecarJob::crd();
    for version in &mut definition.spec.versions {
        let root = version
            .schema
            .as_mut()
            .and_then(|validation| validation.open_api_v3_schema.as_mut());
        if let Some(root) = root {
            for_each(root, &|part| part.nullable = None);
            let properties = root.properties.get_or_insert_default();
            if let Some(status) = properties.get_mut("status") {
                for_each(status, &|part| part.x_kubernetes_validations = None);
                status.default = Some(JSON(json!({"observedGeneration": -1})));
            }
        }
    }
    definition
}

/// The schema of a whole `SidecarJob`, from the definition.
pub fn schema() -> JSONSchemaProps {
    custom_resource_definition()
        .spec
        .versions
        .into_iter()
        .next()
        .and_then(|version| version.schema)
        .and_then(|validation| validation.open_api_v3_schema)
        .unwrap_or_default()
}

/// The definition as a YAML document.
///
/// # Errors
/// If the definition can't be written as YAML, which would be a fault of this crate.
pub fn to_yaml() -> Result<String, serde_yaml::Error> {
    serde_yaml::to_string(&custom_resource_definition())
}

/// Changes a schema and all that is inside it.
fn for_each(schema: &mut JSONSchemaProps, change: &impl Fn(&mut JSONSchemaProps)) {
    change(schema);
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|map| map.values_mut())
    {
        for_each(property, change);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        for_each(items, change);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        for_each(values, change);
    }
}
