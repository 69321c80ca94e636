//! Property tests of a whole run: whatever the shards, the index and the chunking, the sidecar
//! has main's rows in main's order, with the values that a naive join gives.

// Helpers of tests, outside of `#[test]` functions, may unwrap as well.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryViewArray, DictionaryArray, Float64Array, Int64Array,
    LargeStringArray, RecordBatch, StringArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, Int64Type};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::{WriterProperties, WriterVersion};
use proptest::prelude::*;
use shard_worker::job::Job;
use shard_worker::run::planning::Selection;
use shard_worker::run::progress::Progress;
use shard_worker::run::stop::Stop;
use shard_worker::run::{RunOptions, run};

/// How a writer stores keys.
#[derive(Debug, Clone, Copy)]
enum KeyForm {
    Text,
    LargeText,
    BlobView,
    Dictionary,
}

#[derive(Debug, Clone)]
struct Shard {
    keys: Vec<Option<String>>,
    group_rows: usize,
    form: KeyForm,
    version_2: bool,
}

#[derive(Debug, Clone)]
struct IndexRow {
    key: Option<String>,
    score: Option<f64>,
    size: Option<i64>,
    null_struct: bool,
}

#[derive(Debug, Clone)]
struct Case {
    shards: Vec<Shard>,
    index: Vec<Vec<IndexRow>>,
    index_group_rows: usize,
    by_source: bool,
    update_if_null: bool,
}

fn key() -> impl Strategy<Value = String> {
    // Few distinct keys, so that hits, duplicates and misses all occur; some odd ones.
    prop_oneof![
        8 => (0..3_u8, 0..30_u8).prop_map(|(source, number)| format!("s3://b/source_{source}/{number}.jpg")),
        1 => Just(String::new()),
        1 => Just("ключ/🔑 +%=#.jpg".to_owned()),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let form = prop_oneof![
        Just(KeyForm::Text),
        Just(KeyForm::LargeText),
        Just(KeyForm::BlobView),
        Just(KeyForm::Dictionary)
    ];
    let shard = (
        prop::collection::vec(prop::option::weighted(0.9, key()), 0..40),
        1..17_usize,
        form,
        any::<bool>(),
    )
        .prop_map(|(keys, group_rows, form, version_2)| Shard {
            keys,
            group_rows,
            form,
            version_2,
        });
    let row = (
        prop::option::weighted(0.95, key()),
        prop::option::weighted(0.8, -1e6..1e6_f64),
        prop::option::weighted(0.8, any::<i64>()),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(key, score, size, null_struct)| IndexRow {
            key,
            score,
            size,
            null_struct,
        });
    let index = prop::collection::vec(prop::collection::vec(row, 0..40), 1..4);
    (
        prop::collection::vec(shard, 1..5),
        index,
        1..20_usize,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(shards, index, index_group_rows, by_source, update_if_null)| Case {
                shards,
                index,
                index_group_rows,
                by_source,
                update_if_null,
            },
        )
}

fn key_array(keys: &[Option<String>], form: KeyForm) -> ArrayRef {
    let texts = keys.iter().map(Option::as_deref);
    match form {
        KeyForm::Text => Arc::new(texts.collect::<StringArray>()),
        KeyForm::LargeText => Arc::new(texts.collect::<LargeStringArray>()),
        KeyForm::BlobView => Arc::new(
            texts
                .map(|text| text.map(str::as_bytes))
                .collect::<BinaryViewArray>(),
        ),
        KeyForm::Dictionary => Arc::new(texts.collect::<DictionaryArray<Int32Type>>()),
    }
}

fn write(path: &Path, batch: &RecordBatch, group_rows: usize, version_2: bool) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let version = if version_2 {
        WriterVersion::PARQUET_2_0
    } else {
        WriterVersion::PARQUET_1_0
    };
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_writer_version(version)
        .set_data_page_row_count_limit(5)
        .set_write_batch_size(3)
        .build();
    let mut writer = ArrowWriter::try_new(
        std::fs::File::create(path).unwrap(),
        batch.schema(),
        Some(properties),
    )
    .unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

fn write_case(root: &Path, case: &Case) {
    for (number, shard) in case.shards.iter().enumerate() {
        let keys = key_array(&shard.keys, shard.form);
        let rows = keys.len() as i64;
        let before: Float64Array = (0..rows)
            .map(|row| (row % 3 == 0).then_some(row as f64 + 0.5))
            .collect();
        let score = StructArray::from(vec![(
            Arc::new(Field::new("score", DataType::Float64, true)),
            Arc::new(before) as ArrayRef,
        )]);
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            (
                "row",
                Arc::new(Int64Array::from_iter_values(0..rows)),
                false,
            ),
            ("key", keys, true),
            (
                "image",
                Arc::new(StringArray::from_iter_values(
                    (0..rows).map(|row| format!("bytes {row}")),
                )),
                true,
            ),
            ("metric", Arc::new(score), true),
        ];
        write(
            &root.join(format!("main/{}/{number}.parquet", number % 2)),
            &RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
            shard.group_rows,
            shard.version_2,
        );
    }
    for (number, rows) in case.index.iter().enumerate() {
        let score: Float64Array = rows.iter().map(|row| row.score).collect();
        let validity = rows.iter().map(|row| !row.null_struct).collect::<Vec<_>>();
        let fields = vec![Arc::new(Field::new("score", DataType::Float64, true))];
        let metric =
            StructArray::try_new(fields.into(), vec![Arc::new(score)], Some(validity.into()))
                .unwrap();
        let columns: Vec<(&str, ArrayRef, bool)> = vec![
            (
                "key",
                Arc::new(
                    rows.iter()
                        .map(|row| row.key.as_deref())
                        .collect::<StringArray>(),
                ),
                true,
            ),
            ("metric", Arc::new(metric), true),
            (
                "file_size",
                Arc::new(rows.iter().map(|row| row.size).collect::<Int64Array>()),
                true,
            ),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        write(
            &root.join(format!("index/source_{number}.parquet")),
            &batch,
            case.index_group_rows,
            number % 2 == 0,
        );
    }
}

fn manifest(root: &Path, case: &Case, output: &str) -> String {
    let sources = if case.by_source {
        "\n    sources: {markers: [{contains: /source_0/, source: source_0}, {contains: /source_1/, source: source_1}, {contains: /source_2/, source: source_2}]}"
    } else {
        ""
    };
    let mode = if case.update_if_null {
        "UpdateIfNull"
    } else {
        "OverwriteAll"
    };
    let root = root.display();
    format!(
        "apiVersion: sidecarjob.dev/v1alpha1\nkind: SidecarJob\nmetadata: {{name: property}}\nspec:\n  dataset:\n    mainPrefix: {root}/main/\n    keyColumn: key\n    imageColumn: image{sources}\n  schemas: {{metric_v1: [{{name: score, type: float64}}]}}\n  columns:\n    - {{name: metric, type: metric_v1}}\n    - {{name: file_size, type: int64}}\n  pipeline:\n    - extractScaffold: {{}}\n    - joinFromParquet: {{source: {root}/index/, columns: [metric, file_size], mode: {mode}}}\n  output: {{prefix: {root}/{output}/}}\n"
    )
}

/// The last row of the index that has the key: files in byte order, then rows.
fn naive<'a>(case: &'a Case, key: Option<&str>) -> Option<&'a IndexRow> {
    let key = key?;
    let source = (0..3).find(|source| key.contains(&format!("/source_{source}/")));
    let files: Vec<&Vec<IndexRow>> = match (case.by_source, source) {
        (false, _) => case.index.iter().collect(),
        (true, Some(source)) => case.index.get(source).into_iter().collect(),
        (true, None) => return None,
    };
    files
        .into_iter()
        .flatten()
        .rfind(|row| row.key.as_deref() == Some(key))
}

