//! The checks that the API server makes, and those that CEL can't express.

use kube::core::cel::{Validator, apply_defaults};
use serde_json::Value;

use super::Violation;
use crate::{
    definition,
    pipeline::Operation,
    prefix, rules,
    schema_check::{Findings, check, remove_nulls},
    sidecar_job::{GROUP, SidecarJob, SidecarJobSpec, VERSION},
    suggest::did_you_mean,
};

/// Fields of `metadata` that a manifest may have.
const METADATA_FIELDS: [&str; 15] = [
    "name",
    "namespace",
    "labels",
    "annotations",
    "generateName",
    "finalizers",
    "ownerReferences",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
];

/// Checks a `SidecarJob` as JSON, and applies defaults. A status in it is dropped, as the
/// API server does when a job is created.
///
/// # Errors
/// Every mistake that was found.
pub fn validate(mut job: Value) -> Result<SidecarJob, Vec<Violation>> {
    let mut findings = Findings::default();
    remove_nulls(&mut job);
    let Some(members) = job.as_object_mut() else {
        return Err(vec![Violation::new(
            "",
            "expected a SidecarJob with apiVersion, kind, metadata and spec",
        )]);
    };
    members.remove("status");
    check_envelope(&job, &mut findings.violations);

    let schema = definition::schema();
    // The schema is made of plain JSON types.
    let schema_json = serde_json::to_value(&schema).unwrap_or_default();
    let job = apply_defaults(&schema_json, &job);
    let spec_schema = schema.properties.as_ref().and_then(|all| all.get("spec"));
    match (spec_schema, job.get("spec")) {
        (Some(schema), Some(spec)) => check(schema, spec, "spec", &mut findings),
        _ => {
            findings.is_misshapen = true;
            findings
                .violations
                .push(Violation::new("spec", "required, but missing"));
        }
    }
    if findings.is_misshapen {
        return Err(findings.violations);
    }

    if let Err(errors) = Validator::new().validate(&schema_json, &job, None) {
        findings.violations.extend(
            errors
                .into_iter()
                .map(|error| Violation::new(error.field_path, error.message)),
        );
    }
    match serde_json::from_value::<SidecarJob>(job) {
        Ok(job) => {
            findings.violations.extend(check_types(&job.spec));
            check_prefixes(&job.spec, &mut findings.violations);
            name_columns(&job.spec, &mut findings.violations);
            if findings.violations.is_empty() {
                return Ok(job);
            }
        }
        // An enum with an unknown value has been reported already, and can't be read.
        Err(error) if findings.violations.is_empty() => {
            findings
                .violations
                .push(Violation::new("", error.to_string()));
        }
        Err(_) => {}
    }
    Err(findings.violations)
}

/// Checks everything but `spec`.
fn check_envelope(job: &Value, violations: &mut Vec<Violation>) {
    let mut expect = |field: &str, expected: &str| {
        let found = job.get(field).and_then(Value::as_str);
        if found != Some(expected) {
            let found = found.map_or_else(|| "nothing".to_owned(), |text| format!("\"{text}\""));
            violations.push(Violation::new(
                field,
                format!("expected \"{expected}\", found {found}"),
            ));
        }
    };
    expect("apiVersion", &format!("{GROUP}/{VERSION}"));
    expect("kind", "SidecarJob");
    let known = ["apiVersion", "kind", "metadata", "spec"];
    let unknown = |path: &str, name: &str, known: &[&str]| {
        let hint = did_you_mean(name, known.iter().copied());
        Violation::new(
            format!("{path}{name}"),
            format!("unknown field \"{name}\"{hint}"),
        )
    };
    for name in job
        .as_object()
        .into_iter()
        .flat_map(|members| members.keys())
    {
        if !known.contains(&name.as_str()) {
            violations.push(unknown("", name, &known));
        }
    }
    let metadata = job.get("metadata");
    for name in metadata
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|map| map.keys())
    {
        if !METADATA_FIELDS.contains(&name.as_str()) {
            violations.push(unknown("metadata.", name, &METADATA_FIELDS));
        }
    }
    let name = metadata.and_then(|metadata| metadata.get("name"));
    if !name.and_then(Value::as_str).is_some_and(is_resource_name) {
        violations.push(Violation::new(
            "metadata.name",
            "expected a name of lower-case letters, digits, '-' and '.', at most 253 characters",
        ));
    }
}

