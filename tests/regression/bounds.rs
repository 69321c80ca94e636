//! Memory, requests and time stay within their bounds, whatever a file claims.

use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, Float64Array, ListArray};
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

/// A chunk of a PNG.
fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(body.len())
        .expect("a size")
        .to_be_bytes()
        .to_vec();
    bytes.extend(name);
    bytes.extend(body);
    let mut sum = flate2::Crc::new();
    sum.update(&bytes[4..]);
    bytes.extend(sum.sum().to_be_bytes());
    bytes
}

/// `bytes`, so many times over, as zlib has them; the checksum is right for once.
fn deflated(bytes: &[u8], times: usize) -> Vec<u8> {
    let mut raw = flate2::Compress::new(flate2::Compression::fast(), false);
    let mut block = Vec::with_capacity(bytes.len() + 1024);
    raw.compress_vec(bytes, &mut block, flate2::FlushCompress::Full)
        .expect("deflate");
    let mut deflated = vec![0x78, 0x01];
    (0..times).for_each(|_| deflated.extend(&block));
    raw.reset();
    let mut end = Vec::with_capacity(16);
    raw.compress_vec(&[], &mut end, flate2::FlushCompress::Finish)
        .expect("deflate");
    deflated.extend(end);
    deflated.extend(adler32(bytes));
    deflated
}

/// The checksum of bytes that come once.
fn adler32(bytes: &[u8]) -> [u8; 4] {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in bytes {
        low = (low + u32::from(*byte)) % 65521;
        high = (high + low) % 65521;
    }
    (high << 16 | low).to_be_bytes()
}

/// image-png's own limit is for all that an image may take: a profile of a few hundred kilobytes
/// that inflates to a gigabyte is passed over, and the image measured.
#[test]
fn a_colour_profile_that_inflates_costs_nothing() {
    let fixture = Fixture::empty();
    let mut header = vec![0, 0, 0, 8, 0, 0, 0, 8];
    header.extend([8, 0, 0, 0, 0]);
    let mut profile = b"bomb\0\0".to_vec();
    profile.extend(deflated(&vec![0; 1 << 20], 900));
    let rows: Vec<u8> = (0..8 * 9)
        .map(|at| if at % 9 == 0 { 0 } else { at * 3 })
        .collect();
    let mut image = b"\x89PNG\r\n\x1a\n".to_vec();
    image.extend(chunk(b"IHDR", &header));
    image.extend(chunk(b"iCCP", &profile));
    image.extend(chunk(b"IDAT", &deflated(&rows, 1)));
    image.extend(chunk(b"IEND", &[]));
    let images: ArrayRef = Arc::new(BinaryArray::from_iter_values([image]));
    let columns = [("s3_path", keys(1, 1)), ("image", images)];
    write_table(&fixture.path("main/a.parquet"), &columns, 1).expect("a shard");
    let text = format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: profile}}
spec:
  dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path, imageColumn: image}}
  columns: [{{name: filter_luma, type: filter_luma_v1}}, {{name: filter_errors, type: string}}]
  pipeline: [{{computeFilters: {{filters: [luma]}}}}]
  output: {{prefix: {root}/out/}}
",
        root = fixture.root()
    );
    let worker = fixture.worker("run", &text);
    let (ended, highest) = worker.arguments("--memory 2GiB").start().wait_measured();
    ended.expect(0);
    assert!(highest < 200 << 10, "{highest} KiB at the peak");
    let rows = fixture.rows("out/a.parquet");
    assert_eq!(rows.texts("filter_errors"), [None]);
}
