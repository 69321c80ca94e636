//! Column names with dots, cases, spaces and worse.

use serde_json::json;

use crate::surroundings::Python;
use crate::worker::{Job, prefix};

/// Exactly the columns that are asked for come through, under their names; two columns of one
/// name fail their shard alone.
#[test]
fn names_are_whole_and_exact() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("names.py", &["make", path]);
    let spec = json!({
        "dataset": {"mainPrefix": prefix(&root.join("main")), "keyColumn": "key", "imageColumn": "image"},
        "schemas": {
            "t_v1": [{"name": "t", "type": "float64"}],
            "dotted_v1": [{"name": "u.v", "type": "float64"}],
        },
        "columns": [
            {"name": "new.column", "type": "float64"},
            {"name": "s", "type": "t_v1"},
            {"name": "s.t", "type": "dotted_v1"},
        ],
        "pipeline": [
            {"extractScaffold": {"drop": ["aa"]}},
            {"joinFromParquet": {"source": root.join("index.parquet"), "columns": ["s", "s.t", "new.column"]}},
        ],
        "output": {"prefix": prefix(&root.join("out"))},
    });
    let job = Job::new(root, "names", spec);
    let outcome = job.run().expect(1);
    assert_eq!(outcome.count("shards_done"), 2);
    assert_eq!(outcome.count("matched"), 10);
    let failures = outcome.failures();
    assert_eq!(failures.keys().collect::<Vec<_>>(), ["twice.parquet"]);
    let reason = &failures["twice.parquet"];
    assert!(reason.contains("two columns are called \"x\""), "{reason}");
    let warning = "columns \"Key\" and \"key\" differ in case only";
    assert!(outcome.stderr.contains(warning), "{}", outcome.stderr);
    assert!(
        outcome.stdout.contains(reason.as_str()),
        "{}",
        outcome.stdout
    );
    python.script("names.py", &["check", path]);

    let problems = job.verify().expect(3).problems();
    assert_eq!(
        problems.into_iter().collect::<Vec<_>>(),
        [("twice.parquet".to_owned(), "missing".to_owned())]
    );
}
