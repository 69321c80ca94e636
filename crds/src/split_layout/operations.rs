//! Operations in snake case, with their `type` among their settings.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::{Map, Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use super::names::{camel_case, pascal_case, snake_case};
use crate::{
    definition,
    manifest::{Violation, value_to_json},
    suggest::did_you_mean,
};

/// The pipeline of a `SidecarJob` from the list of operations. Names of operations and
/// settings come from the schema, so that a new operation is known here by itself.
pub(super) fn translate(operations: Option<&Yaml>, violations: &mut Vec<Violation>) -> Vec<Json> {
    let Some(operations) = operations.and_then(Yaml::as_sequence) else {
        violations.push(Violation::new(
            "operations",
            "expected a list of operations",
        ));
        return Vec::new();
    };
    let step_schema = step_schema();
    operations
        .iter()
        .enumerate()
        .filter_map(|(position, operation)| {
            let path = format!("operations[{position}]");
            translate_one(operation, &path, &step_schema, violations)
        })
        .collect()
}

fn translate_one(
    operation: &Yaml,
    path: &str,
    step_schema: &JSONSchemaProps,
    violations: &mut Vec<Violation>,
) -> Option<Json> {
    let type_path = format!("{path}.type");
    let settings: Option<&Mapping> = operation.as_mapping();
    let Some(type_name) = settings
        .and_then(|map| map.get("type"))
        .and_then(Yaml::as_str)
    else {
        violations.push(Violation::new(
            type_path,
            "expected the name of an operation",
        ));
        return None;
    };
    let known_operations: Vec<String> = step_schema
        .properties
        .iter()
        .flatten()
        .map(|(name, _)| snake_case(name))
        .collect();
    let name = camel_case(type_name);
    let Some(schema) = step_schema
        .properties
        .as_ref()
        .and_then(|all| all.get(&name))
    else {
        let hint = did_you_mean(type_name, known_operations.iter().map(String::as_str));
        let message = format!("unknown operation \"{type_name}\"{hint}");
        violations.push(Violation::new(type_path, message));
        return None;
    };

    let mut translated = Map::new();
    for (key, value) in settings.into_iter().flatten() {
        let key = key.as_str().unwrap_or_default();
        if key == "type" {
            continue;
        }
        let at = format!("{path}.{key}");
        let camel = camel_case(key);
        let Some(property) = schema.properties.as_ref().and_then(|all| all.get(&camel)) else {
            let known: Vec<String> = schema
                .properties
                .iter()
                .flatten()
                .map(|(name, _)| snake_case(name))
                .collect();
            let hint = did_you_mean(key, known.iter().map(String::as_str));
            violations.push(Violation::new(at, format!("unknown field \"{key}\"{hint}")));
            continue;
        };
        match value_to_json(value, &at) {
            Ok(value) => {
                translated.insert(camel, translate_value(property, value));
            }
            Err(violation) => violations.push(violation),
        }
    }
    Some(json!({ name: translated }))
}

/// Words of closed sets change case, and so do names of nested settings; all else is data.
fn translate_value(schema: &JSONSchemaProps, value: Json) -> Json {
    match value {
        Json::String(word) => {
            let allowed = schema
                .enum_
                .iter()
                .flatten()
                .filter_map(|json| json.0.as_str());
            let candidates = [pascal_case(&word), camel_case(&word)];
            let known = allowed
                .map(str::to_owned)
                .find(|allowed| candidates.contains(allowed));
            Json::String(known.unwrap_or(word))
        }
        Json::Array(values) => match &schema.items {
            Some(JSONSchemaPropsOrArray::Schema(items)) => values
                .into_iter()
                .map(|value| translate_value(items, value))
                .collect(),
            _ => Json::Array(values),
        },
        Json::Object(members) => {
            let renamed = members.into_iter().map(|(name, value)| {
                let camel = camel_case(&name);
                match schema.properties.as_ref().and_then(|all| all.get(&camel)) {
                    Some(property) => (camel, translate_value(property, value)),
                    None => (name, value),
                }
            });
            Json::Object(renamed.collect())
        }
        other => other,
    }
}

/// The schema of an item of `spec.pipeline`.
fn step_schema() -> JSONSchemaProps {
    let item = |schema: &JSONSchemaProps| match &schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => Some((**items).clone()),
        _ => None,
    };
    let root = definition::schema();
    root.properties
        .as_ref()
        .and_then(|all| all.get("spec"))
        .and_then(|spec| spec.properties.as_ref())
        .and_then(|all| all.get("pipeline"))
        .and_then(item)
        .unwrap_or_default()
}
