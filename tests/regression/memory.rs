//! `--memory` holds, however long texts are and however a writer has put them into pages.

use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use harness::dataset::{mix, texts, write_table};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::fixture::Fixture;

/// What a run with the least memory may take, in KiB: beside the memory, what the program itself is.
const HIGHEST: u64 = 210 << 10;
const LENGTH: usize = 200 << 10;

fn key(row: usize) -> String {
    format!("s3://photos/raw/{row:08}.jpg")
}

fn text(row: usize) -> String {
    let mut text = format!("{row} ").repeat(LENGTH / 2);
    text.truncate(LENGTH);
    text
}

fn long_texts(rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values((0..rows).map(text)))
}

/// One row group, each column in one page, or in a dictionary.
fn write_in_one_page(
    path: &Path,
    rows: usize,
    captions: &ArrayRef,
    nullable: bool,
    dictionary: bool,
) {
    let keys: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(key)));
    let schema = Arc::new(Schema::new(vec![
        Field::new("s3_path", DataType::Utf8, true),
        Field::new("caption", captions.data_type().clone(), nullable),
    ]));
    let batch = RecordBatch::try_new(schema.clone(), vec![keys, captions.clone()]);
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(dictionary)
        .set_dictionary_page_size_limit(1 << 30)
        .set_data_page_size_limit(1 << 30)
        .set_write_batch_size(1 << 20)
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).expect("a level")))
        .build();
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).expect("a writer");
    writer.write(&batch.expect("columns")).expect("rows");
    writer.close().expect("a footer");
}

fn write_main(fixture: &Fixture, rows: usize, group_rows: usize) {
    let keys = texts((0..rows).map(|row| Some(key(row))));
    let shard = fixture.path("main/a.parquet");
    write_table(&shard, &[("s3_path", keys)], group_rows).expect("a shard");
}

fn job(root: &str, step: &str) -> String {
    format!(
        "apiVersion: sidecarjob.dev/v1alpha1
kind: SidecarJob
metadata: {{name: captions}}
spec:
  dataset: {{mainPrefix: {root}/main/, keyColumn: s3_path}}
  columns: [{{name: caption, type: string}}]
  pipeline: [{step}]
  output: {{prefix: {root}/out/}}
"
    )
}

/// Runs a job with the least memory, and again with much: the same bytes. Then verifies it.
fn runs_in_little_memory(fixture: &Fixture, step: &str, rows: usize) {
    let text_of_job = job(&fixture.root(), step);
    let worker = fixture.worker("run", &text_of_job);
    let (ended, highest) = worker.arguments("--memory 128Mi").start().wait_measured();
    ended.expect(0);
    assert!(highest < HIGHEST, "{highest} KiB at the peak");
    let made = fixture.shards("out");
    let worker = fixture.worker("run", &text_of_job);
    let worker = worker.arguments("--memory 4GiB --no-skip-existing");
    worker.run().expect(0);
    assert!(made == fixture.shards("out"), "the bytes depend on memory");
    let found = fixture.rows("out/a.parquet").texts("caption");
    assert_eq!(found.len(), rows);
    for (row, found) in found.into_iter().enumerate() {
        assert!(found.is_some_and(|found| found == text(row)), "row {row}");
    }
    let worker = fixture.worker("verify", &text_of_job).arguments("--deep");
    let (ended, highest) = worker.start().wait_measured();
    ended.expect(0);
    assert!(highest < HIGHEST, "{highest} KiB at the peak of verify");
}

#[test]
fn texts_that_do_not_fit_are_joined_part_by_part() {
    const ROWS: usize = 800;
    for group_rows in [ROWS, 100] {
        let fixture = Fixture::empty();
        write_main(&fixture, ROWS, group_rows);
        let index = fixture.path("index.parquet");
        write_in_one_page(&index, ROWS, &long_texts(ROWS), true, false);
        let step = format!(
            "{{joinFromParquet: {{source: {}/index.parquet, columns: [caption]}}}}",
            fixture.root()
        );
        runs_in_little_memory(&fixture, &step, ROWS);
    }
}

#[test]
fn texts_that_do_not_fit_are_merged_part_by_part() {
    const ROWS: usize = 300;
    let fixture = Fixture::empty();
    write_main(&fixture, ROWS, ROWS);
    let file = fixture.path("captions/a.parquet");
    write_in_one_page(&file, ROWS, &long_texts(ROWS), true, false);
    let lines: Vec<String> = (0..ROWS)
        .map(|row| serde_json::json!({"s3_path": key(row), "caption": text(row)}).to_string())
        .collect();
    std::fs::write(fixture.path("captions.jsonl"), lines.join("\n")).expect("lines");
    for source in ["captions/", "captions.jsonl"] {
        let step = format!(
            "{{recaptionMerge: {{source: {}/{source}, columns: [caption]}}}}",
            fixture.root()
        );
        runs_in_little_memory(&fixture, &step, ROWS);
        std::fs::remove_dir_all(fixture.path("out")).expect("remove");
    }
}

