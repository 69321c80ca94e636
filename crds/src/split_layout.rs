//! Manifests split over several files, as an existing tool has them.
//!
//! `pipelines/x.yaml` names a dataset and lists operations; `datasets/y.yaml` describes the
//! dataset and its columns; `schemas/*.yaml` hold struct types. Names are in snake case.
//! All of it becomes one `SidecarJob`, and is checked as any other.

mod dataset;
mod files;
mod names;
mod operations;
mod schemas;

use std::path::Path;

use serde_json::{Map, Value as Json, json};
use serde_yaml::{Mapping, Value as Yaml};

use crate::{
    manifest::{ManifestError, Violation, read_yaml},
    sidecar_job::{GROUP, VERSION},
    suggest::did_you_mean,
};

/// Fields of a pipeline file.
const PIPELINE_FIELDS: [&str; 3] = ["name", "dataset", "operations"];

/// Whether a document is a pipeline of the split layout and not a `SidecarJob`.
pub(crate) fn is_pipeline(document: &Yaml) -> bool {
    document.get("apiVersion").is_none()
        && document.get("kind").is_none()
        && (document.get("operations").is_some()
            || document.get("dataset").is_some_and(Yaml::is_string))
}

/// The `SidecarJob` that a pipeline and the files that it refers to amount to, not yet
/// validated.
pub(crate) fn to_job(document: &Yaml, path: &Path) -> Result<Json, ManifestError> {
    let invalid = |violations| ManifestError::invalid(path, violations);
    let Some(pipeline) = document.as_mapping() else {
        return Err(invalid(vec![Violation::new(
            "",
            "expected the fields dataset and operations",
        )]));
    };
    let mut violations = unknown_fields(pipeline, &PIPELINE_FIELDS, "");
    let steps = operations::translate(pipeline.get("operations"), &mut violations);
    let Some(reference) = pipeline.get("dataset").and_then(Yaml::as_str) else {
        violations.push(Violation::new("dataset", "expected the name of a dataset"));
        return Err(invalid(violations));
    };
    let dataset_path = match files::find_dataset(path, reference) {
        Ok(found) => found,
        Err(message) => {
            violations.push(Violation::new("dataset", message));
            return Err(invalid(violations));
        }
    };
    if !violations.is_empty() {
        return Err(invalid(violations));
    }

    let dataset = dataset::read(&dataset_path)?;
    let types = schemas::read_for(&dataset_path, &dataset.columns)?;
    let name = pipeline.get("name").and_then(Yaml::as_str).map_or_else(
        || {
            path.file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        },
        str::to_owned,
    );
    let mut spec = Map::new();
    spec.insert("dataset".into(), dataset.dataset);
    if !types.is_empty() {
        spec.insert("schemas".into(), Json::Object(types));
    }
    spec.insert("columns".into(), Json::Array(dataset.columns));
    spec.insert("pipeline".into(), Json::Array(steps));
    Ok(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": "SidecarJob",
        "metadata": {"name": names::resource_name(&name)},
        "spec": spec,
    }))
}

/// A violation for each field of `map` that is not known.
fn unknown_fields(map: &Mapping, known: &[&str], path: &str) -> Vec<Violation> {
    map.keys()
        .map(|name| {
            name.as_str()
                .map_or_else(|| format!("{name:?}"), str::to_owned)
        })
        .filter(|name| !known.contains(&name.as_str()))
        .map(|name| {
            let hint = did_you_mean(&name, known.iter().copied());
            Violation::new(
                format!("{path}{name}"),
                format!("unknown field \"{name}\"{hint}"),
            )
        })
        .collect()
}

/// Reads a file that holds fields.
fn read_mapping(path: &Path) -> Result<Mapping, ManifestError> {
    match read_yaml(path)? {
        Yaml::Mapping(map) => Ok(map),
        _ => Err(ManifestError::invalid(
            path,
            vec![Violation::new("", "expected fields")],
        )),
    }
}

#[cfg(test)]
mod tests;
