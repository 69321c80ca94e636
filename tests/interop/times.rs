//! Declared timestamps from whatever writers make of times.

use serde_json::{Value, json};

use crate::surroundings::Python;
use crate::worker::{Job, prefix};

/// Units and zones are brought into one type without loss; what can't be is refused, and never
/// wrapped around or cut.
#[test]
fn times_keep_their_instant_or_are_refused() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("times.py", &["make", path]);
    let join = |file: &str, column: &str| json!({"joinFromParquet": {"source": root.join(file), "columns": [column]}});
    let spec = |output: &str, steps: Vec<Value>| {
        json!({
            "dataset": {"mainPrefix": prefix(&root.join("main")), "keyColumn": "key"},
            "columns": [
                {"name": "when", "type": "timestamp"},
                {"name": "seen", "type": "timestamp"},
                {"name": "seen_naive", "type": "timestamp"},
            ],
            "pipeline": steps,
            "output": {"prefix": prefix(&root.join(output))},
        })
    };
    let steps = vec![
        json!({"extractScaffold": {}}),
        join("index.parquet", "seen"),
        join("index_naive.parquet", "seen_naive"),
    ];
    let job = Job::new(root, "times", spec("out", steps));
    let outcome = job.run().expect(1);
    let failures = outcome.failures();
    assert_eq!(
        failures.keys().collect::<Vec<_>>(),
        ["int96.parquet"],
        "{failures:?}"
    );
    assert!(
        failures["int96.parquet"].contains("column \"when\" is INT96"),
        "{failures:?}"
    );
    python.script("times.py", &["check", path]);

    let job = Job::new(
        root,
        "index",
        spec("none", vec![join("index_int96.parquet", "seen")]),
    );
    let refused = job.run().expect(2);
    assert!(
        refused.stderr.contains("column \"seen\" is INT96"),
        "{}",
        refused.stderr
    );
}