/// A sibling whose column is copied, one with other row groups, and one whose type has to be adapted.
#[test]
fn long_texts_of_a_sibling_are_never_held_as_a_whole() {
    const ROWS: usize = 1_500;
    let captions = long_texts(ROWS);
    for (group_rows, nullable) in [(ROWS, true), (100, true), (ROWS, false)] {
        let fixture = Fixture::empty();
        write_main(&fixture, ROWS, group_rows);
        let sibling = fixture.path("sibling/a.parquet");
        write_in_one_page(&sibling, ROWS, &captions, nullable, false);
        let step = format!(
            "{{mergeFromSidecar: {{sourcePrefix: {}/sibling/, columns: [caption]}}}}",
            fixture.root()
        );
        runs_in_little_memory(&fixture, &step, ROWS);
    }
}

/// A few hundred kilobytes of dictionary that stand for half a gigabyte of texts.
#[test]
fn a_dictionary_is_not_expanded_at_once() {
    const ROWS: usize = 1_024;
    let fixture = Fixture::empty();
    write_main(&fixture, ROWS, ROWS);
    let long = "what a caption ".repeat(35_000);
    let captions: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..ROWS).map(|_| long.as_str()),
    ));
    let sibling = fixture.path("sibling/a.parquet");
    write_in_one_page(&sibling, ROWS, &captions, false, true);
    let size = std::fs::metadata(&sibling).expect("a file").len();
    assert!(size < 1 << 20, "{size} bytes");
    let step = format!(
        "{{mergeFromSidecar: {{sourcePrefix: {}/sibling/, columns: [caption]}}}}",
        fixture.root()
    );
    let worker = fixture.worker("run", &job(&fixture.root(), &step));
    let (ended, highest) = worker.arguments("--memory 128Mi").start().wait_measured();
    ended.expect(0);
    assert!(highest < HIGHEST, "{highest} KiB at the peak");
    let found = fixture.rows("out/a.parquet");
    let found = found.0.column_by_name("caption").expect("the column");
    assert_eq!((found.len(), found.null_count()), (ROWS, 0));
}

/// A few kilobytes of runs of nulls that stand for billions of rows.
#[test]
fn a_shard_whose_keys_alone_exceed_the_memory_is_refused() {
    const ROWS: usize = 20_000_000;
    let fixture = Fixture::empty();
    let nulls = texts((0..ROWS).map(|_| None::<&str>));
    let shard = fixture.path("main/a.parquet");
    write_table(&shard, &[("s3_path", nulls)], ROWS).expect("a shard");
    write_in_one_page(
        &fixture.path("index.parquet"),
        3,
        &long_texts(3),
        true,
        false,
    );
    let step = format!(
        "{{joinFromParquet: {{source: {}/index.parquet, columns: [caption]}}}}",
        fixture.root()
    );
    let worker = fixture.worker("run", &job(&fixture.root(), &step));
    let (ended, highest) = worker.arguments("--memory 128Mi").start().wait_measured();
    let ended = ended.expect(1);
    let said = ended.stdout + &ended.stderr;
    assert!(
        said.contains("a.parquet") && said.contains("raise --memory"),
        "{said}"
    );
    assert!(highest < HIGHEST, "{highest} KiB at the peak");
}

/// Sidecars are looked into as whole files: no more of them at once than the memory holds.
#[test]
fn shards_are_verified_and_audited_as_memory_allows() {
    const SHARDS: usize = 24;
    const BLOB: usize = 6 << 20;
    let fixture = Fixture::empty();
    for shard in 0..SHARDS {
        let noise: Vec<u8> = (0..BLOB / 8)
            .flat_map(|at| mix(shard, at, 7).to_le_bytes())
            .collect();
        let noise: ArrayRef = Arc::new(BinaryArray::from_iter_values([noise]));
        let columns = [
            ("s3_path", texts([Some(key(shard))].into_iter())),
            ("noise", noise),
        ];
        let path = fixture.path(&format!("main/{shard:02}.parquet"));
        write_table(&path, &columns, 1).expect("a shard");
    }
    let job = job(&fixture.root(), "{extractScaffold: {}}").replace("caption", "noise");
    let job = job.replace("type: string", "type: binary");
    fixture.run(&job).expect(0);
    for command in ["verify", "audit"] {
        let worker = fixture.worker(command, &job);
        let worker = match command {
            "verify" => worker.arguments("--deep --memory 128Mi"),
            _ => worker.arguments("--memory 128Mi"),
        };
        let (ended, highest) = worker.start().wait_measured();
        ended.expect(0);
        assert!(highest < 150 << 10, "{command}: {highest} KiB at the peak");
    }
}
