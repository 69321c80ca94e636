//! Files that are generated from the types are as generated, and as they should be.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

fn committed(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn definition_is_current() {
    let yaml = crds::definition::to_yaml().unwrap();
    assert!(yaml == committed("crds/sidecarjobs.yaml"), "run: make crds");
    assert!(
        yaml.len() < 100 * 1024,
        "{} bytes are too many for an annotation",
        yaml.len()
    );
}

#[test]
fn reference_is_current() {
    assert!(
        crds::reference::markdown() == committed("docs/api.md"),
        "run: make crds"
    );
}

/// Everything that a user writes has bounds and words, and no part of the schema depends
/// on values.
#[test]
fn schema_is_structural_and_bounded() {
    let root = crds::definition::schema();
    let properties = root.properties.unwrap();
    check(&properties["spec"], "spec", true);
    check(&properties["status"], "status", false);
}

fn check(schema: &JSONSchemaProps, path: &str, is_input: bool) {
    assert!(
        schema.one_of.is_none() && schema.any_of.is_none() && schema.all_of.is_none(),
        "{path} depends on values"
    );
    assert!(schema.nullable.is_none(), "{path} is nullable");
    let is_fixed = schema.enum_.is_some() || schema.x_kubernetes_int_or_string.is_some();
    match schema.type_.as_deref() {
        Some("string") if is_input && !is_fixed => {
            assert!(schema.max_length.is_some(), "{path} has no maxLength");
        }
        Some("integer" | "number") if is_input => {
            assert!(
                schema.minimum.is_some() && schema.maximum.is_some(),
                "{path} has no bounds"
            );
        }
        Some("array") => assert!(
            schema.max_items.is_some() || schema.enum_.is_some(),
            "{path} has no maxItems"
        ),
        None => assert!(is_fixed, "{path} has no type"),
        _ => {}
    }
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        assert!(
            property.description.is_some() || path.starts_with("status.conditions"),
            "{path} has no description"
        );
        check(property, &path, is_input);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        check(items, &format!("{path}[]"), is_input);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        assert!(
            schema.max_properties.is_some(),
            "{path} has no maxProperties"
        );
        check(values, &format!("{path}.NAME"), is_input);
    }
}
