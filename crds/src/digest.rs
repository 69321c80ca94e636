//! Two hashes of a spec: one of everything that decides the bytes of a shard, and one that
//! only tells whether somebody has changed it.
//!
//! **The digest** says which outputs go together. Two manifests with the same digest make the same shards from the same input, so that a
//! run can go on where another ended, and a folder that holds shards of another pipeline
//! is recognised. The digest covers the main prefix, key and image columns, source
//! inference, resolved column types and the pipeline with all defaults spelled out. It
//! covers neither the output, storage access, throughput and workers, nor the order and
//! layout of the manifest. An option that is added later leaves no trace in it where it has
//! its default, so that a new release has the same digest for every manifest that it makes
//! the same shards of; what version 1 spells out stays spelled out.
//!
//! **The hash of the spec as written** is compared with itself alone, over the life of an
//! object. It says nothing of outputs, and stays the same whatever a release makes of the
//! spec, so that no upgrade looks like a change.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    pipeline::{InvalidStep, Operation},
    prefix::{normalize, normalize_location},
    sidecar_job::SidecarJobSpec,
    types::{DataType, Field, TypeError},
};

/// Version of what is hashed. It changes when a worker would write other bytes for the
/// same manifest, so that shards of older workers are told apart.
pub const FORMAT_VERSION: u32 = 1;

/// Begins every hash of a spec as written; another way to make one would begin otherwise.
const WRITTEN_HASH: &str = "1-";

/// Why a spec has no digest. A validated manifest always has one.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum DigestError {
    /// A type is faulty.
    #[error("{}: {_0}", .0.path())]
    Type(#[from] TypeError),
    /// A step has no operation, or several.
    #[error(transparent)]
    Step(#[from] InvalidStep),
}

/// The digest of a spec: SHA-256 in lower-case hexadecimal, 64 characters.
///
/// # Errors
/// If a type or a step of the spec is faulty.
pub fn pipeline_digest(spec: &SidecarJobSpec) -> Result<String, DigestError> {
    Ok(hex(&canonical_json(spec)?))
}

/// The hash of dataset, schemas, columns and pipeline as they are written, but for the order
/// of fields and for values that are absent.
pub fn written_hash(spec: &SidecarJobSpec) -> String {
    let mut document = json!({
        "dataset": spec.dataset,
        "schemas": spec.schemas,
        "columns": spec.columns,
        "pipeline": spec.pipeline,
    });
    drop_nulls(&mut document);
    let mut text = String::new();
    write_canonical(&document, &mut text);
    format!("{WRITTEN_HASH}{}", hex(&text))
}

/// Whether a hash was made as [`written_hash`] makes it, so that the two can be compared.
pub fn is_written_hash(hash: &str) -> bool {
    hash.starts_with(WRITTEN_HASH)
}

fn hex(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Drops members that are null: to leave one out says the same.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// The text that is hashed: JSON without white space, keys in byte order.
///
/// # Errors
/// If a type or a step of the spec is faulty.
pub fn canonical_json(spec: &SidecarJobSpec) -> Result<String, DigestError> {
    let dataset = &spec.dataset;
    let sources = dataset.sources.as_ref().map(|sources| {
        let markers: Vec<Value> = sources
            .markers
            .iter()
            .map(|marker| json!([marker.contains, marker.source]))
            .collect();
        json!({"markers": markers, "default": sources.default})
    });
    let pipeline = spec
        .pipeline
        .iter()
        .map(|step| Ok(operation_json(step.operation()?, &dataset.key_column)))
        .collect::<Result<Vec<Value>, InvalidStep>>()?;
    let document = json!({
        "version": FORMAT_VERSION,
        "dataset": {
            "mainPrefix": normalize(&dataset.main_prefix),
            "keyColumn": dataset.key_column,
            "imageColumn": dataset.image_column,
            "sources": sources,
        },
        "columns": fields_json(&spec.resolved_columns()?),
        "pipeline": pipeline,
    });
    let mut text = String::new();
    write_canonical(&document, &mut text);
    Ok(text)
}

/// An operation with every default spelled out. Each is taken apart in full, so that a new
/// setting can't be forgotten here.
fn operation_json(operation: Operation<'_>, key_column: &str) -> Value {
    use crate::ops::{
        ComputeFilters, DecodeLimits, ExtractScaffold, JoinFromParquet, MergeFromSidecar,
        RecaptionMerge,
    };
    let keys = |source: &Option<String>, target: &Option<String>| {
        let target = target.as_deref().unwrap_or(key_column).to_owned();
        let source = source.clone().unwrap_or_else(|| target.clone());
        json!({"source": source, "target": target})
    };
    let settings = match operation {
        Operation::ExtractScaffold(ExtractScaffold { drop }) => json!({"drop": drop}),
        Operation::JoinFromParquet(JoinFromParquet {
            source,
            columns,
            mode,
            source_key_column,
            target_key_column,
        }) => json!({
            "source": normalize_location(source),
            "columns": columns,
            "mode": mode,
            "keys": keys(source_key_column, target_key_column),
        }),
        Operation::MergeFromSidecar(MergeFromSidecar {
            source_prefix,
            columns,
            mode,
            required,
            target_key_column,
            source_key_column,
        }) => json!({
            "sourcePrefix": normalize(source_prefix),
            "columns": columns,
            "mode": mode,
            "required": required,
            "keys": keys(source_key_column, target_key_column),
        }),
        Operation::RecaptionMerge(RecaptionMerge {
            source,
            columns,
            mode,
            source_key_column,
            target_key_column,
        }) => json!({
            "source": normalize_location(source),
            "columns": columns,
            "mode": mode,
            "keys": keys(source_key_column, target_key_column),
        }),
        Operation::ComputeFilters(ComputeFilters {
            filters,
            on_error,
            limits:
                DecodeLimits {
                    max_pixels,
                    max_bytes,
                    max_decode_millis,
                },
        }) => json!({
            "filters": filters,
            "onError": on_error,
            "limits": [max_pixels, max_bytes, max_decode_millis],
        }),
    };
    json!([operation.name(), settings])
}

fn fields_json(fields: &[Field]) -> Value {
    fields
        .iter()
        .map(|field| json!([field.name, type_json(&field.data_type)]))
        .collect()
}

/// Names of fields are data here, so a type is JSON and not its printed form.
fn type_json(data_type: &DataType) -> Value {
    match data_type {
        DataType::List(element) => json!({"list": type_json(element)}),
        DataType::Struct(fields) => json!({"struct": fields_json(fields)}),
        primitive => json!(primitive.to_string()),
    }
}

/// Writes keys in byte order, whatever order the map type of the JSON library keeps.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| key.as_bytes());
            text.push('{');
            for (position, (key, value)) in entries.into_iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                let _ = write!(text, "{}:", Value::from(key.as_str()));
                write_canonical(value, text);
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for (position, value) in values.iter().enumerate() {
                if position > 0 {
                    text.push(',');
                }
                write_canonical(value, text);
            }
            text.push(']');
        }
        scalar => {
            let _ = write!(text, "{scalar}");
        }
    }
}

#[cfg(test)]
mod tests;