async fn run_job(root: &Path, case: &Case, output: &str, memory: u64, threads: usize) {
    let file = root.join(format!("{output}.yaml"));
    std::fs::write(&file, manifest(root, case, output)).unwrap();
    let job = Job::open(crds::manifest::load(&file).unwrap(), None)
        .await
        .unwrap();
    let options = RunOptions {
        skip_existing: true,
        selection: Selection::default(),
        memory,
        threads,
    };
    let ended = run(
        Arc::new(job),
        options,
        Arc::new(Progress::default()),
        Stop::default(),
    )
    .await
    .unwrap();
    assert!(ended.error.is_none(), "{:?}", ended.error);
    let report = ended.report;
    assert_eq!(
        report.shards_done,
        case.shards.len() as u64,
        "{:?}",
        report.failures
    );
}

fn check_against_naive_join(root: &Path, case: &Case) {
    let mut schemas: HashMap<bool, String> = HashMap::new();
    for (number, shard) in case.shards.iter().enumerate() {
        let path = root.join(format!("first/{}/{number}.parquet", number % 2));
        let builder =
            ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(path).unwrap()).unwrap();
        // Main's own key form differs by shard; the columns that the job adds never do.
        let added = builder.parquet_schema().root_schema().get_fields()[2..]
            .iter()
            .map(|field| format!("{field:?}"))
            .collect::<String>();
        assert_eq!(schemas.entry(true).or_insert_with(|| added.clone()), &added);
        let batches: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, shard.keys.len());
        let mut row = 0;
        for batch in batches {
            let names: Vec<String> = batch
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            assert_eq!(names, ["row", "key", "metric", "file_size"]);
            let position = batch.column(0).as_primitive::<Int64Type>();
            let metric = batch.column(2).as_struct();
            let score = metric.column(0).as_primitive::<Float64Type>();
            let size = batch.column(3).as_primitive::<Int64Type>();
            for at in 0..batch.num_rows() {
                assert_eq!(position.value(at), row as i64);
                let found = naive(case, shard.keys[row].as_deref());
                let before =
                    (row.is_multiple_of(3) && case.update_if_null).then_some(row as f64 + 0.5);
                let joined = found
                    .filter(|found| !found.null_struct)
                    .and_then(|found| found.score);
                assert!(metric.is_valid(at), "structs are always present");
                assert_eq!(
                    score.is_valid(at).then(|| score.value(at)),
                    before.or(joined),
                    "row {row} of shard {number}"
                );
                assert_eq!(
                    size.is_valid(at).then(|| size.value(at)),
                    found.and_then(|found| found.size),
                    "row {row} of shard {number}"
                );
                row += 1;
            }
        }
    }
}

fn files_below(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for number in 0..2 {
        let Ok(entries) = std::fs::read_dir(folder.join(number.to_string())) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            files.push((
                path.strip_prefix(folder).unwrap().display().to_string(),
                std::fs::read(&path).unwrap(),
            ));
        }
    }
    files.sort();
    files
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, rng_seed: proptest::test_runner::RngSeed::Fixed(7), ..ProptestConfig::default() })]

    #[test]
    fn a_join_equals_a_naive_join_whatever_the_chunking(case in case()) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write_case(root, &case);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            run_job(root, &case, "first", 1 << 30, 1).await;
            run_job(root, &case, "second", 256 << 10, 3).await;
        });
        check_against_naive_join(root, &case);
        prop_assert_eq!(files_below(&root.join("first")), files_below(&root.join("second")), "chunking and threads change no byte");
    }
}
