//! Which shards a run makes, and which it leaves alone.

use std::os::unix::fs::MetadataExt;

use harness::dataset::{Shape, path};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use serde_json::Value;

use crate::fixture::Fixture;

fn manifest_state(fixture: &Fixture) -> Value {
    let bytes = std::fs::read(fixture.path("out/_sidecar/manifest.json")).expect("a manifest");
    let manifest: Value = serde_json::from_slice(&bytes).expect("JSON");
    manifest["state"].clone()
}

#[test]
fn a_second_run_does_nothing() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let before = fixture.files("out");
    let (ended, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert!(
        ended
            .stdout
            .contains("12 in main: 0 made, 12 there already, 0 failed"),
        "{}",
        ended.stdout
    );
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&0.into(), &12.into())
    );
    let mut after = fixture.files("out");
    // Only the lock knows of it.
    assert_ne!(
        after.remove("_sidecar/writer.json"),
        before.get("_sidecar/writer.json").cloned()
    );
    let mut before = before;
    before.remove("_sidecar/writer.json");
    assert!(before == after);
}

#[test]
fn ten_deleted_shards_and_a_changed_main_shard_are_eleven_to_do() {
    let shape = Shape {
        shards: 30,
        ..Shape::default()
    };
    let fixture = Fixture::of(shape);
    fixture.run(&fixture.full()).expect(0);
    let before = fixture.shards("out");
    let inode = |shard: usize| {
        std::fs::metadata(fixture.path("out").join(path(shard)))
            .expect("a shard")
            .ino()
    };
    let inodes: Vec<u64> = (0..30).map(inode).collect();
    for shard in 0..10 {
        std::fs::remove_file(fixture.path("out").join(path(shard))).expect("remove");
    }
    // Shard 20 gets the rows of another layout: another footer, the same rows.
    let other = Fixture::of(Shape {
        group_rows: 5,
        ..shape
    });
    std::fs::copy(
        other.path("main").join(path(20)),
        fixture.path("main").join(path(20)),
    )
    .expect("copy");

    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(report["shards_done"], 11);
    assert_eq!(report["shards_kept"], 19);
    let redone: u64 = report["shards_redone"]
        .as_object()
        .expect("reasons")
        .values()
        .filter_map(Value::as_u64)
        .sum();
    assert_eq!(redone, 1);
    let after = fixture.shards("out");
    for shard in 0..30 {
        let is_same = before[&path(shard)] == after[&path(shard)];
        assert_eq!(is_same, shard != 20, "shard {shard}");
        if (10..30).contains(&shard) {
            assert_eq!(inode(shard) == inodes[shard], shard != 20, "shard {shard}");
        }
    }
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
    assert!(fixture.path("out/_SUCCESS").exists());
    let again = fixture.run(&fixture.full()).expect(0);
    assert!(
        again.stdout.contains("0 made, 30 there already"),
        "{}",
        again.stdout
    );
}

/// Nothing but the shards themselves is left: their footers tell.
#[test]
fn without_its_records_an_output_is_known_by_its_footers() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let before = fixture.shards("out");
    std::fs::remove_dir_all(fixture.path("out/_sidecar")).expect("remove");
    std::fs::remove_file(fixture.path("out/_SUCCESS")).expect("remove");
    // Cut off by whoever copied it: its bytes prove that it was this shard.
    let cut = &before[&path(6)][..before[&path(6)].len() * 6 / 10];
    std::fs::write(fixture.path("out").join(path(6)), cut).expect("write");
    std::fs::write(fixture.path("out").join(path(7)), "").expect("write");
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&2.into(), &10.into())
    );
    assert_eq!(report["shards_redone"], serde_json::json!({"Torn": 2}));
    assert!(before == fixture.shards("out"));
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
}

/// The footer says how the shard that is there differs from the one that belongs there.
#[test]
fn footers_tell_a_changed_main_shard_and_other_rows() {
    let shape = Shape::default();
    let fixture = Fixture::of(shape);
    fixture.run(&fixture.full()).expect(0);
    std::fs::remove_dir_all(fixture.path("out/_sidecar")).expect("remove");
    let other = Fixture::of(Shape {
        group_rows: 5,
        ..shape
    });
    let changed = fixture.path("main").join(path(3));
    std::fs::copy(other.path("main").join(path(3)), changed).expect("copy");
    // As this tool would write it, but for the last row.
    let short = fixture.path("out").join(path(4));
    let rows = fixture.rows(&format!("out/{}", path(4))).0;
    let file = std::fs::File::open(&short).expect("open");
    let footer = ParquetRecordBatchReaderBuilder::try_new(file).expect("a footer");
    let footer = footer.metadata().file_metadata().clone();
    let properties = WriterProperties::builder()
        .set_created_by(footer.created_by().expect("a writer").to_owned())
        .set_key_value_metadata(footer.key_value_metadata().cloned())
        .build();
    let file = std::fs::File::create(&short).expect("create");
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).expect("a writer");
    writer
        .write(&rows.slice(0, rows.num_rows() - 1))
        .expect("write");
    writer.close().expect("close");

    let (ended, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(
        report["shards_redone"],
        serde_json::json!({"MainChanged": 1, "RowsDiffer": 1})
    );
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&2.into(), &10.into())
    );
    assert!(
        ended.stdout.contains("1 MainChanged, 1 RowsDiffer"),
        "{}",
        ended.stdout
    );
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
}

