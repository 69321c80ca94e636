//! Faults: no panic is silent, and nothing from outside ends in one.

use std::process::{Command, Stdio};

use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataWriter};

use crate::fixture::Fixture;
use crate::foreign_lock;

#[test]
fn a_lock_that_expires_in_the_year_9999_is_one_that_somebody_holds() {
    let fixture = Fixture::new();
    let times = ["9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59-23:59"];
    for expires in times {
        foreign_lock::lay(&fixture.path("out"), "2025-06-01T10:00:00Z", expires, 7);
        let ended = fixture.worker("run", &fixture.join()).run();
        assert_eq!(ended.code, Some(4), "{expires}: {}", ended.stderr);
        assert!(ended.stderr.contains("another-machine"), "{}", ended.stderr);
    }
    // The epoch after the last is no fault, either.
    let past = "2025-06-01T10:00:00Z";
    foreign_lock::lay(&fixture.path("out"), past, past, u64::MAX);
    let ended = fixture.worker("run", &fixture.join()).run();
    assert!(
        matches!(ended.code, Some(0 | 1 | 4)),
        "{:?}: {}",
        ended.code,
        ended.stderr
    );
}

#[test]
fn variables_that_make_no_sense_are_refused_or_passed_over() {
    let fixture = Fixture::new();
    for (name, value, code) in [
        ("SIDECARJOB_LOCK_TTL_SECONDS", "18446744073709551615", 2),
        ("SIDECARJOB_LOCK_TTL_SECONDS", "", 2),
        ("TOKIO_WORKER_THREADS", "none", 0),
        ("RUST_LOG", "=,=", 0),
        ("RUST_MIN_STACK", "x", 0),
    ] {
        let ended = fixture
            .worker("run", &fixture.join())
            .environment(&[(name, value.to_owned())])
            .run();
        assert_eq!(ended.code, Some(code), "{name}: {}", ended.stderr);
    }
}

/// Standard error that takes nothing more: a closed pipe, or a disk that is full.
#[test]
fn words_that_nobody_can_hear_are_no_fault() {
    let fixture = Fixture::new();
    let manifest = fixture.path("job.yaml");
    std::fs::write(&manifest, fixture.join()).expect("write");
    for (format, file) in [("text", "no-such.yaml"), ("json", "no-such.yaml")] {
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("a full disk");
        let status = Command::new(env!("CARGO_BIN_EXE_shard-worker"))
            .args(["--log-format", format, "run", file])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(full)
            .status()
            .expect("the binary starts");
        assert_eq!(status.code(), Some(2), "{format}");
    }
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("a full disk");
    let status = Command::new(env!("CARGO_BIN_EXE_shard-worker"))
        .arg("run")
        .arg(&manifest)
        .env("RUST_LOG", "debug")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(full)
        .status()
        .expect("the binary starts");
    assert_eq!(status.code(), Some(0));
}

/// A footer that claims 2^46 rows, of which the file has some: memory was asked for all of them.
#[test]
fn a_footer_that_claims_too_much_costs_its_shard() {
    let fixture = Fixture::new();
    let shards = fixture.shards("main");
    let first = shards.keys().next().expect("a shard");
    let path = fixture.path("main").join(first);
    let bytes = std::fs::read(&path).expect("a shard");
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&bytes::Bytes::from(bytes.clone()))
        .expect("a footer");
    let rows = 1_i64 << 46;
    let file = metadata.file_metadata();
    let claimed = FileMetaData::new(
        file.version(),
        rows,
        file.created_by().map(str::to_owned),
        None,
        file.schema_descr_ptr(),
        None,
    );
    let mut groups = metadata.row_groups().to_vec();
    groups.truncate(1);
    let group = groups
        .remove(0)
        .into_builder()
        .set_num_rows(rows)
        .build()
        .expect("a group");
    let mut torn = bytes;
    let metadata = ParquetMetaData::new(claimed, vec![group]);
    let writer = ParquetMetaDataWriter::new(&mut torn, &metadata);
    writer.finish().expect("a footer");
    std::fs::write(&path, torn).expect("write");
    let ended = fixture.worker("run", &fixture.join()).run();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
}
