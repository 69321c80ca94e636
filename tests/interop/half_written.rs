//! An output prefix in which not everything is what it should be.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::surroundings::Python;
use crate::worker::{Job, prefix};

fn spec(root: &Path, output: &str, columns: &[&str]) -> Value {
    let declared: Vec<Value> = columns
        .iter()
        .map(|name| json!({"name": name, "type": "string"}))
        .collect();
    json!({
        "dataset": {"mainPrefix": prefix(&root.join("main")), "keyColumn": "key", "imageColumn": "image"},
        "columns": declared,
        "pipeline": [
            {"extractScaffold": {}},
            {"joinFromParquet": {"source": root.join("index.parquet"), "columns": ["label"]}},
        ],
        "output": {"prefix": prefix(&root.join(output))},
    })
}

/// All files below a folder with their bytes, but for the lock, which every look at it renews.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name != "writer.json") {
                let name = path
                    .strip_prefix(folder)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn shards(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = files(folder);
    found.retain(|name, _| name.ends_with(".parquet"));
    found
}

fn replay(keep_state: bool) {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let [path, out, other] = [root.to_owned(), root.join("out"), root.join("other")]
        .map(|path| path.to_str().unwrap().to_owned());
    python.script("half_written.py", &["make", &path]);
    let job = Job::new(root, "job", spec(root, "out", &["label"]));
    job.run().expect(0);
    let quiet = shards(&root.join("out"));
    assert_eq!(quiet.len(), 5);
    Job::new(root, "older", spec(root, "other", &["label", "note"]))
        .run()
        .expect(0);
    python.script("half_written.py", &["spoil", &out, &other]);
    if !keep_state {
        std::fs::remove_dir_all(root.join("out/_sidecar")).unwrap();
        std::fs::remove_file(root.join("out/_SUCCESS")).unwrap();
    }

    // Nothing is done to a prefix that holds another pipeline's shard.
    let before = files(&root.join("out"));
    let refused = job.run().expect(2);
    for part in [
        "out/part/4.parquet",
        "another pipeline",
        "no shard was touched",
        "--output-prefix",
    ] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(
        files(&root.join("out")) == before,
        "a refused run has written"
    );
    let problems = job.verify().expect(3).problems();
    assert!(!problems.contains_key("part/0.parquet"), "{problems:?}");
    assert_eq!(problems.len(), 4, "{problems:?}");

    std::fs::remove_file(root.join("out/part/4.parquet")).unwrap();
    let resumed = job.run().expect(0);
    assert_eq!(resumed.count("shards_kept"), 1);
    assert_eq!(resumed.count("shards_done"), 4);
    // Cut off, and rewritten by another tool.
    assert_eq!(
        resumed.report["shards_redone"],
        json!({"Torn": 1, "Unreadable": 2})
    );
    assert!(
        resumed.stdout.contains("1 Torn, 2 Unreadable"),
        "{}",
        resumed.stdout
    );
    assert!(
        shards(&root.join("out")) == quiet,
        "the resumed output differs from a quiet one"
    );
    job.verify().expect(0);
    let again = job.run().expect(0);
    assert_eq!(
        (again.count("shards_kept"), again.count("shards_done")),
        (5, 0)
    );
}

/// With what the first run has recorded beside its output.
#[test]
fn what_is_recorded_does_not_vouch_for_changed_shards() {
    replay(true);
}

/// With nothing but the shards.
#[test]
fn footers_alone_tell_right_shards_from_others() {
    replay(false);
}
