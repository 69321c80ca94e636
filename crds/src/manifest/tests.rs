use std::path::{Path, PathBuf};

use super::*;

const MINIMAL: &str = "
apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {name: demo}
spec:
  dataset: {mainPrefix: s3://bucket/main/, keyColumn: key}
  pipeline:
  - extractScaffold: {}
";

fn parse_text(text: &str) -> Result<SidecarJob, ManifestError> {
    parse(text, Path::new("job.yaml"))
}

/// The mistakes in a manifest, one a line.
fn mistakes(text: &str) -> String {
    let error = parse_text(text).unwrap_err();
    let lines: Vec<String> = error.violations().iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn with(spec_lines: &str) -> String {
    format!("{MINIMAL}{spec_lines}")
}

#[test]
fn defaults_are_those_of_the_types() {
    let job = parse_text(MINIMAL).unwrap();
    let spec = crate::SidecarJobSpec::new(
        job.spec.dataset.clone(),
        Vec::new(),
        vec![crate::ExtractScaffold::default().into()],
    );
    assert_eq!(job.spec, spec);
    assert!(job.spec.output.skip_existing);
}

#[test]
fn unknown_fields_name_the_nearest_one() {
    assert_eq!(
        mistakes(&with(
            "  throughput: {target_rows_per_hour: 5}\n  columms: []\n"
        )),
        "spec.columms: unknown field \"columms\"; did you mean \"columns\"?\n\
         spec.throughput.target_rows_per_hour: unknown field \"target_rows_per_hour\"; \
         did you mean \"targetRowsPerHour\"?"
    );
    assert_eq!(
        mistakes(&MINIMAL.replace("{name: demo}", "{name: demo, label: {}}")),
        "metadata.label: unknown field \"label\"; did you mean \"labels\"?"
    );
}

#[test]
fn all_mistakes_are_reported_with_their_paths() {
    let text = with(
        "  columns:\n  - {name: a, type: int46}\n  - {name: A, type: string}\n  \
         output: {prefix: 's3://bucket/main/sidecar'}\n  canary: {minMatchRate: 1.5}\n",
    );
    let found = mistakes(&text);
    for expected in [
        "spec.canary.minMatchRate: expected at most 1, found 1.5",
        "spec.columns: two columns have the same name",
        "spec: output.prefix and dataset.mainPrefix are inside one another",
        "spec.columns[0].type: unknown type \"int46\"; did you mean \"int64\"?",
    ] {
        assert!(found.contains(expected), "{expected}\nnot in\n{found}");
    }
}

#[test]
fn types_are_named_in_plain_words() {
    assert_eq!(
        mistakes(&with(
            "  suspend: maybe\n  columns: {a: int64}\n  queue: 7\n"
        )),
        "spec.columns: expected a list, found fields\n\
         spec.queue: expected text, found a number; put it in quotes\n\
         spec.suspend: expected true or false, found text"
    );
    assert_eq!(
        mistakes(&with("  onSpecChange: rerun\n")),
        "spec.onSpecChange: \"rerun\" is not one of Reject, Rerun, NewPrefix; did you mean \"Rerun\"?"
    );
}

#[test]
fn null_means_absent() {
    let job = parse_text(&with(
        "  queue:\n  output: {prefix: null, skipExisting: null}\n",
    ))
    .unwrap();
    assert_eq!(job.spec.output, crate::Output::default());
    let found = mistakes(&MINIMAL.replace("extractScaffold: {}", "extractScaffold:"));
    assert!(
        found.contains("spec.pipeline[0]: a step has exactly one of"),
        "{found}"
    );
}

#[test]
fn struct_types_keep_the_order_of_a_map() {
    let text =
        with("  schemas:\n    t: {zulu: int64, alpha: string}\n  columns: [{name: c, type: t}]\n");
    let job = parse_text(&text).unwrap();
    let names: Vec<&str> = job.spec.schemas["t"]
        .iter()
        .map(|field| field.name.as_str())
        .collect();
    assert_eq!(names, ["zulu", "alpha"]);
    assert!(to_yaml(&job).contains("- name: zulu\n      type: int64\n    - name: alpha"));
}

#[test]
fn prefixes_are_compared_in_their_normal_form() {
    let text = MINIMAL.replace("s3://bucket/main/", "file:///data/main")
        + "  output: {prefix: /data//main/sidecar}\n";
    assert!(mistakes(&text).contains("output.prefix and dataset.mainPrefix"));
}

#[test]
fn columns_that_break_a_rule_are_named() {
    let text = MINIMAL.replace(
        "extractScaffold: {}",
        "joinFromParquet: {source: i/, columns: [a, filesize]}",
    ) + "  columns: [{name: a, type: string}, {name: file_size, type: int64}, {name: KEY, type: string}]\n";
    let found = mistakes(&text);
    for words in [
        "spec.pipeline[0].joinFromParquet.columns[1]: \"filesize\" is not declared in spec.columns; did you mean \"file_size\"?",
        "spec.columns[2].name: \"key\" is main's key or image column",
    ] {
        assert!(found.contains(words), "{found}");
    }
    assert!(!found.contains("columns[0]"), "{found}");
}

#[test]
fn one_document_a_file() {
    assert!(mistakes("").contains("the file is empty"));
    assert!(mistakes(&format!("{MINIMAL}---{MINIMAL}")).contains("expected one document, found 2"));
    assert!(matches!(
        parse_text("a: [").unwrap_err(),
        ManifestError::Syntax { .. }
    ));
    let twice = with("  suspend: true\n  suspend: false\n");
    assert!(
        parse_text(&twice)
            .unwrap_err()
            .to_string()
            .contains("duplicate")
    );
}

#[test]
fn printing_leaves_out_defaults_and_reads_back() {
    let text = with("  canary: {shards: 20, pause: true}\n  output: {skipExisting: true}\n");
    let job = parse_text(&text).unwrap();
    let printed = to_yaml(&job);
    assert_eq!(
        printed,
        "apiVersion: sidecarjob.dev/v1alpha1\nkind: SidecarJob\nmetadata:\n  name: demo\nspec:\n  \
         dataset:\n    mainPrefix: s3://bucket/main/\n    keyColumn: key\n  pipeline:\n  \
         - extractScaffold: {}\n  canary:\n    pause: true\n"
    );
    assert_eq!(parse_text(&printed).unwrap().spec, job.spec);
}

#[test]
fn every_example_loads() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        let job = load(&file).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            job.metadata.name.as_deref(),
            file.file_stem().and_then(|stem| stem.to_str()),
            "the name of an example is that of its file"
        );
        assert_eq!(parse_text(&to_yaml(&job)).unwrap().spec, job.spec);
    }
}
