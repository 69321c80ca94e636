//! Writers that meet: on one prefix, or on one inside the other's.

use std::time::Duration;

use harness::dataset::Shape;
use harness::fault_proxy::{Fault, FaultProxy, Rule};

use crate::place::{Place, assert_same_bytes};
use crate::worker::{Ended, Running};

/// A worker that needs a while for each shard.
fn start_slow(place: &Place, proxy: &FaultProxy, output: &str) -> Running {
    place
        .worker("run", output)
        .environment(&[("AWS_ENDPOINT_URL_S3", proxy.endpoint())])
        .arguments("--threads 1")
        .start()
}

fn slow_proxy(place: &Place) -> FaultProxy {
    let proxy = FaultProxy::start(place.server().address(), 3);
    let delay = Fault::Delay(Duration::from_millis(1500));
    proxy.add(Rule::once("PUT", "/source_", delay).one_in(1));
    proxy
}

fn place() -> Option<Place> {
    Place::bucket(Shape {
        shards: 36,
        ..Shape::default()
    })
}

/// Lets one hold `held`, and checks that nobody gets `wanted`.
fn refuses_while_held(place: &Place, held: &str, wanted: &str) {
    let proxy = slow_proxy(place);
    let mut holder = start_slow(place, &proxy, held);
    assert!(holder.until(|| !place.names(held).is_empty()));
    let refused = place.run(wanted).expect(4);
    let pid = format!("(pid {})", holder.id());
    let run = place.lock_field(held, "run");
    refused.says(&[
        "is being written by shard-worker on ",
        &pid,
        run.as_str().expect("a run"),
        &place.uri(held),
        "output prefix",
    ]);
    holder.wait().expect(0);
    if wanted != held {
        let left: Vec<String> = place.objects(wanted);
        let is_lock = |name: &String| name.ends_with("_sidecar/writer.json");
        let made: Vec<&String> = left
            .iter()
            .filter(|name| !is_lock(name) && !held.starts_with(wanted))
            .collect();
        assert!(made.is_empty(), "{made:?}");
    }
}

#[test]
fn a_prefix_that_is_written_is_refused_and_the_holder_named() {
    let Some(place) = place() else { return };
    refuses_while_held(&place, "out", "out");
    assert_same_bytes(&place.shards("out"), &place.quiet("quiet"));
}

#[test]
fn a_prefix_inside_one_that_is_written_is_refused() {
    let Some(place) = place() else { return };
    refuses_while_held(&place, "out", "out/inner");
}

#[test]
fn a_prefix_around_one_that_is_written_is_refused() {
    let Some(place) = place() else { return };
    refuses_while_held(&place, "out/inner", "out");
    assert!(place.read("out", "_SUCCESS").is_none());
    assert!(place.read("out/inner", "_SUCCESS").is_some());
}

/// Both start at once; whoever is first holds the prefix for longer than the other looks.
fn race(place: &Place, outputs: [&str; 2]) {
    let proxy = slow_proxy(place);
    let running = outputs.map(|output| start_slow(place, &proxy, output));
    let mut ended: Vec<(Ended, &str)> = running
        .map(Running::wait)
        .into_iter()
        .zip(outputs)
        .collect();
    ended.sort_by_key(|(ended, _)| ended.code);
    let codes: Vec<Option<i32>> = ended.iter().map(|(ended, _)| ended.code).collect();
    let said = |which: usize| &ended[which].0.stderr;
    assert_eq!(codes, [Some(0), Some(4)], "{}\n{}", said(0), said(1));
    assert!(
        said(1).contains("is being written by shard-worker on "),
        "{}",
        said(1)
    );
    let (winner, loser) = (ended[0].1, ended[1].1);
    assert_eq!(place.names(winner).len(), 36, "{winner} against {loser}");
    assert!(place.read(winner, "_SUCCESS").is_some());
    if winner != loser {
        assert!(place.read(loser, "_SUCCESS").is_none());
    }
}

#[test]
fn of_two_writers_that_start_at_once_one_writes() {
    let Some(place) = place() else { return };
    for round in 0..3 {
        let output = format!("race_{round}");
        race(&place, [&output, &output]);
    }
}

#[test]
fn of_two_writers_of_nested_prefixes_that_start_at_once_one_writes() {
    let Some(place) = place() else { return };
    for round in 0..3 {
        let (outer, inner) = (format!("nest_{round}"), format!("nest_{round}/inner"));
        race(&place, [&inner, &outer]);
    }
}

/// The same on a file system: whatever the timing, nobody fails otherwise, and one output
/// comes of it.
#[test]
fn writers_that_start_at_once_on_disk_make_one_output() {
    let place = Place::folder(Shape::default());
    let quiet = place.quiet("quiet");
    for _ in 0..5 {
        place.clear("out");
        let running: Vec<Running> = (0..3).map(|_| place.worker("run", "out").start()).collect();
        let ended: Vec<Ended> = running.into_iter().map(Running::wait).collect();
        // One that comes late finds the others' work done.
        let codes: Vec<Option<i32>> = ended.iter().map(|ended| ended.code).collect();
        assert!(codes.contains(&Some(0)), "{ended:#?}");
        let is_usual = codes.iter().all(|code| matches!(code, Some(0 | 4)));
        assert!(is_usual, "{ended:#?}");
        assert_same_bytes(&place.shards("out"), &quiet);
    }
}
