//! Files that are empty in one way or another, and files that are none.

use std::path::Path;

use harness::s3_server::S3Server;
use serde_json::json;

use crate::surroundings::Python;
use crate::upload::upload;
use crate::worker::{Job, prefix};

/// What has no rows is a shard like any other; what can't be read is named, and costs nothing
/// but itself.
fn replay(python: &Python, job: &Job, folder: &Path) {
    let outcome = job.run().expect(1);
    // Folders are no shards: seven files are.
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
    let names = wanted.map(|(name, _)| name);
    assert_eq!(failures.keys().collect::<Vec<_>>(), names);
    for (name, reason) in wanted {
        assert!(failures[name].contains(reason), "{}", failures[name]);
    }
    python.script("shapes.py", &["check", folder.to_str().unwrap()]);

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

/// The job with its data at `uri`.
fn job(folder: &Path, uri: &str) -> Job {
    let spec = json!({
        "dataset": {"mainPrefix": format!("{uri}main/"), "keyColumn": "key", "imageColumn": "image"},
        "columns": [{"name": "label", "type": "string"}],
        "pipeline": [
            {"extractScaffold": {}},
            {"joinFromParquet": {"source": format!("{uri}index/index.parquet"), "columns": ["label"]}},
        ],
        "output": {"prefix": format!("{uri}out/")},
    });
    Job::new(folder, "shapes", spec)
}

#[test]
fn empty_files_pass_and_broken_ones_are_named() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    python.script("shapes.py", &["make", root.to_str().unwrap()]);
    replay(&python, &job(root, &prefix(root)), root);
}

/// On S3 a folder may be an object of its own, with a name that ends in a slash.
#[test]
fn folder_markers_are_no_shards() {
    let Some(python) = Python::find() else { return };
    let Some(server) = S3Server::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    python.script("shapes.py", &["make", root.to_str().unwrap()]);
    let bucket = server.create_bucket("bucket");
    upload(&server, "s3://bucket/", root, &["main", "index"]);
    let endpoint = server.endpoint();
    let markers = [
        "/bucket/main/",
        "/bucket/main/marker/",
        "/bucket/main/marker.parquet/",
    ];
    let client = ["mark", &endpoint, server.access_key(), server.secret_key()];
    python.script("shapes.py", &[client.as_slice(), &markers].concat());
    let job = job(root, "s3://bucket/").in_environment(server.environment());
    replay(&python, &job, &bucket);
}
