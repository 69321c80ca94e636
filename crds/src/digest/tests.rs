use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::manifest::parse;

const JOB: &str = "
apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {name: demo}
spec:
  dataset:
    mainPrefix: s3://bucket/main/
    keyColumn: key
    sources: {markers: [{contains: /a/, source: a}], default: b}
  schemas: {dqm_v1: [{name: raw, type: float64}]}
  columns:
  - {name: filter_luma, type: filter_luma_v1}
  - {name: dqm, type: dqm_v1}
  pipeline:
  - extractScaffold: {}
  - joinFromParquet: {source: s3://bucket/index/, columns: [filter_luma]}
  - mergeFromSidecar: {sourcePrefix: s3://bucket/dqm/}
  output: {prefix: s3://bucket/out/}
";

fn spec(text: &str) -> SidecarJobSpec {
    parse(text, Path::new("job.yaml"))
        .unwrap_or_else(|error| panic!("{error}"))
        .spec
}

fn digest(text: &str) -> String {
    pipeline_digest(&spec(text)).unwrap()
}

#[test]
fn is_hexadecimal_and_stable() {
    let digest = digest(JOB);
    assert_eq!(digest.len(), 64);
    assert!(
        digest
            .chars()
            .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
    );
    // A change here means that shards of earlier versions are made again.
    assert_eq!(
        canonical_json(&spec(JOB)).unwrap(),
        concat!(
            r#"{"columns":[["filter_luma",{"struct":[["passed","bool"],["mean","float64"],"#,
            r#"["std","float64"],["p05","int32"],["p50","int32"],["p95","int32"],"#,
            r#"["dark_ratio","float64"],["bright_ratio","float64"]]}],"#,
            r#"["dqm",{"struct":[["raw","float64"]]}]],"#,
            r#""dataset":{"imageColumn":null,"keyColumn":"key","mainPrefix":"s3://bucket/main/","#,
            r#""sources":{"default":"b","markers":[["/a/","a"]]}},"#,
            r#""pipeline":[["extractScaffold",{"drop":[]}],["joinFromParquet","#,
            r#"{"columns":["filter_luma"],"keys":{"source":"key","target":"key"},"#,
            r#""mode":"OverwriteAll","source":"s3://bucket/index/"}],["mergeFromSidecar","#,
            r#"{"columns":null,"keys":{"source":"key","target":"key"},"mode":"FillMissing","#,
            r#""required":true,"sourcePrefix":"s3://bucket/dqm/"}]],"version":1}"#,
        )
    );
}

#[test]
fn what_does_not_change_the_shards_does_not_change_it() {
    for (from, to) in [
        ("s3://bucket/main/", "s3://bucket/main"),
        ("s3://bucket/dqm/", "s3://bucket/dqm"),
        ("s3://bucket/out/", "s3://bucket/elsewhere/"),
        ("name: demo", "name: other"),
        ("dqm_v1", "dqm_v2"),
        ("type: float64", "type: double"),
        (
            "columns: [filter_luma]",
            "columns: [filter_luma], mode: OverwriteAll, sourceKeyColumn: key",
        ),
        (
            "  output:",
            "  throughput: {maxWorkers: 3}\n  suspend: true\n  output:",
        ),
    ] {
        assert_eq!(
            digest(&JOB.replace(from, to)),
            digest(JOB),
            "{from} -> {to}"
        );
    }
}

#[test]
fn what_changes_the_shards_changes_it() {
    for (from, to) in [
        ("s3://bucket/main/", "s3://bucket/main2/"),
        ("keyColumn: key", "keyColumn: id"),
        ("keyColumn: key", "keyColumn: key\n    imageColumn: image"),
        ("default: b", "default: c"),
        ("type: float64", "type: float32"),
        ("{name: dqm,", "{name: dqm2,"),
        ("extractScaffold: {}", "extractScaffold: {drop: [a]}"),
        (
            "columns: [filter_luma]",
            "columns: [filter_luma], mode: UpdateIfNull",
        ),
        ("s3://bucket/index/", "s3://bucket/index2/"),
        ("s3://bucket/dqm/", "s3://bucket/dqm/, required: false"),
    ] {
        let changed = JOB.replacen(from, to, 1);
        assert_ne!(changed, JOB);
        assert_ne!(digest(&changed), digest(JOB), "{from} -> {to}");
    }
}

#[test]
fn the_hash_of_a_spec_is_of_what_is_written() {
    let hash = |text: &str| written_hash(&spec(text));
    // A change here looks to every object like a change of its spec.
    assert_eq!(
        hash(JOB),
        "1-0a97d9aaa33df50b6a801961d254ad1641a93d2a9d3872307f44b1decbd6458d"
    );
    for (from, to) in [
        ("s3://bucket/out/", "s3://bucket/elsewhere/"),
        ("name: demo", "name: other"),
        ("  output:", "  throughput: {maxWorkers: 3}\n  output:"),
    ] {
        assert_eq!(hash(&JOB.replace(from, to)), hash(JOB), "{from} -> {to}");
    }
    for (from, to) in [
        ("s3://bucket/main/", "s3://bucket/main2/"),
        ("default: b", "default: c"),
        ("type: float64", "type: float32"),
        ("extractScaffold: {}", "extractScaffold: {drop: [a]}"),
        ("s3://bucket/index/", "s3://bucket/index2/"),
    ] {
        assert_ne!(
            hash(&JOB.replacen(from, to, 1)),
            hash(JOB),
            "{from} -> {to}"
        );
    }
    assert!(is_written_hash(&hash(JOB)) && !is_written_hash(&digest(JOB)));
}

/// JSON text of a value with the members of every object in an order that `seed` decides.
fn shuffled(value: &Value, seed: u64) -> String {
    match value {
        Value::Object(map) => {
            let mut members: Vec<String> = map
                .iter()
                .map(|(name, value)| {
                    format!("{}: {}", Value::from(name.as_str()), shuffled(value, seed))
                })
                .collect();
            let length = members.len().max(1);
            members.rotate_left(usize::try_from(seed).unwrap_or(0) % length);
            if seed % 2 == 1 {
                members.reverse();
            }
            format!("{{{}}}", members.join(", "))
        }
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(|value| shuffled(value, seed)).collect();
            format!("[{}]", values.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn order_of_fields_does_not_matter(seed in 0_u64..1000) {
        let job = parse(JOB, Path::new("job.yaml")).unwrap();
        // Defaults are spelled out here as well.
        let text = shuffled(&serde_json::to_value(&job).unwrap(), seed);
        prop_assert_eq!(digest(&text), digest(JOB));
    }
}
