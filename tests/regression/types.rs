//! Column types: each passes intact, and foreign readers open what is published.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
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
