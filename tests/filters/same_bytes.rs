//! A sidecar does not depend on threads or memory; filters go together with the other
//! operations, on local files and on S3.

use std::path::Path;

use harness::s3_server::S3Server;
use serde_json::{Value, json};

use crate::pictures::{
    all_filters, assert_same, jpeg, png, populated, read, spec, texts, write_plainly,
};
use crate::upload::upload;
use crate::worker::{Job, prefix};

fn write_shards(main: &Path) {
    for shard in 0..4_u32 {
        let images: Vec<Option<Vec<u8>>> = (0..18)
            .map(|row| match (row + shard) % 6 {
                0 => None,
                1 => Some(b"broken".to_vec()),
                2 | 3 => Some(jpeg(row + shard, 90 + row, 70)),
                _ => Some(png(row * shard, 33, 40)),
            })
            .collect();
        let keys = format!("s3://photos/source_a/{shard}");
        write_plainly(&main.join(format!("{shard}.parquet")), &keys, &images);
    }
}

#[test]
fn threads_and_memory_change_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let main = folder.path().join("main");
    write_shards(&main);
    let mut outputs = Vec::new();
    for (name, arguments) in [
        ("one", ["--threads", "1", "--memory", "1GiB"]),
        ("many", ["--threads", "5", "--memory", "1GiB"]),
        ("little", ["--threads", "2", "--memory", "96MiB"]),
    ] {
        let output = folder.path().join(name);
        let filters = json!({"filters": all_filters(), "limits": {"maxPixels": 1_000_000}});
        let spec = spec(&prefix(&main), &prefix(&output), filters);
        Job::new(folder.path(), name, spec)
            .run_with(&arguments)
            .expect(0);
        let bytes: Vec<Vec<u8>> = (0..4)
            .map(|shard| std::fs::read(output.join(format!("{shard}.parquet"))).unwrap())
            .collect();
        outputs.push(bytes);
    }
    assert!(outputs[0] == outputs[1], "threads");
    assert!(outputs[0] == outputs[2], "memory");
}

/// A pipeline with all that a sidecar can be made of; inputs below `root`, output in `output`.
fn pipeline(root: &str, output: &str) -> Value {
    json!({
        "dataset": {
            "mainPrefix": format!("{root}main/"),
            "keyColumn": "s3_path",
            "imageColumn": "image",
            "sources": {"markers": [{"contains": "/source_a/", "source": "source_a"}]},
        },
        "columns": [
            {"name": "file_size", "type": "int64"},
            {"name": "caption", "type": "string"},
            {"name": "filter_errors", "type": "string"},
        ],
        "pipeline": [
            {"extractScaffold": {}},
            {"joinFromParquet": {"source": format!("{root}index/"), "columns": ["file_size"], "mode": "OverwriteAll"}},
            {"mergeFromSidecar": {"sourcePrefix": format!("{root}captions/"), "columns": ["caption"], "mode": "PreferSidecar"}},
            {"computeFilters": {"filters": ["clarity", "exifRotation", "colorEntropy"]}},
        ],
        "output": {"prefix": output},
    })
}

fn write_inputs(root: &Path) {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};
    use harness::dataset::{texts, write_table};

    write_shards(&root.join("main"));
    let keys = |shards: std::ops::Range<u32>| {
        shards.flat_map(|shard| {
            (0..18).map(move |row| Some(format!("s3://photos/source_a/{shard}/{row}")))
        })
    };
    let sizes: ArrayRef = Arc::new(Int64Array::from_iter_values(0..72));
    let index = [("s3_path", texts(keys(0..4))), ("file_size", sizes)];
    write_table(&root.join("index/source_a.parquet"), &index, 50).unwrap();
    for shard in 0..4 {
        let captions = (0..18).map(|row| Some(format!("caption {row}")));
        let columns = [
            ("s3_path", texts(keys(shard..shard + 1))),
            ("caption", texts(captions)),
        ];
        let path = root.join(format!("captions/{shard}.parquet"));
        write_table(&path, &columns, 18).unwrap();
    }
}

fn check(output: &Path) {
    for shard in 0..4_usize {
        let rows = read(&output.join(format!("{shard}.parquet")));
        let reasons = texts(&rows, "filter_errors");
        for (row, reason) in reasons.iter().enumerate() {
            let expected = match (row + shard) % 6 {
                0 => Some("empty"),
                1 => Some("undecodable"),
                _ => None,
            };
            assert_eq!(reason.as_deref(), expected, "shard {shard} row {row}");
        }
        let has_values: Vec<bool> = reasons.iter().map(Option::is_none).collect();
        assert_eq!(populated(&rows, "filter_clarity"), has_values);
        assert_eq!(populated(&rows, "filter_color_entropy"), has_values);
        assert_eq!(texts(&rows, "caption")[17].as_deref(), Some("caption 17"));
        let sizes = rows.column_by_name("file_size").unwrap();
        assert_eq!(sizes.null_count(), 0);
    }
}

#[test]
fn filters_go_together_with_joins_and_merges() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let output = folder.path().join("out");
    let spec = pipeline(&prefix(folder.path()), &prefix(&output));
    let job = Job::new(folder.path(), "together", spec);
    let outcome = job.run().expect(0);
    assert_eq!(outcome.count("matched"), 72);
    job.verify().expect(0);
    check(&output);
}

#[test]
fn the_same_on_s3() {
    let Some(server) = S3Server::start() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let local = folder.path().join("out");
    let spec = pipeline(&prefix(folder.path()), &prefix(&local));
    Job::new(folder.path(), "local", spec).run().expect(0);

    let bucket = server.create_bucket("photos");
    let root = "s3://photos/data/";
    upload(&server, root, folder.path(), &["main", "index", "captions"]);
    let spec = pipeline(root, "s3://photos/out/");
    let job = Job::new(folder.path(), "s3", spec).in_environment(server.environment());
    job.run().expect(0);
    job.verify().expect(0);
    for shard in 0..4 {
        let name = format!("{shard}.parquet");
        let remote = bucket.join("out").join(&name);
        // But for the digest of the manifest, which names other prefixes.
        assert_same(&read(&remote), &read(&local.join(&name)), &name);
    }
}
