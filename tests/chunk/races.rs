//! Pods beside pods, and pods whose operator has lost the prefix.

use std::time::Duration;

use harness::fault_proxy::{Fault, FaultProxy, Rule};
use harness::run_files::{Wanted, hold};
use rustix::process::Signal;
use storage::state::RunId;
use storage::state::report::ChunkState;

use crate::operator::{Operator, SHAPE};
use crate::place::{Place, assert_same_bytes};
use crate::worker::Running;

/// Method and path of the requests that publish shards.
const PUBLISHING: (&str, &str) = ("PUT", "/out/source_");

/// Starts the pod of index 0 behind a proxy that treats all of these requests alike.
fn behind_a_proxy(
    operator: &Operator,
    place: &Place,
    (method, path): (&'static str, &'static str),
    fault: Fault,
) -> (FaultProxy, Running) {
    let proxy = FaultProxy::start(place.server().address(), 6);
    proxy.add(Rule::once(method, path, fault).one_in(1));
    let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
    let pod = operator.pod(0).environment(&endpoint).start();
    (proxy, pod)
}

fn publishes(proxy: &FaultProxy) -> bool {
    let seen = proxy.seen();
    seen.iter().any(|seen| seen.target.contains(PUBLISHING.1))
}

/// A pod is paused just before it publishes; the one that replaces it does the item; then the
/// first goes on. Each shard is there once, and the first finds that its work is done.
#[test]
fn two_pods_of_one_index_make_each_shard_once() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let (proxy, mut first) = behind_a_proxy(&operator, &place, PUBLISHING, Fault::LoseRequest);
    assert!(first.until(|| publishes(&proxy)));
    first.signal(Signal::STOP);
    assert!(place.names("out").is_empty());

    operator.run(0, 0);
    let (shards, lines) = (place.shards("out"), operator.lines(0));
    let report = operator.report(0).expect("a report");
    assert_eq!(shards.len(), 36);
    proxy.clear();
    first.signal(Signal::CONT);
    first.wait().expect(0);

    assert!(place.shards("out") == shards, "a shard has another version");
    assert_eq!(operator.lines(0), lines);
    // Of two that are done the later one's report stays.
    assert_eq!(operator.report(0), Some(report));
    assert_eq!(lines.len(), 36);
    let parts = place.block_on(operator.files.parts()).expect("parts");
    assert_eq!(
        parts.iter().map(|part| part.shards).collect::<Vec<_>>(),
        [36]
    );
    assert_same_bytes(&shards, &place.quiet("quiet"));
}

/// The first is stopped while the second has done everything: what it has not done stays done.
#[test]
fn a_stopped_pod_takes_nothing_from_the_one_that_replaced_it() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let delay = Fault::Delay(Duration::from_millis(200));
    let (_proxy, mut first) = behind_a_proxy(&operator, &place, PUBLISHING, delay);
    assert!(first.until(|| place.names("out").len() >= 2));
    first.signal(Signal::STOP);
    operator.run(0, 0);
    let lines = operator.lines(0);
    assert_eq!(lines.len(), 36);
    // Both are pending when it wakes.
    first.signal(Signal::TERM);
    first.signal(Signal::CONT);
    let ended = first.wait();
    assert!(matches!(ended.code, Some(0 | 143)), "{ended:?}");
    assert_eq!(operator.lines(0).len(), 36);
    assert_eq!(
        operator.report(0).expect("a report").state,
        ChunkState::Done
    );
    assert_same_bytes(&place.shards("out"), &place.quiet("quiet"));
}

/// The operator's prefix goes to another writer while a pod, paused, is about to publish.
#[test]
fn a_pod_publishes_nothing_after_the_lock_is_lost() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let delay = Fault::Delay(Duration::from_secs(3));
    let (_proxy, mut pod) = behind_a_proxy(&operator, &place, ("GET", "/main/source_"), delay);
    assert!(pod.until(|| operator.report(0).is_some()));
    pod.signal(Signal::STOP);
    assert!(place.names("out").is_empty());
    operator.release();
    let other = Wanted {
        holder: Some("tests/other".to_owned()),
        ..Wanted::default()
    };
    let (stores, run) = (place.stores(), RunId::generate());
    let lock = place.block_on(hold(&stores, &place.uri("out"), &run, "other", &other));
    let lock = lock.expect("the prefix is free");
    assert_eq!(lock.epoch(), operator.files.lock.epoch() + 1);
    // Older than any look that a fence trusts.
    std::thread::sleep(storage::state::fence::DEFAULT_MAX_LOOK_AGE);
    let report = operator.report(0);
    pod.signal(Signal::CONT);
    let words = "the writer lock of s3://bucket/out/ was taken over by tests/other";
    pod.wait().expect(4).says(&[words]);
    let message = operator.message();
    assert!(
        message["reason"]
            .as_str()
            .expect("a reason")
            .contains(words)
    );
    assert!(place.names("out").is_empty());
    assert_eq!(operator.report(0), report);
    assert!(operator.lines(0).is_empty());
}

/// The same while shards are published, one after the other: what is begun once the loss is
/// known is given up, and the pod ends though its store takes no more of them.
#[test]
fn a_pod_that_can_not_publish_notices_that_the_lock_is_lost() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let (proxy, mut pod) = behind_a_proxy(&operator, &place, PUBLISHING, Fault::LoseRequest);
    assert!(pod.until(|| publishes(&proxy)));
    operator.release();
    pod.wait().expect(4).says(&["was released or removed"]);
    assert!(place.names("out").is_empty());
    assert!(operator.lines(0).is_empty());
}

/// A pod that comes too late touches nothing.
#[test]
fn a_pod_of_an_earlier_epoch_does_nothing() {
    let place = Place::folder(SHAPE);
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    operator.release();
    let before = place.objects("out");
    operator.run(0, 4).says(&["was released or removed"]);
    let again = Operator::plan(&place, "out");
    again.batch(&[[0, 36]]);
    operator.run(0, 4).says(&["taken over by tests/operator"]);
    again.run(0, 0);
    assert!(before.iter().all(|name| !name.ends_with(".parquet")));
    assert!(operator.report(0).is_none());
}