/// What does not prove to be a piece of this output is nobody's to overwrite.
#[test]
fn what_cannot_be_parsed_and_is_not_ours_is_never_replaced() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let before = fixture.files("out");
    let whole = &fixture.shards("out")[&path(6)];
    let place = fixture.path("out").join(path(6));
    let ours = b"sidecarjob.";
    let provenance = whole.windows(ours.len()).position(|bytes| bytes == ours);
    let columns = &whole[..provenance.expect("our footer") - 16];
    let mut sealed = columns.to_vec();
    sealed.extend(b"PARE");
    let mut strange = columns.to_vec();
    strange.extend(b"\xff\xff\x00\x00PAR1");
    for foreign in [&b"garbage"[..], &sealed, &strange, b"PK\x03\x04 an archive"] {
        std::fs::write(&place, foreign).expect("write");
        let ended = fixture.run(&fixture.full()).expect(2);
        ended.says(&[
            &path(6),
            "is not a sidecar shard of this tool",
            "no shard was touched",
            "--output-prefix",
        ]);
        assert_eq!(std::fs::read(&place).expect("read"), foreign);
    }
    // It might be the beginning of a shard, but is another's: the shard fails.
    let mut torn = whole[..whole.len() / 2].to_vec();
    torn[whole.len() / 3] ^= 1;
    std::fs::write(&place, &torn).expect("write");
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 1);
    let reason = report["failures"][0]["reason"].as_str().expect("a reason");
    for words in [
        &path(6)[..],
        "left as it is",
        "remove it",
        "--output-prefix",
    ] {
        assert!(reason.contains(words), "{words} is not in {reason}");
    }
    assert_eq!(std::fs::read(&place).expect("read"), torn);
    // A footer that was damaged, but still says whose it is.
    let mut damaged = whole.clone();
    let length = damaged.len();
    damaged[length - 8..length - 4].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0x00]);
    std::fs::write(&place, &damaged).expect("write");
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(
        report["shards_redone"],
        serde_json::json!({"Unreadable": 1})
    );
    assert_eq!(&fixture.shards("out")[&path(6)], &before[&path(6)]);
}

/// Of a whole output whose main loses shards the totals are those of what is left.
#[test]
fn totals_follow_a_main_that_loses_shards() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let json = |name: &str| -> Value {
        let bytes = std::fs::read(fixture.path("out").join(name)).expect("a file");
        serde_json::from_slice(&bytes).expect("JSON")
    };
    for shard in [2, 7] {
        std::fs::remove_file(fixture.path("main").join(path(shard))).expect("remove");
        std::fs::remove_file(fixture.path("out").join(path(shard))).expect("remove");
    }
    fixture.run(&fixture.full()).expect(0);
    let totals = &json("_sidecar/manifest.json")["totals"];
    let bytes = fixture.shards("out").values().map(Vec::len).sum::<usize>();
    assert_eq!(
        (&totals["shards"], &totals["rows"], &totals["bytes"]),
        (&10.into(), &200.into(), &bytes.into())
    );
    let success = json("_SUCCESS");
    assert_eq!(
        (&success["shards"], &success["rows"]),
        (&10.into(), &200.into())
    );
    let manifest = std::fs::read(fixture.path("out/_sidecar/manifest.json")).expect("read");
    fixture.run(&fixture.full()).expect(0);
    let again = std::fs::read(fixture.path("out/_sidecar/manifest.json")).expect("read");
    assert!(again == manifest, "nothing has changed, and it was written");
}

#[test]
fn a_run_told_to_redo_makes_the_same_bytes_again() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    let before = fixture.shards("out");
    let worker = fixture
        .worker("run", &fixture.full())
        .argument("--no-skip-existing");
    let (_, report) = fixture.report(worker, 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&12.into(), &0.into())
    );
    assert!(before == fixture.shards("out"));
    assert!(fixture.path("out/_SUCCESS").exists());
    fixture
        .worker("verify", &fixture.full())
        .argument("--all")
        .run()
        .expect(0);
}

