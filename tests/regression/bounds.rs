//! Memory, requests and time stay within their bounds, whatever a file claims.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use harness::dataset::{structure, texts, write_table};

use crate::fixture::Fixture;

fn keys(rows: usize, step: usize) -> ArrayRef {
    texts((0..rows).map(|row| Some(format!("s3://photos/raw/{:08}.jpg", row * step))))
}

/// A job that joins one column of an index file.
fn join(root: &str, column: &str, schemas: &str) -> String {
    let name = column.split(':').next().expect("a name");
    format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: join}}
spec:
  dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path}}
{schemas}  columns: [{{name: {name}, type: {kind}}}]
  pipeline:
    - joinFromParquet: {{source: {root}/index.parquet, columns: [{name}]}}
  output: {{prefix: {root}/out/}}
",
        kind = column.split(':').nth(1).expect("a type"),
    )
}

/// datui#152, opendata#338: leaves of one column, read by turns, share no window.
#[test]
fn the_leaves_of_a_list_are_read_once() {
    const ROWS: usize = 40_000;
    const EACH: usize = 16;
    let fixture = Fixture::empty();
    let numbers = |salt: f64| -> ArrayRef {
        let values = (0..ROWS * EACH).map(|number| (number as f64 * 0.37 + salt).sin());
        Arc::new(Float64Array::from_iter_values(values))
    };
    let boxes = structure(&[("x", numbers(0.1)), ("y", numbers(0.7))]);
    let element = Arc::new(Field::new(
        "element",
        DataType::clone(boxes.data_type()),
        true,
    ));
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(EACH, ROWS));
    let lists = ListArray::new(element, offsets, boxes, None);
    let index = fixture.path("index.parquet");
    let columns = [
        ("s3_path", keys(ROWS, 1)),
        ("boxes", Arc::new(lists) as ArrayRef),
    ];
    write_table(&index, &columns, ROWS).expect("an index");
    let shard = fixture.path("main/a.parquet");
    write_table(&shard, &[("s3_path", keys(ROWS / 400, 400))], ROWS).expect("a shard");
    let size = std::fs::metadata(&index).expect("an index").len();
    assert!(size > 10 << 20, "two leaves of more than a window: {size}");
    let schemas = "  schemas: {box_v1: [{name: x, type: float64}, {name: y, type: float64}]}\n";
    let text = join(&fixture.root(), "boxes:list<box_v1>", schemas);
    let (_, report) = fixture.report(fixture.worker("run", &text), 0);
    let bytes = report["requests"]["bytes_read"].as_u64().expect("a number");
    assert!(
        bytes < size * 5 / 4,
        "{bytes} bytes read of an index of {size}"
    );
}
