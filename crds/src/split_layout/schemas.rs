//! Files with struct types.
//!
//! A file holds types by name, each a map or a list of fields, at the top or below
//! `schemas`, `structs` or `types`; or one type as `name` and `fields`.

use std::{collections::BTreeMap, path::Path};

use serde_json::{Map, Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use super::{files::schema_files, read_mapping};
use crate::{
    columns::StructField,
    manifest::{ManifestError, Violation},
    types::{BUILT_IN_NAMES, DataType, TypeExpression, TypeRegistry, built_in, parse},
};

/// The struct types that these columns need, from the schema files of a dataset.
pub(super) fn read_for(
    dataset: &Path,
    columns: &[Json],
) -> Result<Map<String, Json>, ManifestError> {
    let mut known: BTreeMap<String, Vec<StructField>> = BTreeMap::new();
    for path in schema_files(dataset) {
        let (types, violations) = types_of(&read_mapping(&path)?);
        if !violations.is_empty() {
            return Err(ManifestError::invalid(&path, violations));
        }
        known.extend(types);
    }
    let mut needed = Map::new();
    let mut open: Vec<String> = columns
        .iter()
        .filter_map(|column| column["type"].as_str())
        .filter_map(struct_name)
        .collect();
    while let Some(name) = open.pop() {
        let Some(fields) = known.get(&name) else {
            continue; // reported as unknown when the job is validated
        };
        // A file may repeat a built-in type; only if it means another is it carried over,
        // and refused with the reason.
        if needed.contains_key(&name) || repeats_built_in(&name, &known) {
            continue;
        }
        open.extend(
            fields
                .iter()
                .filter_map(|field| struct_name(&field.type_expression)),
        );
        needed.insert(name, json!(fields));
    }
    Ok(needed)
}

fn repeats_built_in(name: &str, known: &BTreeMap<String, Vec<StructField>>) -> bool {
    let (Some(expected), Some(fields)) = (built_in(name), known.get(name)) else {
        return false;
    };
    // Built-in types contain only primitives, which resolve without other types.
    let none = BTreeMap::new();
    let Ok(registry) = TypeRegistry::new(&none) else {
        return false;
    };
    let resolved: Option<Vec<crate::types::Field>> = fields
        .iter()
        .map(|field| {
            let data_type = registry.resolve(&field.type_expression, "").ok()?;
            Some(crate::types::Field::new(&field.name, data_type))
        })
        .collect();
    debug_assert!(BUILT_IN_NAMES.contains(&name));
    resolved.is_some_and(|fields| DataType::Struct(fields) == expected)
}

/// The struct type that an expression names, inside lists too.
fn struct_name(expression: &str) -> Option<String> {
    let mut parsed = parse(expression).ok()?;
    loop {
        match parsed {
            TypeExpression::List(element) => parsed = *element,
            TypeExpression::Named(name) => return Some(name),
            TypeExpression::Primitive(_) => return None,
        }
    }
}

fn types_of(file: &Mapping) -> (BTreeMap<String, Vec<StructField>>, Vec<Violation>) {
    let mut types = BTreeMap::new();
    let mut violations = Vec::new();
    if let (Some(Yaml::String(name)), Some(fields)) = (file.get("name"), file.get("fields")) {
        add(name, fields, &mut types, &mut violations);
        return (types, violations);
    }
    let nested = ["schemas", "structs", "types"]
        .iter()
        .find_map(|name| file.get(*name).and_then(Yaml::as_mapping))
        .filter(|_| file.len() == 1);
    for (name, fields) in nested.unwrap_or(file) {
        match name.as_str() {
            Some(name) => add(name, fields, &mut types, &mut violations),
            None => violations.push(Violation::new("", "expected names of types as text")),
        }
    }
    (types, violations)
}

fn add(
    name: &str,
    fields: &Yaml,
    types: &mut BTreeMap<String, Vec<StructField>>,
    violations: &mut Vec<Violation>,
) {
    match fields_of(fields) {
        Some(fields) => {
            types.insert(name.to_owned(), fields);
        }
        None => violations.push(Violation::new(
            name,
            "expected fields, as {name: type} or [{name: ..., type: ...}]",
        )),
    }
}

fn fields_of(fields: &Yaml) -> Option<Vec<StructField>> {
    match fields {
        Yaml::Mapping(map) => match map.get("fields") {
            Some(inner @ (Yaml::Mapping(_) | Yaml::Sequence(_))) => fields_of(inner),
            _ => map
                .iter()
                .map(|(name, type_expression)| {
                    Some(StructField::new(name.as_str()?, type_expression.as_str()?))
                })
                .collect(),
        },
        Yaml::Sequence(list) => list
            .iter()
            .map(|field| {
                let name = field.get("name")?.as_str()?;
                Some(StructField::new(name, field.get("type")?.as_str()?))
            })
            .collect(),
        _ => None,
    }
}
