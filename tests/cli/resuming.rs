//! Which shards a run makes, and which it leaves alone.

use std::os::unix::fs::MetadataExt;

use harness::dataset::{Shape, path};
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
    std::fs::write(fixture.path("out").join(path(6)), "garbage").expect("write");
    let (_, report) = fixture.report(fixture.worker("run", &fixture.full()), 0);
    assert_eq!(
        (&report["shards_done"], &report["shards_kept"]),
        (&1.into(), &11.into())
    );
    assert!(before == fixture.shards("out"));
    fixture
        .worker("verify", &fixture.full())
        .arguments("--all --deep")
        .run()
        .expect(0);
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
