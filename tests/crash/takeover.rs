//! A holder that is paused until its lock has expired, and then goes on as if nothing was.

use std::time::{Duration, Instant};

use harness::dataset::Shape;
use harness::fault_proxy::{Fault, FaultProxy, Rule};
use rustix::process::Signal;

use crate::place::{Place, assert_same_bytes};
use crate::worker::{Ended, Running, Worker};

const SHAPE: Shape = Shape {
    shards: 48,
    rows: 20,
    group_rows: 16,
    image_bytes: 100,
};
const TTL: &str = "2";

fn worker(place: &Place) -> Worker {
    let ttl = [("SIDECARJOB_LOCK_TTL_SECONDS", TTL.to_owned())];
    place
        .worker("run", "out")
        .environment(&ttl)
        .arguments("--threads 1")
}

/// Tries until the lock has expired.
fn take_over(place: &Place) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let ended = worker(place).run();
        if ended.code != Some(4) {
            ended.expect(0);
            return;
        }
        ended.says(&["is being written by shard-worker on "]);
        assert!(Instant::now() < deadline, "the lock does not expire");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Pauses the first, lets a second finish, wakes the first.
fn wake_after_takeover(place: &Place, first: Running) -> Ended {
    assert_eq!(place.lock_field("out", "epoch"), 1);
    take_over(place);
    assert_eq!(place.lock_field("out", "epoch"), 2);
    let after = place.shards("out");
    let sentinel = place.read("out", "_SUCCESS");
    let manifest = place.read("out", "_sidecar/manifest.json");
    assert!(sentinel.is_some());

    first.signal(Signal::CONT);
    let ended = first.wait().expect(4);
    assert!(
        place.shards("out") == after,
        "a shard has another version than before"
    );
    assert_eq!(place.read("out", "_SUCCESS"), sentinel);
    assert_eq!(place.read("out", "_sidecar/manifest.json"), manifest);
    assert_eq!(place.lock_field("out", "epoch"), 2);
    assert_same_bytes(&after, &place.quiet("quiet"));
    ended
}

#[test]
fn a_paused_holder_publishes_nothing_after_it_lost_its_lock_on_s3() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let proxy = FaultProxy::start(place.server().address(), 5);
    let delay = Fault::Delay(Duration::from_millis(400));
    proxy.add(Rule::once("PUT", "/out/source_", delay).one_in(1));
    let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
    let mut first = worker(&place).environment(&endpoint).start();
    assert!(first.until(|| place.names("out").len() >= 3));
    first.signal(Signal::STOP);
    let ended = wake_after_takeover(&place, first);
    ended.says(&[
        "the writer lock of s3://bucket/out/ was ",
        "run again to go on",
    ]);
}

#[test]
fn a_paused_holder_publishes_nothing_after_it_lost_its_lock_on_disk() {
    // A run on disk may end before it can be paused: then again.
    for _ in 0..20 {
        let place = Place::folder(Shape {
            shards: 200,
            ..SHAPE
        });
        let mut first = worker(&place).start();
        let begun = std::path::PathBuf::from(place.root()).join("out/source_a");
        let appeared = first.until(|| begun.exists());
        if !appeared {
            continue;
        }
        first.signal(Signal::STOP);
        let is_done = place.names("out").len() == 200 || place.read("out", "_SUCCESS").is_some();
        if !is_done {
            wake_after_takeover(&place, first).says(&["the writer lock of "]);
            return;
        }
    }
    panic!("no run could be paused before its end");
}

/// Many shards were on their way when it was paused; up to fourteen appeared though the lock was
/// somebody else's by then.
#[test]
fn shards_on_their_way_do_not_appear_once_the_lock_is_lost_on_disk() {
    let mut paused = 0;
    for round in 0..6 {
        let place = Place::folder(Shape {
            shards: 200,
            ..SHAPE
        });
        let ttl = [("SIDECARJOB_LOCK_TTL_SECONDS", TTL.to_owned())];
        let worker = place.worker("run", "out").environment(&ttl);
        let mut first = worker.arguments("--threads 4").start();
        let out = std::path::PathBuf::from(place.root()).join("out/source_a");
        let begun = first.until(|| out.read_dir().is_ok_and(|files| files.count() > 4 * round));
        if !begun {
            continue;
        }
        first.signal(Signal::STOP);
        let before = place.names("out");
        if before.len() == 200 || place.lock_field("out", "state") != "held" {
            continue;
        }
        paused += 1;
        // Somebody takes the lock over once it has expired, and has not made a shard yet.
        let expired = || {
            let text = place.lock_field("out", "expires_at");
            let expires = time::OffsetDateTime::parse(
                text.as_str().expect("a time"),
                &time::format_description::well_known::Rfc3339,
            );
            time::OffsetDateTime::now_utc() > expires.expect("a time")
        };
        assert!(first.until(expired));
        let lock = place.path("out/_sidecar/writer.json");
        let text = std::fs::read_to_string(&lock).expect("a lock");
        let mut taken: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        taken["epoch"] = 2.into();
        taken["holder"]["instance"] = "another".into();
        taken["run"] = "20250601-101500-k3f7qa".into();
        std::fs::write(&lock, taken.to_string()).expect("write");
        let left = |name: &String| name.ends_with(".sidecar-tmp");
        if round % 2 == 0 {
            // It sweeps what the other has left.
            for name in place.objects("out").iter().filter(|name| left(name)) {
                std::fs::remove_file(place.path("out").join(name)).expect("swept");
            }
        }
        let before = place.names("out");
        first.signal(Signal::CONT);
        first.wait().expect(4).says(&["the writer lock of "]);
        assert_eq!(place.names("out"), before, "round {round}");
    }
    assert!(paused > 0, "no run could be paused before its end");
}
