//! Column types: each passes intact, and foreign readers open what is published.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use serde_json::{Value, json};
use shard_worker::parquet_file::ParquetFile;
use shard_worker::recode;
use storage::{ETag, ObjectMeta};

use crate::interop_worker::{Job, prefix};
use crate::surroundings::Python;

fn spec(root: &Path, main: &str, output: &str, steps: Value) -> Value {
    json!({
        "dataset": {"mainPrefix": prefix(&root.join(main)), "keyColumn": "key"},
        "pipeline": steps,
        "output": {"prefix": prefix(&root.join(output))},
    })
}

fn open(bytes: Vec<u8>) -> ParquetFile {
    let meta = ObjectMeta {
        key: "f.parquet".to_owned(),
        size: bytes.len() as u64,
        etag: ETag("1".into()),
    };
    ParquetFile::from_bytes("memory:f.parquet", meta, Bytes::from(bytes)).unwrap()
}

/// Writes all files of a folder anew with a codec that not every reader knows.
fn with_foreign_codec(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let file = open(std::fs::read(&path).unwrap());
        let properties = Arc::new(
            WriterProperties::builder()
                .set_compression(Compression::LZ4)
                .build(),
        );
        let schema = file
            .metadata
            .file_metadata()
            .schema_descr()
            .root_schema_ptr();
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties.clone()).unwrap();
        let rows = file.group_rows();
        let mut columns: Vec<_> = (0..file.roots().len())
            .map(|root| recode::column(&file, root, &rows, &properties, false).unwrap())
            .collect();
        for _ in &rows {
            let mut group = writer.next_row_group().unwrap();
            for chunks in columns.iter_mut().flat_map(|column| &mut column.leaves) {
                let chunk = chunks.next().unwrap();
                group.append_column(&chunk.bytes, chunk.close).unwrap();
            }
            group.close().unwrap();
        }
        std::fs::write(
            to.join(path.file_name().unwrap()),
            writer.into_inner().unwrap(),
        )
        .unwrap();
    }
}

/// Intervals lost their months, decimals of byte arrays ended in a panic, and other types came out
/// so that no reader opened them, as soon as a column could not be copied.
#[test]
fn every_type_of_every_writer_passes_where_it_must_be_written_anew() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("column_types.py", &["make", path]);
    with_foreign_codec(&root.join("same"), &root.join("codec"));
    let shards = std::fs::read_dir(root.join("main")).unwrap().count() as u64;
    for (output, main, side) in [
        // Null structs alone force it.
        ("null-structs", "main", Some("same")),
        ("groups", "main", Some("other")),
        ("codecs", "main", Some("codec")),
        ("scaffold", "codec", None),
    ] {
        let mut steps = vec![json!({"extractScaffold": {}})];
        if let Some(side) = side {
            let source = prefix(&root.join(side));
            steps.push(json!({"mergeFromSidecar": {"sourcePrefix": source}}));
        }
        let job = Job::new(root, output, spec(root, main, output, Value::from(steps)));
        assert_eq!(job.run().expect(0).count("shards_done"), shards);
        // The files that writers wrote are what a reader's values are compared with.
        let original = side.filter(|side| *side == "other").unwrap_or("same");
        python.script("column_types.py", &["check", path, output, original]);
    }
}

/// Encrypted columns were told as pages without a type.
#[test]
fn encrypted_columns_are_named_and_passed_over_where_nothing_needs_them() {
    let Some(python) = Python::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let path = root.to_str().unwrap();
    python.script("encrypted.py", &["make", path]);
    for (output, drop, failing) in [
        ("out", json!([]), vec!["footer", "key", "place"]),
        ("dropped", json!(["place"]), vec!["footer", "key"]),
    ] {
        let join = json!({"joinFromParquet": {"source": root.join("index.parquet"), "columns": ["number"]}});
        let steps = json!([{"extractScaffold": {"drop": drop}}, join]);
        let mut spec = spec(root, "main", output, steps);
        spec["dataset"]["imageColumn"] = json!("image");
        spec["columns"] = json!([{"name": "number", "type": "int64"}]);
        let failures = Job::new(root, output, spec).run().expect(1).failures();
        let names: Vec<String> = failing
            .iter()
            .map(|name| format!("{name}.parquet"))
            .collect();
        assert_eq!(
            failures.keys().collect::<Vec<_>>(),
            names.iter().collect::<Vec<_>>()
        );
        for (shard, reason) in failures {
            let words = reason.rsplit(&shard).next().unwrap_or_default();
            assert!(words.contains("is encrypted"), "{shard}: {reason}");
        }
    }
    python.script("encrypted.py", &["check", path]);
}

fn write(path: &Path, columns: &[(&str, ArrayRef)]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns
            .iter()
            .map(|(name, array)| (*name, array.clone(), true)),
    );
    let batch = batch.unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

