//! Work items that nothing disturbs.

use harness::dataset::{Shape, full_job, join_job, path};
use harness::run_files::Wanted;
use storage::state::layout;
use storage::state::report::ChunkState;
use storage::state::shard_lines::ShardStatus;

use crate::operator::{Operator, SHAPE};
use crate::place::{Place, assert_same_bytes};
use crate::worker::Worker;

fn items_make_what_a_run_makes(place: &Place) {
    let quiet = place.quiet("quiet");
    let operator = Operator::plan(place, "out");
    assert_eq!(operator.files.plan.chunks, 36);
    operator.batch(&[[0, 10], [10, 11], [11, 36]]);
    let index = [("JOB_COMPLETION_INDEX", "0".to_owned())];
    let named = operator.pod(1).run().expect(0);
    assert!(
        named.stdout.contains("\"item\":[10,11]"),
        "{}",
        named.stdout
    );
    operator.run(2, 0);
    // The index as a pod has it.
    let mut arguments = operator.files.arguments(0, 1, 0);
    arguments.truncate(arguments.len() - 2);
    let pod = Worker::new(&["chunk"])
        .environment(&place.environment())
        .environment(&index);
    let pod = arguments.iter().fold(pod, |pod, text| pod.argument(text));
    pod.run().expect(0);

    assert_same_bytes(&place.shards("out"), &quiet);
    let (mut rows, mut matched) = (0, 0);
    for (first, end) in [(0, 10), (10, 11), (11, 36)] {
        let report = operator.report(first).expect("a report");
        let counts = &report.counts;
        assert_eq!((report.range(), report.attempt), (first..end, Some(1)));
        assert_eq!(report.state, ChunkState::Done);
        assert_eq!(report.shards_planned, end - first);
        assert_eq!(
            (
                counts.shards_done,
                counts.shards_failed,
                counts.shards_skipped
            ),
            (end - first, 0, 0)
        );
        assert!(counts.seconds.start > 0.0);
        let lines = operator.lines(first);
        assert_eq!(lines.len() as u64, end - first);
        assert!(lines.iter().all(|line| line.status == ShardStatus::Done));
        assert_eq!(
            lines.iter().map(|line| line.matched).sum::<u64>(),
            counts.matched
        );
        rows += counts.rows;
        matched += counts.matched;
    }
    assert_eq!(rows, 36 * 20);
    let message = operator.message();
    assert_eq!(message["item"], serde_json::json!([11, 36]));
    assert_eq!(
        (&message["done"], &message["kept"]),
        (&25.into(), &0.into())
    );
    assert!(
        message["seconds"]["start"]
            .as_f64()
            .is_some_and(|start| start > 0.0)
    );
    assert_eq!(message["reason"], serde_json::Value::Null);

    // The lines are parts of a manifest: whoever comes next has nothing to do.
    let parts = place.block_on(operator.files.parts()).expect("parts");
    assert_eq!(parts.iter().map(|part| part.shards).sum::<u64>(), 36);
    operator.release();
    let next = place.run("out").expect(0);
    assert!(
        next.stdout.contains("0 made, 36 there already, 0 failed"),
        "{}",
        next.stdout
    );
    let manifest = place
        .read("out", "_sidecar/manifest.json")
        .expect("a manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    assert_eq!(manifest["totals"]["matched"], matched);
    place
        .worker("verify", "out")
        .arguments("--all --deep")
        .run()
        .expect(0);
}

#[test]
fn items_make_what_a_run_makes_on_disk() {
    items_make_what_a_run_makes(&Place::folder(SHAPE));
}

#[test]
fn items_make_what_a_run_makes_on_s3() {
    let Some(place) = Place::bucket(SHAPE) else {
        return;
    };
    items_make_what_a_run_makes(&place);
}

/// An item that was done is done at once when its index is run again.
#[test]
fn a_finished_item_is_left_alone() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let operator = Operator::plan(&place, "out");
    operator.batch(&[[2, 9]]);
    operator.run(0, 0);
    let (shards, lines, report) = (place.shards("out"), operator.lines(2), operator.report(2));
    operator.run(0, 0);
    assert!(place.shards("out") == shards, "a shard has another version");
    assert_eq!(operator.lines(2), lines);
    let message = operator.message();
    assert_eq!((&message["done"], &message["kept"]), (&0.into(), &7.into()));
    let (before, after) = (
        report.expect("a report"),
        operator.report(2).expect("a report"),
    );
    assert_eq!(after.state, ChunkState::Done);
    assert_eq!(
        (after.counts.rows, after.counts.matched),
        (before.counts.rows, before.counts.matched)
    );
    for (column, counts) in &before.counts.columns {
        let again = after.counts.columns[column];
        assert_eq!(
            (again.null, again.populated),
            (counts.null, counts.populated),
            "{column}"
        );
    }
}

