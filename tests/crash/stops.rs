//! SIGTERM: what is finished is published, the lock is given up, a later run goes on.

use std::time::Duration;

use harness::dataset::Shape;
use harness::fault_proxy::{Fault, FaultProxy, Rule};
use rustix::process::Signal;

use crate::place::{Place, assert_same_bytes};
use crate::worker::{Ended, Running};

const SHAPE: Shape = Shape {
    shards: 60,
    rows: 10,
    group_rows: 16,
    image_bytes: 100,
};

/// A worker whose requests go through a proxy.
fn start(place: &Place, proxy: &FaultProxy, output: &str) -> Running {
    place
        .worker("run", output)
        .environment(&[("AWS_ENDPOINT_URL_S3", proxy.endpoint())])
        .arguments("--threads 1")
        .start()
}

fn slow(method: &'static str, target: &str, milliseconds: u64) -> Rule {
    let delay = Fault::Delay(Duration::from_millis(milliseconds));
    Rule::once(method, target, delay).one_in(1)
}

fn assert_stopped(place: &Place, ended: Ended) -> usize {
    ended.expect(143);
    assert_eq!(place.lock_field("out", "state"), "released");
    assert!(place.read("out", "_SUCCESS").is_none());
    place.names("out").len()
}

#[test]
fn a_stopped_run_publishes_what_is_finished_and_is_resumed() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let proxy = FaultProxy::start(place.server().address(), 1);
    proxy.add(slow("PUT", "/out/source_", 300));
    let mut running = start(&place, &proxy, "out");
    assert!(running.until(|| place.names("out").len() >= 3));
    running.signal(Signal::TERM);
    let published = assert_stopped(&place, running.wait());
    assert!((3..SHAPE.shards).contains(&published), "{published}");

    let report = place.manifest("report.json", "");
    let resumed = place.worker("run", "out").argument("--report");
    resumed
        .argument(&report.display().to_string())
        .run()
        .expect(0);
    let report = std::fs::read(&report).expect("a report");
    let report: serde_json::Value = serde_json::from_slice(&report).expect("JSON");
    // The stopped run vouched for all that it published.
    assert_eq!(report["shards_kept"], published);
    assert_eq!(report["shards_done"], SHAPE.shards - published);
    assert!(place.read("out", "_SUCCESS").is_some());
    assert_same_bytes(&place.shards("out"), &place.quiet("quiet"));
}

/// Stopped while it lists: nothing is planned yet, which must not look like nothing to do.
#[test]
fn a_run_stopped_while_it_plans_does_not_claim_success() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let proxy = FaultProxy::start(place.server().address(), 1);
    proxy.add(slow("GET", "prefix=main", 700));
    let mut running = start(&place, &proxy, "out");
    let lists = || {
        proxy
            .seen()
            .iter()
            .any(|seen| seen.target.contains("prefix=main"))
    };
    assert!(running.until(lists));
    running.signal(Signal::TERM);
    assert_eq!(assert_stopped(&place, running.wait()), 0);

    place.quiet("out");
    let sentinel = place.read("out", "_SUCCESS").expect("a sentinel");
    let manifest = place.read("out", "_sidecar/manifest.json");

    // And takes nothing away from an output that is whole.
    proxy.clear();
    proxy.add(slow("GET", "prefix=main", 700));
    let mut running = start(&place, &proxy, "out");
    assert!(running.until(lists));
    running.signal(Signal::TERM);
    running.wait().expect(143);
    assert_eq!(place.read("out", "_SUCCESS"), Some(sentinel));
    assert_eq!(place.read("out", "_sidecar/manifest.json"), manifest);
    let again = place.run("out").expect(0);
    assert!(
        again.stdout.contains("0 made, 12 there already"),
        "{}",
        again.stdout
    );
}

/// A store that does not answer is tried for minutes; a pod has half of one to end.
#[test]
fn a_stop_ends_in_time_though_the_store_does_not_answer() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let proxy = FaultProxy::start(place.server().address(), 1);
    proxy.add(slow("GET", "prefix=main", 600_000));
    let mut running = start(&place, &proxy, "out");
    assert!(running.until(|| {
        let seen = proxy.seen();
        seen.iter().any(|seen| seen.target.contains("prefix=main"))
    }));
    running.signal(Signal::TERM);
    running.wait().expect(143).says(&["was given up"]);
    assert!(place.names("out").is_empty());
}
