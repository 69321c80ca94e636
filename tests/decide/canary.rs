//! The canary.

use rules::model::FailureNote;
use serde_json::json;

use crate::scene::{Scene, condition, events};

/// A canary of six of 100 shards, on three workers at most, that has ended.
fn judged(canary: serde_json::Value) -> Scene {
    let mut spec = json!({
        "canary": {"shards": 6},
        "throughput": {"maxWorkers": 3},
    });
    for (key, value) in canary.as_object().expect("an object") {
        spec["canary"][key] = value.clone();
    }
    let mut scene = Scene::planned(100, spec);
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/1 [0-2 49-51 98-100] workers 3 epoch 3 tries 0"]
    );
    assert_eq!(scene.status().phase.as_deref(), Some("Canary"));
    let decision = scene.step();
    assert_eq!(events(&decision), ["CanaryStarted"]);
    scene.finish(0);
    scene
        .facts()
        .progress
        .nulls
        .insert("score".to_owned(), (30, 6 * 512));
    scene
}

#[test]
fn what_is_good_enough_goes_on_once_the_api_server_knows() {
    let mut scene = judged(json!({"minMatchRate": 0.9, "maxNullRate": 0.05}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    assert_eq!(
        condition(scene.status(), "CanaryPassed").as_deref(),
        Some("True CanaryPassed")
    );
    assert_eq!(events(&decision), ["CanaryPassed"]);
    let canary = scene.status().canary.clone().unwrap();
    assert_eq!((canary.shards, canary.passed), (6, Some(true)));
    assert_eq!(canary.shards_per_second_per_worker, Some(1.0));
    assert_eq!(canary.match_rate, Some(0.976563));
    assert_eq!(canary.null_rate, Some(0.009766));

    scene.jobs.clear();
    let decision = scene.act();
    // The rest goes around the canary; 94 shards for three workers.
    assert_eq!(
        scene.actions(&decision),
        [
            "Start 1/1 [2-8 8-15 15-22 22-28 28-35 35-42 42-49 51-57 57-64 64-71] workers 3 epoch 3 \
          tries 0"
        ]
    );
    assert_eq!(scene.status().phase.as_deref(), Some("Running"));
}

#[test]
fn what_is_not_good_enough_stops_before_the_large_spend() {
    for (canary, words) in [
        (
            json!({"minMatchRate": 0.99}),
            "only 97.66% of the rows matched, spec.canary.minMatchRate asks for 99.00%",
        ),
        (
            json!({"maxNullRate": 0.001}),
            "0.98% of the rows have no value in some column, spec.canary.maxNullRate accepts 0.10%",
        ),
    ] {
        let mut scene = judged(canary);
        let decision = scene.step();
        assert_eq!(scene.status().phase.as_deref(), Some("Failed"));
        assert_eq!(
            condition(scene.status(), "CanaryPassed").as_deref(),
            Some("False CanaryRejected")
        );
        assert_eq!(
            condition(scene.status(), "Stalled").as_deref(),
            Some("True CanaryRejected")
        );
        let message = scene.status().message.clone().unwrap();
        assert!(message.contains(words), "{message}");
        assert_eq!(events(&decision), ["CanaryRejected", "CanaryRejected"]);
        scene.jobs.clear();
        let decision = scene.step();
        assert_eq!(scene.actions(&decision), ["Release"]);
    }
}

#[test]
fn a_pipeline_that_looks_nothing_up_has_no_match_rate() {
    let mut scene = judged(json!({"minMatchRate": 0.99}));
    scene.object.spec.pipeline[0].join_from_parquet = None;
    scene.object.spec.pipeline[0].extract_scaffold = Some(crds::ExtractScaffold::default());
    let hash = crds::digest::written_hash(&scene.object.spec);
    let run = scene.object.status.as_mut().unwrap().run.as_mut().unwrap();
    run.spec_hash = Some(hash);
    run.looks_up = Some(false);
    scene.step();
    assert_eq!(scene.status().canary.clone().unwrap().passed, Some(true));
    assert_eq!(scene.status().canary.clone().unwrap().match_rate, None);
}

#[test]
fn a_poison_shard_does_not_stop_the_canary_but_all_of_them_do() {
    let mut scene = judged(json!({}));
    scene.facts().progress.failed = 1;
    scene.facts().progress.done = 5;
    scene.step();
    assert_eq!(scene.status().canary.clone().unwrap().passed, Some(true));

    let mut scene = judged(json!({}));
    scene.facts().progress.done = 0;
    scene.facts().progress.rows = 0;
    scene.facts().progress.nulls.clear();
    scene.facts().progress.failed = 6;
    scene.facts().progress.failures = vec![FailureNote {
        path: "a.parquet".to_owned(),
        reason: "no column key".to_owned(),
    }];
    scene.step();
    let message = scene.status().message.clone().unwrap();
    assert!(
        message.contains("every shard failed, the first: a.parquet: no column key"),
        "{message}"
    );
}

#[test]
fn work_that_can_not_be_done_stops_the_canary() {
    let mut scene = judged(json!({}));
    scene.attempt(0).ended = 0;
    let items = scene.attempt(0).items.clone();
    scene.despair(0, &items, "the index has no column score");
    scene.jobs.clear();
    scene.step();
    let message = scene.status().message.clone().unwrap();
    assert!(
        message.contains("the index has no column score"),
        "{message}"
    );
    assert_eq!(scene.status().phase.as_deref(), Some("Failed"));
}

#[test]
fn a_pause_waits_for_a_person() {
    let mut scene = judged(json!({"pause": true}));
    scene.step();
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Canary",
            "Ready=False PausedAfterCanary",
            "Planned=True Planned",
            "CanaryPassed=True CanaryPassed",
            "OutputLocked=False HeldByThisJob"
        ]
    );
    assert_eq!(events(&decision), ["PausedAfterCanary"]);
    let before = scene.status().clone();
    scene.wait(10_000);
    scene.step();
    assert_eq!(*scene.status(), before);

    scene.apply(json!({"canary": {"pause": false}}));
    let decision = scene.act();
    assert!(scene.actions(&decision)[0].starts_with("Start 1/1"));
}

#[test]
fn a_small_dataset_is_all_canary() {
    let mut scene = Scene::planned(5, json!({"canary": {"shards": 20, "pause": true}}));
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/1 [0-1 1-2 2-3 3-5] workers 4 epoch 3 tries 0"]
    );
    scene.finish(0);
    scene.step();
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Seal"]);
}

#[test]
fn whether_there_is_a_canary_is_settled_with_the_plan() {
    let mut scene = judged(json!({}));
    scene.apply(json!({"canary": {"shards": 0}}));
    scene.step();
    assert_eq!(scene.status().canary.clone().unwrap().passed, Some(true));
}