/// A changed pipeline over an earlier output: what the plan replaces is made again, and a
/// worker that is killed meanwhile doesn't make it twice.
#[test]
fn shards_of_a_replaced_pipeline_are_made_again() {
    let place = Place::folder(Shape::default());
    let text = join_job(&place.root(), &place.uri("out"));
    let old = Operator::plan_job(&place, "out", &text, Wanted::default());
    old.batch(&[[0, 12]]);
    old.run(0, 0);
    old.release();
    let before = place.shards("out");

    let replaces = vec![old.files.digest.clone()];
    let wanted = Wanted {
        replaces,
        ..Wanted::default()
    };
    let text = full_job(&place.root(), &place.uri("out"));
    let new = Operator::plan_job(&place, "out", &text, wanted);
    assert_eq!(new.files.plan.chunks, 12);
    new.batch(&[[0, 6], [6, 12]]);
    new.run(0, 0);
    let half = place.shards("out");
    assert_eq!(
        half.iter()
            .filter(|(name, shard)| before[*name] == **shard)
            .count(),
        6
    );
    // As after a kill: no lines.
    place.delete("out", &new.files.lines_key(0));
    new.run(0, 0);
    assert_eq!(new.message()["kept"], 6);
    assert!(place.shards("out") == half, "a shard was made twice");
    new.run(1, 0);
    assert_same_bytes(&place.shards("out"), &place.quiet("quiet"));
}

/// What an operator has begun to replace, the command line goes on replacing: also where the main
/// shard of an old shard has gone, and though the manifest still names parts of the old pipeline.
#[test]
fn the_command_line_goes_on_where_an_operator_replaced_a_pipeline() {
    let place = Place::folder(Shape::default());
    let old = join_job(&place.root(), &place.uri("out"));
    let old = place.manifest("old.yaml", &old);
    let run_old = || Worker::on("run", &old).run();
    run_old().expect(0);

    let digest = place.lock_field("out", "digest");
    let wanted = Wanted {
        replaces: vec![digest.as_str().expect("a digest").to_owned()],
        ..Wanted::default()
    };
    let new = Operator::plan_job(&place, "out", &text_of(&place, "out"), wanted);
    assert_ne!(new.files.digest, digest);
    new.batch(&[[0, 6], [6, 12]]);
    new.run(0, 0);
    new.release();

    let gone = place.path("main").join(path(9));
    std::fs::remove_file(&gone).expect("remove");
    place.run("out").expect(0);
    let mut made = place.shards("out");
    made.retain(|name, _| *name != path(9));
    assert_same_bytes(&made, &place.quiet("quiet"));
    // Nothing that the seal has left behind comes back.
    let manifest = place.read("out", layout::MANIFEST).expect("a manifest");
    place.run("out").expect(0);
    assert!(place.read("out", layout::MANIFEST) == Some(manifest));
    // The other way round nobody has allowed it.
    run_old().expect(2).says(&["was made by another pipeline"]);
}

fn text_of(place: &Place, output: &str) -> String {
    full_job(&place.root(), &place.uri(output))
}
