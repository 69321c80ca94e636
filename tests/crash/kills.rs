//! SIGKILL at random moments, then one run that goes on to the end.

use std::time::{Duration, Instant};

use harness::dataset::{Shape, mix};
use rustix::process::Signal;

use crate::place::{Place, assert_same_bytes};
use crate::reader::Reader;

const SHAPE: Shape = Shape {
    shards: 60,
    rows: 40,
    group_rows: 16,
    image_bytes: 200,
};

/// Kills a run: at a moment between its start and its likely end, or soon after so many more
/// shards have appeared.
fn kill_one(place: &Place, random: impl Fn(u64) -> u64, likely: Duration) -> bool {
    let before = place.names("out").len();
    let more = random(1) as usize % 5;
    let moment = likely * (random(2) % 1000) as u32 / 1000;
    let pause = Duration::from_micros(random(3) % 20_000);
    let started = Instant::now();
    let mut running = place
        .worker("run", "out")
        .arguments("--threads 2 --memory 256MiB")
        .start();
    let hit = running.until(|| match more {
        0 => started.elapsed() >= moment,
        more => place.names("out").len() >= before + more,
    });
    if hit {
        std::thread::sleep(pause);
        running.signal(Signal::KILL);
    }
    let ended = running.wait();
    match ended.code {
        None => true,
        Some(0) => false,
        Some(code) => panic!("exit code {code}: {}", ended.stderr),
    }
}

fn kill_and_resume(place: &Place, rounds: usize, seed: u64) {
    let begun = Instant::now();
    let quiet = place.quiet("quiet");
    let likely = begun.elapsed();
    assert_eq!(quiet.len(), SHAPE.shards);

    let reader = Reader::start(place.store("out"));
    let (mut killed, mut attempts) = (0, 0);
    while killed < rounds {
        attempts += 1;
        assert!(
            attempts < rounds * 5,
            "most runs end before they are killed"
        );
        let random = |salt| mix(attempts, salt as usize, seed);
        killed += usize::from(kill_one(place, random, likely));
        // Nothing is left to be killed at: begin anew.
        let is_whole = place.names("out").len() == SHAPE.shards;
        if is_whole && killed < rounds {
            place.clear("out");
        }
    }
    if place.read("out", "_SUCCESS").is_some() {
        place.clear("out");
    }
    place.run("out").expect(0);
    let read = reader.finish();

    assert_same_bytes(&place.shards("out"), &quiet);
    assert!(read >= SHAPE.shards, "{read}");
    assert!(place.read("out", "_SUCCESS").is_some());
    let leftovers: Vec<String> = place
        .objects("out")
        .into_iter()
        .filter(|name| {
            let is_state = name.starts_with("_sidecar/")
                && (name.ends_with(".json") || name.ends_with(".jsonl.zst"));
            let file = name.rsplit('/').next().unwrap_or(name);
            file.starts_with('.') || !(is_state || name == "_SUCCESS" || name.ends_with(".parquet"))
        })
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
    let verified = place
        .worker("verify", "out")
        .arguments("--all --deep")
        .run();
    verified.expect(0);
    let again = place.run("out").expect(0);
    assert!(
        again.stdout.contains("0 made, 60 there already, 0 failed"),
        "{}",
        again.stdout
    );
}

#[test]
fn killed_runs_leave_nothing_visible_and_are_resumed_on_disk() {
    kill_and_resume(&Place::folder(SHAPE), 20, 11);
}

#[test]
fn killed_runs_leave_nothing_visible_and_are_resumed_on_s3() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    kill_and_resume(&place, 5, 12);
}

/// Killed between the last shard and the sentinel: no shard is left to do, and what the dead
/// writer left is swept all the same.
#[test]
fn temporary_files_are_swept_when_only_the_seal_is_missing() {
    let place = Place::folder(Shape::default());
    place.quiet("out");
    let folder = std::path::PathBuf::from(place.root()).join("out");
    std::fs::remove_file(folder.join("_SUCCESS")).expect("remove");
    std::fs::remove_file(folder.join("_sidecar/manifest.json")).expect("remove");
    let left = folder.join("_sidecar/.manifest.json.0123456789abcdef.sidecar-tmp");
    std::fs::write(&left, "half a mani").expect("write");
    place.run("out").expect(0);
    assert!(place.read("out", "_SUCCESS").is_some());
    assert!(!left.exists(), "{}", left.display());
}