#[test]
fn a_selection_makes_part_and_claims_no_more() {
    let fixture = Fixture::new();
    let select = |glob: &str| {
        fixture
            .worker("run", &fixture.full())
            .argument("--select")
            .argument(glob)
    };
    let (_, report) = fixture.report(select("source_a/*"), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_left_out"]),
        (&4.into(), &8.into())
    );
    assert!(
        fixture
            .shards("out")
            .keys()
            .all(|name| name.starts_with("source_a/"))
    );
    assert!(!fixture.path("out/_SUCCESS").exists());
    assert_eq!(manifest_state(&fixture), "incomplete");
    fixture.worker("verify", &fixture.full()).run().expect(3);
    // Without a / it matches names of files.
    let (_, report) = fixture.report(select("000[12].parquet"), 0);
    assert_eq!(report["shards_done"], 2);
    let (ended, report) = fixture.report(select("nothing*"), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_left_out"]),
        (&0.into(), &6.into())
    );
    assert!(ended.stdout.contains("6 not selected"), "{}", ended.stdout);

    let most = |shards: &str| {
        fixture
            .worker("run", &fixture.full())
            .argument("--max-shards")
            .argument(shards)
    };
    let (_, report) = fixture.report(most("2"), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_left_out"]),
        (&2.into(), &4.into())
    );
    assert!(!fixture.path("out/_SUCCESS").exists());
    let (_, report) = fixture.report(most("0"), 0);
    assert_eq!(report["shards_done"], 0);
    assert_eq!(manifest_state(&fixture), "incomplete");

    fixture.run(&fixture.full()).expect(0);
    assert!(fixture.path("out/_SUCCESS").exists());
    assert_eq!(manifest_state(&fixture), "complete");
    let whole = Fixture::new();
    whole.run(&whole.full()).expect(0);
    assert_eq!(whole.shards("out").len(), fixture.shards("out").len());
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
}

#[test]
fn a_whole_output_loses_its_sentinel_when_main_grows_and_part_is_made() {
    let fixture = Fixture::of(Shape {
        shards: 9,
        ..Shape::default()
    });
    fixture.run(&fixture.join()).expect(0);
    let grown = Fixture::of(Shape::default());
    for shard in 9..12 {
        std::fs::copy(
            grown.path("main").join(path(shard)),
            fixture.path("main").join(path(shard)),
        )
        .expect("copy");
    }
    // Seen, but not made: the output is not whole any more.
    let worker = fixture
        .worker("run", &fixture.join())
        .arguments("--max-shards 0");
    worker.run().expect(0);
    assert!(!fixture.path("out/_SUCCESS").exists());
    assert_eq!(manifest_state(&fixture), "incomplete");
    let worker = fixture
        .worker("run", &fixture.join())
        .arguments("--max-shards 1");
    worker.run().expect(0);
    assert!(!fixture.path("out/_SUCCESS").exists());
    assert_eq!(manifest_state(&fixture), "incomplete");
    fixture.run(&fixture.join()).expect(0);
    assert!(fixture.path("out/_SUCCESS").exists());
}

#[test]
fn the_report_has_what_a_pipeline_needs() {
    let fixture = Fixture::new();
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    for (field, value) in [
        ("version", Value::from(1)),
        ("job", "full".into()),
        ("main", format!("{}/main/", fixture.root()).into()),
        ("output", format!("{}/out/", fixture.root()).into()),
        ("output_is_timestamped", false.into()),
        ("shards", 12.into()),
        ("shards_done", 12.into()),
        ("shards_failed", 0.into()),
        ("shards_kept", 0.into()),
        ("shards_left_out", 0.into()),
        ("orphans", 0.into()),
        ("rows", 240.into()),
        ("failures", Value::Array(Vec::new())),
    ] {
        assert_eq!(report[field], value, "{field}");
    }
    assert_eq!(report["digest"].as_str().map(str::len), Some(64));
    assert_eq!(
        report["columns"]["filter_clarity"]["populated"]
            .as_u64()
            .zip(report["columns"]["filter_clarity"]["null"].as_u64())
            .map(|(populated, null)| populated + null),
        Some(240)
    );
    assert!(report["columns"]["caption"]["populated"].as_u64() > Some(0));
    assert!(report["sources"]["source_a"]["matched"].as_u64() > Some(0));
    for path in [
        "/timing/wall_seconds",
        "/requests/get",
        "/requests/put",
        "/passes/rows_read",
    ] {
        assert!(report.pointer(path).is_some_and(Value::is_number), "{path}");
    }
    let bytes: u64 = fixture
        .shards("out")
        .values()
        .map(|bytes| bytes.len() as u64)
        .sum();
    assert_eq!(report["bytes_written"], bytes);
}
