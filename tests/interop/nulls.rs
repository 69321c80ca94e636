//! Null structs, structs of nulls and partly null ones, whoever wrote them.

use std::path::Path;

use serde_json::{Value, json};

use crate::surroundings::Python;
use crate::worker::{Job, prefix};

const WRITERS: [&str; 3] = ["pyarrow", "polars", "duckdb"];

fn spec(root: &Path, main: &str, output: &str, step: Value) -> Value {
    json!({
        "dataset": {"mainPrefix": prefix(&root.join(main)), "keyColumn": "key", "imageColumn": "image"},
        "schemas": {"metric_v1": [
            {"name": "score", "type": "float64"},
            {"name": "passed", "type": "bool"},
            {"name": "error", "type": "string"},
        ]},
        "columns": [{"name": "metric", "type": "metric_v1"}],
        "pipeline": [{"extractScaffold": {}}, step],
        "output": {"prefix": prefix(&root.join(output))},
    })
}

fn outputs<'a>(root: &Path, names: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let shards = |name: &String| {
        ["matched", "unmatched", "whole"]
            .map(|shard| format!("{}/{name}/{shard}.parquet", root.display()))
    };
    names.into_iter().flat_map(shards).collect()
}

fn assert_same_schema(python: &Python, paths: &[String]) {
    let arguments = std::iter::once("schemas").chain(paths.iter().map(String::as_str));
    python.script("nulls.py", &arguments.collect::<Vec<_>>());
}

/// A merge fills the column that only the scaffold has put there with the sibling's, and
/// leaves alone one that main has, whichever of its rows are empty.
#[test]
fn merges_fill_missing_columns_alike_from_every_writer() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("nulls.py", &["make", path]);
    let mut made = Vec::new();
    for (position, writer) in WRITERS.into_iter().enumerate() {
        let from =
            |other: &str| json!({"mergeFromSidecar": {"sourcePrefix": prefix(&root.join(other))}});
        let output = format!("merged_{writer}");
        let job = Job::new(
            root,
            &format!("merge-{writer}"),
            spec(root, "bare", &output, from(writer)),
        );
        let outcome = job.run().expect(0);
        assert_eq!(outcome.count("rows"), 21);
        job.verify().expect(0);
        python.script("nulls.py", &["copied", path, &output]);
        made.push(output);

        let output = format!("kept_{writer}");
        let other = WRITERS[(position + 1) % WRITERS.len()];
        let job = Job::new(
            root,
            &format!("keep-{writer}"),
            spec(root, writer, &output, from(other)),
        );
        job.run().expect(0);
        job.verify().expect(0);
        python.script("nulls.py", &["copied", path, &output]);
        made.push(output);
    }
    assert_same_schema(&python, &outputs(root, &made));
}

/// A join that updates fills null structs and structs of nulls, and nothing else.
#[test]
fn joins_update_what_is_missing_from_every_writer_to_every_writer() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("nulls.py", &["make", path]);
    let mut made = Vec::new();
    for main in WRITERS {
        for index in WRITERS {
            let source = root.join(format!("index_{index}.parquet"));
            let step = json!({"joinFromParquet": {"source": source, "columns": ["metric"], "mode": "UpdateIfNull"}});
            let output = format!("updated_{main}_{index}");
            let job = Job::new(
                root,
                &format!("update-{main}-{index}"),
                spec(root, main, &output, step),
            );
            let outcome = job.run().expect(0);
            // A key that is found has matched, whatever is found under it.
            assert_eq!(outcome.count("matched"), 12);
            assert_eq!(outcome.count("rows"), 21);
            let counts = &outcome.report["columns"]["metric"];
            assert_eq!(counts["populated"].as_u64(), Some(16), "{counts}");
            job.verify().expect(0);
            python.script("nulls.py", &["updated", path, main, index]);
            made.push(output);
        }
    }
    // A shard of which no row is found has the columns of the others.
    let step = json!({"joinFromParquet": {"source": root.join("index_duckdb.parquet"), "columns": ["metric"]}});
    let job = Job::new(root, "overwrite", spec(root, "bare", "overwritten", step));
    let outcome = job.run().expect(0);
    assert_eq!(outcome.count("matched"), 12);
    made.push("overwritten".to_owned());
    assert_same_schema(&python, &outputs(root, &made));
}
