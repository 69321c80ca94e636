//! Shards that cannot be read cost themselves, nothing else.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use harness::dataset::{path, write_table};
use parquet::column::writer::ColumnCloseResult;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use serde_json::Value;

use crate::fixture::Fixture;

/// Breaks five shards in five ways.
fn poison(fixture: &Fixture) -> Vec<String> {
    let main = |shard: usize| fixture.path("main").join(path(shard));
    std::fs::write(main(1), vec![0xA5; 5000]).expect("write");
    let whole = std::fs::read(main(2)).expect("read");
    std::fs::write(main(2), &whole[..whole.len() / 2]).expect("write");
    std::fs::write(main(3), b"").expect("write");
    // A good end, but the pages before it are gone.
    let whole = std::fs::read(main(4)).expect("read");
    let mut torn = whole.clone();
    torn[4..whole.len() / 3].fill(0xFF);
    std::fs::write(main(4), torn).expect("write");
    // A footer that promises more than there is.
    let mut liar = b"PAR1".to_vec();
    liar.extend([0xFF, 0xFF, 0xFF, 0x7F]);
    liar.extend(b"PAR1");
    std::fs::write(main(5), liar).expect("write");
    (1..6).map(path).collect()
}

#[test]
fn poisonous_shards_are_listed_and_the_others_done() {
    let fixture = Fixture::new();
    let poisoned = poison(&fixture);
    let (ended, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    let made: Vec<String> = fixture.shards("out").into_keys().collect();
    assert_eq!(made.len(), 7, "{made:?}");
    assert_eq!(
        (&report["shards_done"], &report["shards_failed"]),
        (&7.into(), &5.into())
    );
    let failures = report["failures"].as_array().expect("a list");
    let mut listed: Vec<&str> = failures
        .iter()
        .filter_map(|failure| failure["path"].as_str())
        .collect();
    listed.sort_unstable();
    let mut expected = poisoned.clone();
    expected.sort();
    assert_eq!(listed, expected);
    assert!(
        failures.iter().all(|failure| failure["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(&fixture.root()))),
        "{failures:#?}"
    );
    let (_, summary) = ended.stdout.split_once("failed shards:").expect("a list");
    for path in &poisoned {
        assert!(summary.contains(path), "{path} is not in {summary}");
        assert!(!made.contains(path));
    }
    assert!(!fixture.path("out/_SUCCESS").exists());
    let files = fixture.files("out");
    let strange: Vec<&String> = files.keys().filter(|name| name.contains("tmp")).collect();
    assert!(strange.is_empty(), "{strange:?}");

    // Verification says why they are missing.
    let (_, verified) = fixture.report(fixture.worker("verify", &fixture.full()), 3);
    let problems = verified["problems"].as_array().expect("a list");
    let missing = problems
        .iter()
        .filter(|problem| problem["kind"] == "missing");
    assert_eq!(missing.count(), 5, "{problems:#?}");
    assert!(
        problems.iter().all(|problem| problem["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains("the run said"))),
        "{problems:#?}"
    );

    // Another run tries them again, and them alone; mended, they are made.
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    assert_eq!(
        (&report["shards_kept"], &report["shards_failed"]),
        (&7.into(), &5.into())
    );
    let good = Fixture::new();
    for path in &poisoned {
        std::fs::copy(
            good.path("main").join(path),
            fixture.path("main").join(path),
        )
        .expect("copy");
    }
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&5.into(), &7.into())
    );
    assert!(fixture.path("out/_SUCCESS").exists());
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
}

#[test]
fn a_shard_that_is_poisonous_from_the_first_does_not_end_the_run() {
    // All shards that are looked at in advance are broken.
    let fixture = Fixture::new();
    for shard in 0..11 {
        std::fs::write(fixture.path("main").join(path(shard)), "garbage").expect("write");
    }
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    assert_eq!(
        (&report["shards_done"], &report["shards_failed"]),
        (&1.into(), &11.into())
    );
    for shard in 11..12 {
        std::fs::write(fixture.path("main").join(path(shard)), "garbage").expect("write");
    }
    let (_, report) = fixture.report(
        fixture
            .worker("run", &fixture.join())
            .argument("--output-prefix")
            .argument(&format!("{}/none", fixture.root())),
        1,
    );
    assert_eq!(
        (&report["shards_done"], &report["shards_failed"]),
        (&0.into(), &12.into())
    );
    assert_eq!(report["failures"].as_array().map(Vec::len), Some(12));
    assert_eq!(report["match_rate"], Value::Null);
}

/// Replaces a main shard by one whose list column has other rows than the footer says: two row
/// groups of `rows` rows, whose lists lie in `records` records of one value each.
fn write_lists(fixture: &Fixture, shard: usize, rows: [usize; 2], records: [usize; 2]) {
    let scratch = |name: &str| fixture.path("scratch").join(name);
    let mut chunks = Vec::new();
    for (number, (rows, records)) in rows.into_iter().zip(records).enumerate() {
        let keys: Vec<String> = (0..rows).map(|row| format!("key {number} {row}")).collect();
        let values = Arc::new(Int32Array::from_iter_values(0..records as i32));
        let item = Arc::new(Field::new("element", DataType::Int32, true));
        let lists = ListArray::new(
            item,
            OffsetBuffer::from_lengths(std::iter::repeat_n(1, records)),
            values,
            None,
        );
        let columns: [(&str, ArrayRef); 2] = [
            ("s3_path", Arc::new(StringArray::from(keys))),
            ("tags", Arc::new(lists)),
        ];
        for (name, array) in columns {
            let file = scratch(&format!("{name}-{number}"));
            write_table(&file, &[(name, array)], 1000).expect("write");
            chunks.push((number, file));
        }
    }
    let open = |file| SerializedFileReader::new(std::fs::File::open(file).expect("open"));
    let types: Vec<_> = chunks[..2]
        .iter()
        .map(|(_, file)| {
            let reader = open(file).expect("a footer");
            reader.metadata().file_metadata().schema().get_fields()[0].clone()
        })
        .collect();
    let schema = parquet::schema::types::Type::group_type_builder("schema")
        .with_fields(types)
        .build()
        .expect("a schema");
    let target = fixture.path("main").join(path(shard));
    let file = std::fs::File::create(target).expect("create");
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).expect("a writer");
    for (number, rows) in rows.into_iter().enumerate() {
        let mut group = writer.next_row_group().expect("a row group");
        for (_, file) in chunks.iter().filter(|(other, _)| *other == number) {
            let reader = open(file).expect("a footer");
            let chunk = reader.metadata().row_group(0).column(0).clone();
            let close = ColumnCloseResult {
                bytes_written: chunk.compressed_size() as u64,
                rows_written: rows as u64,
                metadata: chunk,
                bloom_filter: None,
                column_index: None,
                offset_index: None,
            };
            let source = std::fs::File::open(file).expect("open");
            group.append_column(&source, close).expect("append");
        }
        group.close().expect("close");
    }
    writer.close().expect("close");
}

/// The number of values in a list column says nothing of its rows, and two row groups may make
/// up for one another.
#[test]
fn lists_that_do_not_line_up_cost_their_shard() {
    let fixture = Fixture::new();
    write_lists(&fixture, 0, [8, 8], [8, 8]);
    write_lists(&fixture, 1, [8, 8], [8, 9]);
    write_lists(&fixture, 2, [8, 8], [7, 8]);
    write_lists(&fixture, 3, [8, 8], [9, 7]);
    let copied = fixture.join();
    // Declared under another type, so that it is decoded.
    let decoded = copied.replace(
        "  columns:\n",
        "  columns:\n    - {name: tags, type: list<int64>}\n",
    );
    for (text, output) in [(copied, "copied"), (decoded, "decoded")] {
        let worker = fixture
            .worker("run", &text)
            .argument("--output-prefix")
            .argument(&format!("{}/{output}/", fixture.root()));
        let (_, report) = fixture.report(worker, 1);
        let failures = report["failures"].as_array().expect("a list");
        let mut failed: Vec<&str> = failures
            .iter()
            .filter_map(|failure| failure["path"].as_str())
            .collect();
        failed.sort_unstable();
        let mut expected = [path(1), path(2), path(3)];
        expected.sort();
        assert_eq!(failed, expected, "{output}");
        for failure in failures {
            let reason = failure["reason"].as_str().expect("a reason");
            for words in ["tags", "row group", "8"] {
                assert!(reason.contains(words), "{reason}");
            }
        }
        assert_eq!(report["shards_done"], 9);
    }
}
