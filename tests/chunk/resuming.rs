//! Pods that are killed or stopped in the middle of their item.

use std::time::Duration;

use harness::fault_proxy::{Fault, FaultProxy, Rule};
use rustix::process::Signal;
use storage::state::report::ChunkState;
use storage::state::shard_lines::ShardStatus;

use crate::operator::{Operator, SHAPE};
use crate::place::{Place, Shards, assert_same_bytes};
use crate::worker::{Ended, Running};

/// A pod that needs a while for each shard.
fn start_slow(operator: &Operator<'_>, proxy: &FaultProxy, index: u64) -> Running {
    let delay = Fault::Delay(Duration::from_millis(300));
    proxy.add(Rule::once("PUT", "/out/source_", delay).one_in(1));
    operator
        .pod(index)
        .environment(&[("AWS_ENDPOINT_URL_S3", proxy.endpoint())])
        .start()
}

/// Interrupts the only item, and returns how it ended and what was there then.
fn interrupt(place: &Place, operator: &Operator<'_>, signal: Signal) -> (Ended, Shards) {
    let proxy = FaultProxy::start(place.server().address(), 4);
    let mut pod = start_slow(operator, &proxy, 0);
    assert!(pod.until(|| place.names("out").len() >= 3));
    pod.signal(signal);
    let ended = pod.wait();
    drop(proxy);
    let published = place.shards("out");
    assert!((3..36).contains(&published.len()), "{}", published.len());
    (ended, published)
}

/// Runs the index again: what was there stays as it was, and the numbers are those of the item.
fn resume(place: &Place, operator: &Operator<'_>, published: &Shards) {
    operator.run(0, 0);
    let message = operator.message();
    let shards = place.shards("out");
    let changed = published
        .iter()
        .filter(|(name, shard)| shards[*name] != **shard);
    assert_eq!(changed.count(), 0, "shards were made twice");
    let quiet = Operator::plan(place, "quiet");
    quiet.batch(&[[0, 36]]);
    quiet.run(0, 0);
    assert_same_bytes(&shards, &place.shards("quiet"));

    let (report, expected) = (
        operator.report(0).expect("a report"),
        quiet.report(0).expect("one"),
    );
    assert_eq!(report.state, ChunkState::Done);
    let (counts, expected) = (report.counts, expected.counts);
    // One more may have arrived after the pod's end.
    assert!(counts.shards_skipped >= published.len() as u64);
    assert_eq!(counts.shards_done + counts.shards_skipped, 36);
    assert_eq!(
        (counts.rows, counts.matched),
        (expected.rows, expected.matched)
    );
    for (name, expected) in &expected.columns {
        let column = counts.columns[name];
        assert_eq!(
            (column.null, column.populated),
            (expected.null, expected.populated),
            "{name}"
        );
    }
    let lines = operator.lines(0);
    assert_eq!(lines.len(), 36);
    assert_eq!(
        lines.iter().map(|line| line.matched).sum::<u64>(),
        expected.matched
    );
    assert_eq!(message["kept"], counts.shards_skipped);
    assert_eq!(message["matched"], expected.matched);
}

#[test]
fn a_killed_item_is_resumed() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let (ended, published) = interrupt(&place, &operator, Signal::KILL);
    assert_eq!(ended.code, None);
    assert!(operator.lines(0).is_empty());
    let report = operator.report(0).expect("a report from the start on");
    assert_eq!(report.state, ChunkState::Running);
    resume(&place, &operator, &published);
}

#[test]
fn a_stopped_item_says_what_is_done_and_is_resumed() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 36]]);
    let (ended, published) = interrupt(&place, &operator, Signal::TERM);
    ended.expect(143);
    let report = operator.report(0).expect("a report");
    assert_eq!(report.state, ChunkState::Stopped);
    assert_eq!(report.counts.shards_done, published.len() as u64);
    let lines = operator.lines(0);
    assert!(lines.iter().all(|line| line.status == ShardStatus::Done));
    assert!(lines.iter().map(|line| &line.path).eq(published.keys()));
    let message = operator.message();
    assert_eq!(message["done"], published.len());
    assert_eq!(message["reason"], "stopped by a signal");
    resume(&place, &operator, &published);
}

/// The item of a lost index is done by another Job: attempt 2, with that item alone.
#[test]
fn a_lost_item_is_done_in_a_further_attempt() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[0, 4], [4, 36]]);
    operator.run(0, 0);
    let proxy = FaultProxy::start(place.server().address(), 4);
    let mut pod = start_slow(&operator, &proxy, 1);
    assert!(pod.until(|| place.names("out").len() >= 8));
    pod.signal(Signal::KILL);
    assert_eq!(pod.wait().code, None);
    drop(proxy);
    let published = place.names("out").len() as u64;
    operator.attempt(2, &[[4, 36]]);
    operator.pod_of(0, 2, 0).run().expect(0);
    let report = operator.report(4).expect("a report");
    assert_eq!((report.attempt, report.range()), (Some(2), 4..36));
    assert!(report.counts.shards_skipped >= published - 4);
    assert_eq!(report.counts.shards_skipped + report.counts.shards_done, 32);
    assert_eq!((operator.lines(0).len(), operator.lines(4).len()), (4, 32));
    assert_same_bytes(&place.shards("out"), &place.quiet("quiet"));
}
