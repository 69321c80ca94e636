//! Texts that are none, wherever they are.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, AsArray};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::fixture::Fixture;

const ROWS: usize = 40;
/// The row whose list has an item of other bytes.
const BAD: usize = 25;

fn key(row: usize) -> ByteArray {
    format!("s3://photos/raw/{row:04}.jpg").into_bytes().into()
}

/// Keys, and lists of two texts each.
fn lists(path: &Path) {
    let schema = "message m { required binary s3_path (STRING); optional group v (LIST) {
        repeated group list { optional binary element (STRING); } } }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let file = File::create(path).expect("a file");
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).expect("a writer");
    let mut group = writer.next_row_group().expect("a row group");
    let keys: Vec<ByteArray> = (0..ROWS).map(key).collect();
    let items: Vec<ByteArray> = (0..2 * ROWS)
        .map(|item| match item {
            _ if item == 2 * BAD + 1 => vec![0xff, 0xfe, b'x'].into(),
            _ => format!("text {item}").into_bytes().into(),
        })
        .collect();
    let repetition: Vec<i16> = (0..2 * ROWS).map(|item| (item % 2) as i16).collect();
    let definition = vec![3; 2 * ROWS];
    let mut column = group.next_column().expect("a column").expect("the key");
    let written = column
        .typed::<ByteArrayType>()
        .write_batch(&keys, None, None);
    written.and_then(|_| column.close()).expect("written");
    let mut column = group.next_column().expect("a column").expect("the lists");
    let written =
        column
            .typed::<ByteArrayType>()
            .write_batch(&items, Some(&definition), Some(&repetition));
    written.and_then(|_| column.close()).expect("written");
    group.close().expect("a row group");
    writer.close().expect("a file");
}

/// The lists of a sidecar.
fn found(path: &Path) -> Vec<Option<Vec<String>>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).expect("a sidecar"));
    let batches = reader.expect("a footer").build().expect("a reader");
    let mut found = Vec::new();
    for batch in batches {
        let batch = batch.expect("rows");
        let column = batch.column_by_name("v").expect("the column");
        let lists = column.as_list::<i32>();
        found.extend((0..lists.len()).map(|row| {
            lists.is_valid(row).then(|| {
                let items = lists.value(row);
                let items = items.as_string::<i32>().iter();
                items
                    .map(|item| item.expect("an item").to_owned())
                    .collect()
            })
        }));
    }
    found
}

fn job(root: &str) -> String {
    format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: lists}}
spec:
  dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path}}
  columns: [{{name: v, type: list<string>}}]
  pipeline: [{{joinFromParquet: {{source: {root}/index.parquet, columns: [v]}}}}]
  output: {{prefix: {root}/out/}}
"
    )
}

#[test]
fn a_text_in_a_list_that_is_none_costs_its_row() {
    let expected: Vec<Option<Vec<String>>> = (0..ROWS)
        .map(|row| {
            let items = [2 * row, 2 * row + 1].map(|item| format!("text {item}"));
            (row != BAD).then(|| items.to_vec())
        })
        .collect();
    let fixture = Fixture::empty();
    lists(&fixture.path("index.parquet"));
    let keys = harness::dataset::texts((0..ROWS).map(|row| {
        let key = key(row);
        Some(key.as_utf8().expect("a text").to_owned())
    }));
    harness::dataset::write_table(&fixture.path("main/0.parquet"), &[("s3_path", keys)], 1000)
        .expect("a table");
    let (ended, report) = fixture.report(fixture.worker("run", &job(&fixture.root())), 0);
    let errors = &report["row_errors"]["does_not_fit"];
    assert_eq!(errors["rows"], 1, "{report}\n{}", ended.stderr);
    assert_eq!(errors["first"][0]["row"], BAD, "{report}");
    assert_eq!(found(&fixture.path("out/0.parquet")), expected);
}