fn keys() -> ArrayRef {
    Arc::new(StringArray::from(vec!["k0", "k1", "k2"]))
}

fn names(path: &Path) -> Vec<String> {
    let file = open(std::fs::read(path).unwrap());
    file.roots()
        .iter()
        .map(|field| field.name().to_owned())
        .collect()
}

/// A shard with a sibling had k and score, one without had k.
#[test]
fn shards_without_a_sibling_have_the_columns_of_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let scores: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    for shard in ["a", "b"] {
        write(
            &root.join(format!("main/{shard}.parquet")),
            &[("key", keys())],
        );
    }
    write(
        &root.join("side/a.parquet"),
        &[("key", keys()), ("score", scores)],
    );
    let source = prefix(&root.join("side"));
    for (name, merge) in [
        ("all", json!({"sourcePrefix": source, "required": false})),
        (
            "named",
            json!({"sourcePrefix": source, "required": false, "columns": ["score"]}),
        ),
        (
            "preferred",
            json!({"sourcePrefix": source, "required": false, "mode": "PreferSidecar"}),
        ),
    ] {
        let mut spec = spec(
            root,
            "main",
            name,
            json!([{"extractScaffold": {}}, {"mergeFromSidecar": merge}]),
        );
        let refused = Job::new(root, name, spec.clone()).run().expect(2);
        assert!(
            refused.stderr.contains("column \"score\" is not declared"),
            "{}",
            refused.stderr
        );
        assert!(!root.join(name).exists(), "{name}");

        spec["columns"] = json!([{"name": "score", "type": "int64"}]);
        let job = Job::new(root, name, spec);
        job.run().expect(0);
        for shard in ["a", "b"] {
            assert_eq!(
                names(&root.join(format!("{name}/{shard}.parquet"))),
                ["key", "score"]
            );
        }
        job.verify().expect(0);
    }
}

/// Siblings whose column has another type in each shard make shards that no engine reads together.
#[test]
fn verify_compares_the_schemas_of_shards() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let columns: [(&str, ArrayRef); 2] = [
        ("a", Arc::new(Int64Array::from(vec![1, 2, 3]))),
        ("b", Arc::new(StringArray::from(vec!["1", "2", "3"]))),
    ];
    for (shard, scores) in columns {
        write(
            &root.join(format!("main/{shard}.parquet")),
            &[("key", keys())],
        );
        write(
            &root.join(format!("side/{shard}.parquet")),
            &[("key", keys()), ("score", scores)],
        );
    }
    let merge = json!({"mergeFromSidecar": {"sourcePrefix": prefix(&root.join("side"))}});
    let job = Job::new(
        root,
        "types",
        spec(root, "main", "out", json!([{"extractScaffold": {}}, merge])),
    );
    job.run().expect(0);
    let outcome = job.verify().expect(3);
    assert_eq!(
        outcome.problems().into_iter().collect::<Vec<_>>(),
        [("b.parquet".to_owned(), "schema".to_owned())]
    );
    let words = "column \"score\" is string, but int64 in a.parquet";
    assert!(outcome.stdout.contains(words), "{}", outcome.stdout);
}

/// Without `--deep`, and without a hash to compare with, only the key column was looked at.
#[test]
fn verify_opens_every_column() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    write(
        &root.join("main/a.parquet"),
        &[("key", keys()), ("number", numbers)],
    );
    let job = Job::new(
        root,
        "opens",
        spec(root, "main", "out", json!([{"extractScaffold": {}}])),
    );
    job.run().expect(0);
    std::fs::remove_dir_all(root.join("out/_sidecar")).unwrap();
    let path = root.join("out/a.parquet");
    let mut bytes = std::fs::read(&path).unwrap();
    let file = open(bytes.clone());
    let chunk = file.metadata.row_group(0).column(1);
    let start = shard_worker::parquet_file::chunk_start(chunk) as usize;
    bytes[start..start + 4].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let outcome = job.verify_with(&["--all"]).expect(3);
    assert_eq!(outcome.problems()["a.parquet"], "unreadable");
    assert!(
        outcome.stdout.contains("column \"number\""),
        "{}",
        outcome.stdout
    );
}

/// A name with a slip in it dropped nothing, without a word.
#[test]
fn a_column_that_is_not_there_is_not_dropped_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    write(
        &root.join("main/a.parquet"),
        &[("key", keys()), ("place", keys())],
    );
    let steps = json!([{"extractScaffold": {"drop": ["plcae"]}}]);
    let outcome = Job::new(root, "drop", spec(root, "main", "out", steps))
        .run()
        .expect(0);
    assert!(
        outcome
            .stderr
            .contains("there is no column \"plcae\" to drop"),
        "{}",
        outcome.stderr
    );
}
