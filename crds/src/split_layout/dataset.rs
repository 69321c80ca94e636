//! A dataset file.

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use super::{read_mapping, unknown_fields};
use crate::manifest::{ManifestError, Violation, value_to_json};

/// Fields of a dataset file.
const FIELDS: [&str; 8] = [
    "name",
    "browse",
    "main_prefix",
    "sidecar_prefix",
    "key_column",
    "image_column",
    "source_inference",
    "schema_extensions",
];

/// What a dataset file says, as parts of a spec.
pub(super) struct DatasetFile {
    /// `spec.dataset`.
    pub dataset: Json,
    /// `spec.columns`.
    pub columns: Vec<Json>,
}

/// Reads a dataset file.
pub(super) fn read(path: &Path) -> Result<DatasetFile, ManifestError> {
    let map = read_mapping(path)?;
    let mut violations = unknown_fields(&map, &FIELDS, "");
    let mut dataset = Map::new();
    for (field, target, required) in [
        ("main_prefix", "mainPrefix", true),
        ("sidecar_prefix", "sidecarPrefix", false),
        ("key_column", "keyColumn", true),
        ("image_column", "imageColumn", false),
    ] {
        match map.get(field) {
            Some(Yaml::String(text)) => {
                dataset.insert(target.to_owned(), json!(text));
            }
            None | Some(Yaml::Null) if !required => {}
            _ => violations.push(Violation::new(field, "expected text")),
        }
    }
    match map.get("source_inference") {
        None | Some(Yaml::Null) => {}
        Some(Yaml::Mapping(inference)) => {
            dataset.insert("sources".into(), sources(inference, &mut violations));
        }
        Some(_) => violations.push(Violation::new(
            "source_inference",
            "expected the fields markers and default",
        )),
    }
    let columns = columns(map.get("schema_extensions"), &mut violations);
    if violations.is_empty() {
        Ok(DatasetFile {
            dataset: Json::Object(dataset),
            columns,
        })
    } else {
        Err(ManifestError::invalid(path, violations))
    }
}

fn sources(inference: &Mapping, violations: &mut Vec<Violation>) -> Json {
    let at = "source_inference.";
    violations.extend(unknown_fields(inference, &["markers", "default"], at));
    let mut sources = Map::new();
    if let Some(default) = inference.get("default").filter(|value| !value.is_null()) {
        sources.insert(
            "default".into(),
            convert(default, &format!("{at}default"), violations),
        );
    }
    let markers = match inference.get("markers") {
        None | Some(Yaml::Null) => return Json::Object(sources),
        // Markers as {text: source}, in the order of the file.
        Some(Yaml::Mapping(map)) => map
            .iter()
            .map(|(contains, source)| {
                let path = format!("{at}markers");
                json!({
                    "contains": convert(contains, &path, violations),
                    "source": convert(source, &path, violations),
                })
            })
            .collect(),
        Some(Yaml::Sequence(list)) => list
            .iter()
            .enumerate()
            .map(|(position, item)| marker(item, &format!("{at}markers[{position}]"), violations))
            .collect(),
        Some(_) => {
            violations.push(Violation::new(
                format!("{at}markers"),
                "expected a list of markers",
            ));
            return Json::Object(sources);
        }
    };
    sources.insert("markers".into(), Json::Array(markers));
    Json::Object(sources)
}

/// `{contains: text, source: name}`; `marker` is another word for `contains`.
fn marker(item: &Yaml, path: &str, violations: &mut Vec<Violation>) -> Json {
    let Some(map) = item.as_mapping() else {
        violations.push(Violation::new(
            path,
            "expected the fields contains and source",
        ));
        return Json::Null;
    };
    violations.extend(unknown_fields(
        map,
        &["contains", "marker", "source"],
        &format!("{path}."),
    ));
    let contains = map.get("contains").or_else(|| map.get("marker"));
    let (Some(contains), Some(source)) = (contains, map.get("source")) else {
        violations.push(Violation::new(
            path,
            "expected the fields contains and source",
        ));
        return Json::Null;
    };
    json!({
        "contains": convert(contains, path, violations),
        "source": convert(source, path, violations),
    })
}

fn columns(extensions: Option<&Yaml>, violations: &mut Vec<Violation>) -> Vec<Json> {
    let at = "schema_extensions";
    let list = match extensions {
        None | Some(Yaml::Null) => return Vec::new(),
        Some(Yaml::Sequence(list)) => list,
        Some(_) => {
            violations.push(Violation::new(at, "expected a list of columns"));
            return Vec::new();
        }
    };
    let mut columns = Vec::with_capacity(list.len());
    for (position, item) in list.iter().enumerate() {
        let path = format!("{at}[{position}]");
        let Some(map) = item.as_mapping() else {
            violations.push(Violation::new(path, "expected the fields name and type"));
            continue;
        };
        violations.extend(unknown_fields(
            map,
            &["name", "type", "type_ref"],
            &format!("{path}."),
        ));
        let type_expression = map.get("type").or_else(|| map.get("type_ref"));
        match (map.get("name"), type_expression) {
            (Some(Yaml::String(name)), Some(Yaml::String(type_expression))) => {
                columns.push(json!({"name": name, "type": type_expression}));
            }
            _ => violations.push(Violation::new(
                path,
                "expected the fields name and type, as text",
            )),
        }
    }
    columns
}

fn convert(value: &Yaml, path: &str, violations: &mut Vec<Violation>) -> Json {
    value_to_json(value, path).unwrap_or_else(|violation| {
        violations.push(violation);
        Json::Null
    })
}
