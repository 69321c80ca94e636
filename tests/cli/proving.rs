//! `verify` and `audit`.

use std::collections::BTreeSet;
use std::path::Path;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use harness::dataset::path;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use serde_json::Value;

use crate::fixture::{Fixture, rows_of};

/// Writes a sidecar anew with these of its rows, and all that its footer said.
fn rewrite(path: &Path, rows: &[u32]) {
    let file = std::fs::File::open(path).expect("open");
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).expect("a footer");
    let metadata = builder.metadata().file_metadata();
    let pairs = metadata.key_value_metadata().cloned();
    let pairs = pairs.map(|pairs| {
        pairs
            .into_iter()
            .filter(|pair| pair.key != "ARROW:schema")
            .collect()
    });
    let created_by = metadata.created_by().unwrap_or_default().to_owned();
    let properties = WriterProperties::builder()
        .set_key_value_metadata(pairs)
        .set_created_by(created_by)
        .build();
    let batch: RecordBatch = rows_of(path).0;
    let taken = take_record_batch(&batch, &UInt32Array::from(rows.to_vec())).expect("rows");
    let output = std::fs::File::create(path).expect("create");
    let mut writer =
        ArrowWriter::try_new(output, taken.schema(), Some(properties)).expect("a writer");
    writer.write(&taken).expect("write");
    writer.close().expect("close");
}

fn kinds(report: &Value, path: &str) -> BTreeSet<String> {
    let problems = report["problems"].as_array().expect("a list");
    let of_path = problems.iter().filter(|problem| problem["path"] == path);
    of_path
        .filter_map(|problem| problem["kind"].as_str())
        .map(str::to_owned)
        .collect()
}

fn flip(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = std::fs::read(path).expect("read");
    let at = at(bytes.len());
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).expect("write");
}

#[test]
fn a_good_output_is_verified() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    for (flags, looked_into, deep) in [
        ("", 12, false),
        ("--all", 12, false),
        ("--all --deep", 12, true),
        ("--samples 3", 3, false),
    ] {
        let (ended, report) = fixture.report(
            fixture.worker("verify", &fixture.full()).arguments(flags),
            0,
        );
        assert_eq!(
            (&report["shards"], &report["looked_into"], &report["deep"]),
            (&12.into(), &looked_into.into(), &deep.into()),
            "{flags}"
        );
        assert_eq!(report["problems"], Value::Array(Vec::new()));
        assert_eq!(report["without_hash"], 0);
        assert!(ended.stdout.contains("aligned"), "{}", ended.stdout);
    }
}

#[test]
fn everything_that_is_wrong_is_found_and_listed() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let out = |shard: usize| fixture.path("out").join(path(shard));
    std::fs::remove_file(out(0)).expect("remove");
    let orphan = "source_a/9999.parquet";
    std::fs::copy(out(3), fixture.path("out").join(orphan)).expect("copy");
    let mut swapped: Vec<u32> = (0..20).collect();
    swapped.swap(11, 12);
    rewrite(&out(1), &swapped);
    flip(&out(2), |length| length / 3);
    rewrite(&out(3), &(0..19).collect::<Vec<u32>>());
    let whole = std::fs::read(out(4)).expect("read");
    std::fs::write(out(4), &whole[..whole.len() - 9]).expect("write");
    std::fs::copy(fixture.path("main").join(path(5)), out(5)).expect("copy");
    std::fs::copy(out(9), out(6)).expect("copy");

    for flags in ["--all --deep", "--all"] {
        let worker = fixture.worker("verify", &fixture.full()).arguments(flags);
        let (ended, report) = fixture.report(worker, 3);
        for (at, kind) in [
            (path(0).as_str(), "missing"),
            (orphan, "orphan"),
            (&path(1), "order"),
            (&path(2), "content"),
            (&path(3), "rows"),
            (&path(4), "unreadable"),
            (&path(5), "provenance"),
            (&path(5), "schema"),
            (&path(6), "order"),
        ] {
            let found = kinds(&report, at);
            assert!(
                found.contains(kind),
                "{flags}: {at} is {found:?}, expected {kind}"
            );
            assert!(ended.stdout.contains(at), "{at} is not in {}", ended.stdout);
        }
        let swapped = report["problems"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|problem| problem["path"] == path(1).as_str() && problem["kind"] == "order");
        let detail = swapped
            .and_then(|problem| problem["detail"].as_str())
            .unwrap_or_default();
        assert!(detail.contains("row 11"), "{detail}");
        for shard in 7..12 {
            assert!(kinds(&report, &path(shard)).is_empty(), "shard {shard}");
        }
        assert!(ended.stdout.contains("NOT VERIFIED"), "{}", ended.stdout);
    }
    // The set is checked whole, whatever the samples.
    let (_, report) = fixture.report(
        fixture
            .worker("verify", &fixture.full())
            .arguments("--samples 1"),
        3,
    );
    assert!(kinds(&report, &path(0)).contains("missing"));
    assert!(kinds(&report, orphan).contains("orphan"));
}