/// Whether the API server accepts this as the name of a resource (RFC 1123 subdomain).
pub(crate) fn is_resource_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        !label.is_empty()
            && label.chars().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn check_types(spec: &SidecarJobSpec) -> Vec<Violation> {
    spec.type_errors()
        .into_iter()
        .map(|error| Violation::new(error.path(), error.to_string()))
        .collect()
}

/// Names the columns that break a rule about all of them: a rule's message can't.
fn name_columns(spec: &SidecarJobSpec, violations: &mut Vec<Violation>) {
    let dataset = &spec.dataset;
    let from_main = [Some(&dataset.key_column), dataset.image_column.as_ref()];
    for (number, column) in spec.columns.iter().enumerate() {
        let is_column = |name: &&String| name.eq_ignore_ascii_case(&column.name);
        if let Some(name) = from_main.into_iter().flatten().find(is_column) {
            violations.push(Violation::new(
                format!("spec.columns[{number}].name"),
                format!("\"{name}\" is main's key or image column"),
            ));
        }
    }
    let declared = || spec.columns.iter().map(|column| column.name.as_str());
    for (step, operation) in spec.pipeline.iter().enumerate() {
        let Some(join) = &operation.join_from_parquet else {
            continue;
        };
        for (number, name) in join.columns.iter().enumerate() {
            if !declared().any(|declared| declared == name) {
                let hint = did_you_mean(name, declared());
                violations.push(Violation::new(
                    format!("spec.pipeline[{step}].joinFromParquet.columns[{number}]"),
                    format!("\"{name}\" is not declared in spec.columns{hint}"),
                ));
            }
        }
    }
}

/// Compares prefixes in their normal form: CEL sees that `/data` is inside `/data/main`,
/// but not that `file:///data` and `/data` are the same.
fn check_prefixes(spec: &SidecarJobSpec, violations: &mut Vec<Violation>) {
    let dataset = &spec.dataset;
    let mut refuse = |rule: kube::core::Rule, path: &str| {
        let message = match rule.message {
            Some(kube::core::Message::Message(message)) => message,
            _ => rule.rule,
        };
        if violations
            .iter()
            .all(|violation| violation.message != message)
        {
            violations.push(Violation::new(path, message));
        }
    };
    if let Some(sidecar) = &dataset.sidecar_prefix
        && prefix::overlaps(sidecar, &dataset.main_prefix)
    {
        refuse(rules::sidecar_apart_from_main(), "spec.dataset");
    }
    let Some(output) = &spec.output.prefix else {
        return;
    };
    if prefix::overlaps(output, &dataset.main_prefix) {
        refuse(rules::output_apart_from_main(), "spec");
    }
    if let Some(sidecar) = &dataset.sidecar_prefix
        && prefix::normalize(output) != prefix::normalize(sidecar)
        && prefix::overlaps(output, sidecar)
    {
        refuse(rules::output_apart_from_sidecar(), "spec");
    }
    for step in &spec.pipeline {
        let (input, rule) = match step.operation() {
            Ok(Operation::JoinFromParquet(join)) => {
                (&join.source, rules::output_apart_from_join_sources())
            }
            Ok(Operation::MergeFromSidecar(merge)) => (
                &merge.source_prefix,
                rules::output_apart_from_merge_sources(),
            ),
            Ok(Operation::RecaptionMerge(merge)) => {
                (&merge.source, rules::output_apart_from_recaption_sources())
            }
            Ok(Operation::ExtractScaffold(_) | Operation::ComputeFilters(_)) | Err(_) => continue,
        };
        if prefix::overlaps(output, input) {
            refuse(rule, "spec");
        }
    }
}
