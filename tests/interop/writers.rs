//! One table by every writer, codec and page version.

use serde_json::{Value, json};

use crate::surroundings::Python;
use crate::worker::{Job, prefix};

/// Whoever wrote main and the indexes, the sidecars have the same values, and the declared
/// columns the same physical types.
#[test]
fn writers_codecs_and_page_versions_lead_to_equal_sidecars() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("writers.py", &["make", path]);
    let mut columns = vec![
        json!({"name": "text", "type": "string"}),
        json!({"name": "tags", "type": "list<string>"}),
    ];
    let mut pipeline = vec![json!({"extractScaffold": {}})];
    for writer in ["pyarrow", "polars", "duckdb", "fastparquet"] {
        let [label, size] = ["label", "size"].map(|name| format!("{name}_{writer}"));
        columns.push(json!({"name": label, "type": "string"}));
        columns.push(json!({"name": size, "type": "int64"}));
        let source = root.join(format!("index_{writer}.parquet"));
        pipeline.push(json!({"joinFromParquet": {"source": source, "columns": [label, size]}}));
    }
    let spec = json!({
        "dataset": {"mainPrefix": prefix(&root.join("main")), "keyColumn": "key", "imageColumn": "image"},
        "columns": Value::from(columns),
        "pipeline": Value::from(pipeline),
        "output": {"prefix": prefix(&root.join("out"))},
    });
    let job = Job::new(root, "writers", spec);
    let outcome = job.run().expect(0);
    let shards = std::fs::read_dir(root.join("main")).unwrap().count() as u64;
    assert_eq!(outcome.count("shards_done"), shards);
    assert_eq!(outcome.count("rows"), 40 * shards);
    // Counted once for each row, however many indexes have its key.
    assert_eq!(outcome.count("matched"), 27 * shards);
    job.verify().expect(0);
    python.script("writers.py", &["check", path]);
}
