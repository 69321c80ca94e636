//! Files that are empty in one way or another, and files that are none.

use serde_json::json;

use crate::surroundings::Python;
use crate::worker::{Job, prefix};

/// What has no rows is a shard like any other; what can't be read is named, and costs nothing
/// but itself.
#[test]
fn empty_files_pass_and_broken_ones_are_named() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("shapes.py", &["make", path]);
    let spec = json!({
        "dataset": {"mainPrefix": prefix(&root.join("main")), "keyColumn": "key", "imageColumn": "image"},
        "columns": [{"name": "label", "type": "string"}],
        "pipeline": [
            {"extractScaffold": {}},
            {"joinFromParquet": {"source": root.join("index.parquet"), "columns": ["label"]}},
        ],
        "output": {"prefix": prefix(&root.join("out"))},
    });
    let job = Job::new(root, "shapes", spec);
    let outcome = job.run().expect(1);
    // The two folders are none: seven files are.
    assert_eq!(outcome.count("shards"), 7);
    assert_eq!(outcome.count("shards_done"), 3);
    assert_eq!(outcome.count("rows"), 12);
    assert_eq!(outcome.count("matched"), 2);
    let wanted = [
        ("cut.parquet", "no Parquet magic at the end"),
        ("magic_alone.parquet", "4 bytes are too few"),
        ("no_bytes.parquet", "0 bytes are too few"),
        ("no_columns.parquet", "no key column \"key\""),
    ];
    let failures = outcome.failures();
    assert_eq!(
        failures.keys().collect::<Vec<_>>(),
        wanted.map(|(name, _)| name).iter().collect::<Vec<_>>()
    );
    for (name, reason) in wanted {
        assert!(failures[name].contains(reason), "{}", failures[name]);
    }
    python.script("shapes.py", &["check", path]);

    let verification = job.verify().expect(3);
    assert_eq!(verification.count("shards"), 7);
    assert_eq!(verification.count("looked_into"), 3);
    let problems = verification.problems();
    assert_eq!(problems.len(), 4, "{problems:?}");
    for (name, _) in wanted {
        assert_eq!(problems[name], "missing");
        assert!(
            verification.stdout.contains(name),
            "{}",
            verification.stdout
        );
    }
    // A second run tries the failed ones again, and nothing else.
    let again = job.run().expect(1);
    assert_eq!(
        (again.count("shards_kept"), again.count("shards_failed")),
        (3, 4)
    );
}
