//! The plan: what is new, what is kept, what has changed, and what is refused.

use crds::SidecarJob;
use crds::digest::pipeline_digest;
use rules::model::PlanFacts;
use serde_json::json;
use storage::state::frozen_job;
use storage::state::plan::{ExistingAction, PlanReader, PlanSummary};
use storage::state::sentinel::Sentinel;

use crate::controller::{Controller, DIGEST};
use crate::everywhere;
use crate::place::{Place, file, path, rows, write};
use crate::worker::{Way, work};

everywhere! {
    empty => an_empty_output_is_planned_whole;
    later => a_later_run_plans_what_is_left;
    foreign => foreign_output_is_refused;
    replaced => an_earlier_pipeline_is_replaced;
    nothing => no_shards_are_refused;
    planted => a_manifest_that_reads_elsewhere_is_refused;
    pinned => side_inputs_are_pinned_from_the_frozen_manifest;
}

/// The plan's lines: chunk, path, and what is to be done about what is there.
async fn lines(
    place: &Place,
    controller: &Controller,
) -> Vec<(u64, String, Option<ExistingAction>)> {
    let (output, run) = (place.output(), controller.run());
    let summary = PlanSummary::read(&*output, &run).await.unwrap().unwrap();
    assert_eq!(summary.chunks_per_part, 8192);
    let read = PlanReader::read_range(&*output, &summary, 0..summary.chunks).await;
    let lines = read.unwrap().into_iter();
    lines
        .map(|line| {
            (
                line.chunk,
                line.path,
                line.existing.map(|there| there.action),
            )
        })
        .collect()
}

/// Runs a whole run over what is there: plan, one item, seal.
pub async fn whole_run(place: &Place, controller: &mut Controller, way: Way) {
    controller.held().await;
    let todo = controller.planned().await.todo;
    if todo > 0 {
        controller.start(0, 1, &[(0, todo)]).await.unwrap();
        work(place, controller, (0, 1, 0), way).await;
        controller.ended(0, 1, 1).await;
        assert!(controller.settled(0, 1).await.is_empty());
    }
    controller.sealed().await.unwrap();
    controller.released().await;
}

async fn an_empty_output_is_planned_whole(place: Place) {
    place.make_main(0..40).await;
    let mut controller = Controller::new(&place, "a");
    controller.held().await;
    let plan = controller.planned().await;
    assert_eq!((plan.shards, plan.todo, plan.kept), (40, 40, 0));
    assert!((10.0..=12.0).contains(&plan.rows_per_shard), "{plan:?}");
    let expected: u64 = (0..40)
        .map(|shard| file(rows(shard), None).len() as u64)
        .sum();
    assert_eq!(plan.bytes, expected);
    let lines = lines(&place, &controller).await;
    let mut paths: Vec<String> = (0..40).map(path).collect();
    paths.sort();
    for (number, (line, path)) in lines.iter().zip(paths).enumerate() {
        assert_eq!(*line, (number as u64, path, None));
    }
    let frozen = frozen_job::read(&*place.output(), &controller.run()).await;
    assert_eq!(frozen.unwrap(), controller.hold.manifest);

    // A restart finds the plan, and plans nothing; nor does a manifest that has changed count.
    controller.restart().await;
    controller.hold.manifest.as_mut().unwrap()["spec"]["dataset"]["mainPrefix"] =
        "elsewhere/".into();
    controller.held().await;
    assert_eq!(controller.facts().plan, PlanFacts::Made(plan));
}

async fn a_later_run_plans_what_is_left(place: Place) {
    place.make_main(0..12).await;
    let mut controller = Controller::new(&place, "a");
    let way = Way {
        poison: vec![5],
        ..Way::default()
    };
    whole_run(&place, &mut controller, way).await;
    place.make_main(12..14).await;
    // One changes, one has gone from main and one from the output, and one is somebody's who
    // left no line.
    write(&*place.main(), &path(1), file(99, None)).await;
    place.main().delete(&path(2), None).await.unwrap();
    place.output().delete(&path(3), None).await.unwrap();
    write(&*place.output(), &path(4), file(77, Some(DIGEST))).await;
    controller.next_run();
    controller.held().await;
    let plan = controller.planned().await;
    // 14 in main, less the one that has gone; 12 were made, but for the poison one, and of
    // those 1, 2, 3 and 4 don't count.
    assert_eq!((plan.shards, plan.todo, plan.kept), (13, 6, 7));
    let kept = [0, 6, 7, 8, 9, 10, 11].map(rows).iter().sum::<usize>() as u64;
    assert_eq!((plan.kept_rows, plan.kept_matched), (kept, kept - 7));
    let mut expected = vec![
        (path(1), Some(ExistingAction::Replace)),
        (path(3), None),
        (path(4), Some(ExistingAction::Check)),
        (path(5), None),
        (path(12), None),
        (path(13), None),
    ];
    expected.sort_by(|left, right| left.0.cmp(&right.0));
    let lines: Vec<_> = lines(&place, &controller).await;
    let lines: Vec<_> = lines
        .into_iter()
        .map(|(_, path, there)| (path, there))
        .collect();
    assert_eq!(lines, expected);
}

