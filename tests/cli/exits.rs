//! Every exit code, reached.

use rustix::process::Signal;

use crate::fixture::Fixture;
use crate::foreign_lock::{self, from_now};
use crate::worker::{Ended, Running, Worker};
use harness::dataset::path;

/// A lock of another machine, from so many seconds ago, with this time to live.
fn hold(fixture: &Fixture, seconds_ago: i64, ttl: i64) {
    let (renewed, expires) = (from_now(-seconds_ago), from_now(ttl - seconds_ago));
    foreign_lock::lay(&fixture.path("out"), &renewed, &expires, 7);
}

fn lock_of(fixture: &Fixture) -> serde_json::Value {
    let bytes = std::fs::read(fixture.path("out/_sidecar/writer.json")).expect("a lock");
    serde_json::from_slice(&bytes).expect("JSON")
}

#[test]
fn zero_when_all_is_done() {
    let fixture = Fixture::new();
    fixture.run(&fixture.full()).expect(0);
    for command in ["verify", "audit"] {
        fixture.worker(command, &fixture.full()).run().expect(0);
    }
    assert_eq!(lock_of(&fixture)["state"], "released");
    for arguments in ["--help", "--version", "run --help"] {
        Worker::new(&[]).arguments(arguments).run().expect(0);
    }
}

#[test]
fn one_when_some_shards_failed() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("main").join(path(4)), "garbage").expect("write");
    fixture.run(&fixture.full()).expect(1);
    assert_eq!(lock_of(&fixture)["state"], "released");
}

#[test]
fn two_for_wrong_usage_before_anything_is_written() {
    let fixture = Fixture::new();
    for arguments in [
        "",
        "run",
        "run --threads 0 x.yaml",
        "run --memory much x.yaml",
        "fly",
        "verify --samples 3 --all x.yaml",
        "run --select [ x.yaml",
    ] {
        Worker::new(&[]).arguments(arguments).run().expect(2);
    }
    let missing = fixture.path("no-such.yaml");
    let ended = Worker::on("run", &missing).run().expect(2);
    ended.says(&["no-such.yaml", "No such file"]);
    let ttl = [("SIDECARJOB_LOCK_TTL_SECONDS", "soon".to_owned())];
    let ended = fixture
        .worker("run", &fixture.join())
        .environment(&ttl)
        .run();
    ended
        .expect(2)
        .says(&["SIDECARJOB_LOCK_TTL_SECONDS", "soon"]);
    assert!(fixture.files("out").is_empty());
}

/// A prefix with a slip of the pen must not look like success.
#[test]
fn two_when_main_has_no_shards() {
    let fixture = Fixture::new();
    let text = fixture.join().replace("/main/", "/mian/");
    let ended = fixture.run(&text).expect(2);
    ended.says(&["/mian/", "no shard"]);
    assert!(!fixture.path("out/_SUCCESS").exists());
    assert_eq!(lock_of(&fixture)["state"], "released");
}

#[test]
fn three_when_the_output_is_not_what_it_should_be() {
    let fixture = Fixture::new();
    fixture.run(&fixture.join()).expect(0);
    std::fs::remove_file(fixture.path("out").join(path(0))).expect("remove");
    fixture.worker("verify", &fixture.join()).run().expect(3);
}

#[test]
fn four_when_another_holds_the_prefix() {
    let fixture = Fixture::new();
    hold(&fixture, 1, 60);
    let before = lock_of(&fixture);
    let ended = fixture.run(&fixture.join()).expect(4);
    ended.says(&[
        "shard-worker on another-machine (pid 4711)",
        "20250601-101500-k3f7qa",
        "epoch 7",
        "/out/",
    ]);
    assert_eq!(lock_of(&fixture), before);
    assert!(fixture.shards("out").is_empty());
    // Looking needs no lock.
    fixture
        .worker("run", &fixture.join())
        .argument("--dry-run")
        .run()
        .expect(0);
}

/// While the prefix is only claimed, nothing but the claim is in it.
#[test]
fn four_when_a_prefix_inside_is_held_before_anything_is_written() {
    let fixture = Fixture::new();
    hold(&fixture, 1, 600);
    std::fs::create_dir_all(fixture.path("out/inside")).expect("a folder");
    std::fs::rename(
        fixture.path("out/_sidecar"),
        fixture.path("out/inside/_sidecar"),
    )
    .expect("rename");
    let ended = fixture.run(&fixture.join()).expect(4);
    ended.says(&["out/inside/", "is being written by", "another-machine"]);
    let files: Vec<String> = fixture.files("out").into_keys().collect();
    assert_eq!(
        files,
        ["_sidecar/writer.json", "inside/_sidecar/writer.json"]
    );
    assert_eq!(lock_of(&fixture)["state"], "released");
}

#[test]
fn five_when_the_store_refuses() {
    let fixture = Fixture::new();
    // Not even root may make a folder there.
    let worker = fixture.worker("run", &fixture.join());
    let ended = worker
        .argument("--output-prefix")
        .argument("/sys/sidecar-out/")
        .run();
    ended
        .expect(5)
        .says(&["/sys/sidecar-out/", "access refused", "check"]);
}

fn catches_sigterm(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 14) != 0)
}

fn terminated(mut running: Running) -> Ended {
    let pid = running.id();
    assert!(running.until(|| catches_sigterm(pid)));
    running.signal(Signal::TERM);
    running.wait().expect(143)
}

/// The lock of a machine that is gone has expired, but is watched for a while before it is
/// taken over; meanwhile the run is asked to stop.
#[test]
fn a_hundred_and_forty_three_when_stopped() {
    let fixture = Fixture::new();
    hold(&fixture, 10, 4);
    let running = fixture.worker("run", &fixture.join()).start();
    terminated(running);
    assert!(fixture.shards("out").is_empty());
    assert!(!fixture.path("out/_SUCCESS").exists());
    let lock = lock_of(&fixture);
    assert_eq!(
        (&lock["state"], &lock["epoch"]),
        (&"released".into(), &8.into())
    );
    fixture.run(&fixture.join()).expect(0);
    assert_eq!(fixture.shards("out").len(), 12);
}

#[test]
fn the_codes_are_in_the_help() {
    let help = Worker::new(&["--help"]).run().expect(0).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    for code in [
        "0 done",
        "1 finished, some shards failed",
        "2 usage or manifest",
        "3 verification failed",
        "4 another writer",
        "5 storage refused",
        "143 stopped",
    ] {
        assert!(help.contains(code), "{code}: {help}");
    }
}