/// Every byte between the magic numbers, a few at a time.
#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let shard = fixture.path("out").join(path(7));
    let good = std::fs::read(&shard).expect("read");
    for part in 0..8 {
        flip(&shard, |length| length * part / 8 + part);
        let (_, report) = fixture.report(
            fixture
                .worker("verify", &fixture.full())
                .arguments("--all --deep"),
            3,
        );
        let found = kinds(&report, &path(7));
        assert!(!found.is_empty(), "part {part}");
        let problems = report["problems"].as_array().expect("a list");
        assert!(
            problems
                .iter()
                .all(|problem| problem["path"] == path(7).as_str()),
            "{problems:#?}"
        );
        std::fs::write(&shard, &good).expect("write");
    }
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
}

#[test]
fn an_output_of_another_pipeline_is_not_verified() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let other = fixture.full().replace("mode: Always", "mode: IfNull");
    let (ended, report) = fixture.report(fixture.worker("verify", &other).argument("--all"), 3);
    for shard in 0..12 {
        assert!(
            kinds(&report, &path(shard)).contains("provenance"),
            "shard {shard}"
        );
    }
    assert!(
        ended.stdout.contains("12 provenance") && ended.stdout.contains("digest"),
        "{}",
        ended.stdout
    );
}

#[test]
fn a_main_shard_that_changed_since_is_found() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let other = Fixture::of(harness::dataset::Shape {
        group_rows: 5,
        ..harness::dataset::Shape::default()
    });
    std::fs::copy(
        other.path("main").join(path(8)),
        fixture.path("main").join(path(8)),
    )
    .expect("copy");
    let (_, report) = fixture.report(
        fixture.worker("verify", &fixture.full()).argument("--all"),
        3,
    );
    assert!(
        kinds(&report, &path(8)).contains("provenance"),
        "{report:#?}"
    );
}

#[test]
fn an_audit_points_at_what_matches_nothing() {
    let fixture = Fixture::new();
    fixture.run(&fixture.join()).expect(0);
    let (ended, report) = fixture.report(fixture.worker("audit", &fixture.join()), 0);
    assert_eq!(
        (&report["shards"], &report["rows"]),
        (&12.into(), &240.into())
    );
    let unmatched = report["unmatched_prefixes"].as_array().expect("a list");
    assert!(!unmatched.is_empty());
    for prefix in unmatched {
        let prefix = prefix.as_str().expect("a prefix");
        assert!(prefix.starts_with("s3://photos/source_c/"), "{prefix}");
        assert!(ended.stdout.contains(prefix));
    }
    assert!(
        ended.stdout.contains("matches nothing") && ended.stdout.contains("dataset.sources"),
        "{}",
        ended.stdout
    );
    // Rates per source: those of the dataset's own numbers.
    for (number, source) in harness::dataset::SOURCES.iter().enumerate().take(2) {
        let rows = (number..12)
            .step_by(3)
            .flat_map(|shard| (0..20).map(move |row| (shard, row)));
        let with_key = rows.filter(|(shard, row)| harness::dataset::key(*shard, *row).is_some());
        let (mut count, mut matched) = (0, 0);
        for (shard, row) in with_key {
            count += 1;
            matched += u64::from(harness::dataset::file_size(shard, row).is_some());
        }
        assert_eq!(
            (
                &report["sources"][source]["rows"],
                &report["sources"][source]["matched"]
            ),
            (&count.into(), &matched.into()),
            "{source}"
        );
    }
    let matched = report["matched"].as_u64().expect("a count");
    assert_eq!(report["columns"]["file_size"]["populated"], matched);
    assert_eq!(report["columns"]["file_size"]["null"], 240 - matched);

    let (ended, report) = fixture.report(
        fixture
            .worker("audit", &fixture.join())
            .argument("--threads")
            .argument("1"),
        0,
    );
    assert!(ended.stdout.contains("source_a"));
    assert!(report["null_keys"].as_u64() > Some(0));
}

/// Rows without a score say why.
#[test]
fn an_audit_counts_errors_of_structs() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let (_, report) = fixture.report(fixture.worker("audit", &fixture.full()), 0);
    let errors = (0..12)
        .filter(|shard| harness::dataset::has_scores(*shard))
        .flat_map(|shard| (0..20).map(move |row| (shard, row)));
    let errors = errors
        .filter(|(shard, row)| harness::dataset::raw_score(*shard, *row).is_none())
        .count();
    assert_eq!(report["columns"]["score_aes"]["error"], errors);
}