async fn foreign_output_is_refused(place: Place) {
    place.make_main(0..4).await;
    let mut controller = Controller::new(&place, "a");
    whole_run(&place, &mut controller, Way::default()).await;
    assert!(Sentinel::read(&*place.output()).await.unwrap().is_some());

    // Another pipeline over a recorded output.
    let mut other = Controller::new(&place, "other");
    other.hold.digest = "another".to_owned();
    other.held().await;
    let (reason, message) = other.refused().await;
    assert_eq!(reason, "PrefixConflict");
    assert!(
        message.contains("another pipeline (digest d19e57, this one is another)"),
        "{message}"
    );
    assert!(
        message.contains("choose another output prefix"),
        "{message}"
    );
    let files = place.beside().await;
    assert!(
        files
            .iter()
            .all(|file| !file.contains(&format!("{}/plan", other.hold.run)))
    );
    assert!(
        Sentinel::read(&*place.output()).await.unwrap().is_some(),
        "the output is as it was"
    );
    other.released().await;

    // Something that no pipeline made, and that main knows nothing of.
    controller.next_run();
    write(&*place.output(), "stranger.parquet", file(3, None)).await;
    controller.held().await;
    let (reason, message) = controller.refused().await;
    assert_eq!(reason, "PrefixConflict");
    assert!(
        message.contains("stranger.parquet is no sidecar shard"),
        "{message}"
    );
}

/// Of three pipelines, each in the place of the one before, the last replaces shards of both:
/// the second was stopped before it had replaced all of the first.
async fn an_earlier_pipeline_is_replaced(place: Place) {
    place.make_main(0..3).await;
    let mut controller = Controller::new(&place, "a");
    whole_run(&place, &mut controller, Way::default()).await;
    for (digest, before) in [("second", DIGEST), ("third", "second")] {
        controller.next_run();
        controller.hold.digest = digest.to_owned();
        controller.hold.replaces = vec![before.to_owned()];
        controller.held().await;
        let plan = controller.planned().await;
        assert_eq!((plan.todo, plan.kept), (3, 0));
        let (output, run) = (place.output(), controller.run());
        let summary = PlanSummary::read(&*output, &run).await.unwrap().unwrap();
        assert!(summary.replaces.contains(&before.to_owned()), "{summary:?}");
        let lines = lines(&place, &controller).await;
        let expected = Some(ExistingAction::Replace);
        assert!(
            lines.iter().all(|(_, _, there)| *there == expected),
            "{lines:?}"
        );
        let sentinel = Sentinel::read(&*output).await.unwrap();
        assert_eq!(sentinel, None, "the output isn't whole");
        controller.start(0, 1, &[(0, 1), (1, 3)]).await.unwrap();
        work(&place, &controller, (0, 1, 0), Way::default()).await;
        controller.released().await;
    }
}

async fn no_shards_are_refused(place: Place) {
    write(&*place.main(), "_hidden.parquet", file(1, None)).await;
    let mut controller = Controller::new(&place, "a");
    controller.held().await;
    let (reason, message) = controller.refused().await;
    assert_eq!(reason, "NoShards");
    assert!(message.contains(&place.uri("main/")), "{message}");
}

/// The operator may read more than whoever can write below the output.
async fn a_manifest_that_reads_elsewhere_is_refused(place: Place) {
    place.make_main(0..2).await;
    let mut controller = Controller::new(&place, "a");
    let mut planted = controller.hold.manifest.clone().unwrap();
    planted["spec"]["dataset"]["mainPrefix"] = place.uri("secrets/").into();
    let frozen = frozen_job::freeze(&*place.output(), &controller.run(), &planted).await;
    frozen.unwrap();
    controller.held().await;
    let (reason, message) = controller.refused().await;
    assert_eq!(reason, "PlanImpossible");
    assert!(message.contains(&place.uri("secrets/")), "{message}");
    assert!(message.contains("delete it"), "{message}");
}

/// The spec has changed and the operator begins anew: only the frozen manifest tells what the run
/// looks into, and only if it is the run's.
async fn side_inputs_are_pinned_from_the_frozen_manifest(place: Place) {
    place.make_main(0..2).await;
    let index = place.store("");
    write(&*index, "index.parquet", file(5, None)).await;
    for is_the_runs in [true, false] {
        let mut controller = Controller::new(&place, "a");
        let mut manifest = controller.hold.manifest.take().unwrap();
        let spec = &mut manifest["spec"];
        spec["dataset"]["keyColumn"] = "row".into();
        spec["columns"] = json!([{"name": "score", "type": "float64"}]);
        let join = json!({"source": place.uri("index.parquet"), "columns": ["score"]});
        spec["pipeline"] = json!([{"joinFromParquet": join}]);
        let job: SidecarJob = serde_json::from_value(manifest.clone()).unwrap();
        if is_the_runs {
            controller.hold.digest = pipeline_digest(&job.spec).unwrap();
        }
        let frozen = frozen_job::freeze(&*place.output(), &controller.run(), &manifest).await;
        frozen.unwrap();
        controller.held().await;
        controller.planned().await;
        let plan = PlanSummary::read(&*place.output(), &controller.run()).await;
        let pinned = plan.unwrap().unwrap().side_inputs;
        let found = pinned.map(|inputs| inputs.into_iter().map(|input| input.uri).collect());
        let expected = is_the_runs.then(|| vec![place.uri("index.parquet")]);
        assert_eq!(found, expected);
        controller.released().await;
    }
}
