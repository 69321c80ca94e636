//! Suspended jobs, and those in a queue.

use operator::model::LockFacts;
use serde_json::json;

use crate::scene::{Scene, condition, events};

#[test]
fn nothing_begins_while_a_new_job_is_suspended() {
    let mut scene = Scene::new(json!({"suspend": true}));
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "phase Suspended",
            "Ready=False Suspended",
            "Suspended=True Suspended"
        ]
    );
    assert!(scene.status().run.is_none());
    scene.apply(json!({"suspend": false}));
    let decision = scene.step();
    assert!(scene.status().run.is_some());
    assert_eq!(events(&decision), ["RunStarted"]);
}

#[test]
fn running_jobs_are_suspended_and_resumed() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    scene.apply(json!({"suspend": true}));
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Suspend 0/1",
            "Hold",
            "phase Suspended",
            "Ready=False Suspended",
            "Planned=True Planned",
            "OutputLocked=False HeldByThisJob",
            "Suspended=True Suspended"
        ]
    );
    assert_eq!(events(&decision), ["Suspended"]);
    assert_eq!(scene.status().workers.as_ref().unwrap().desired, 0);
    scene.jobs[0].is_suspended = true;
    scene.jobs[0].is_suspended_by_us = true;
    let before = scene.status().clone();
    scene.wait(100_000);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(*scene.status(), before);

    scene.apply(json!({"suspend": false}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Resume 0/1"]);
    assert_eq!(events(&decision), ["Resumed"]);
    assert_eq!(
        condition(scene.status(), "Suspended").as_deref(),
        Some("False Resumed")
    );
}

#[test]
fn a_suspended_job_neither_plans_nor_starts_nor_seals() {
    let mut scene = Scene::held(json!({}));
    scene.apply(json!({"suspend": true}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());

    let mut scene = Scene::planned(100, json!({}));
    scene.apply(json!({"suspend": true}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());

    let mut scene = Scene::planned(0, json!({}));
    scene.apply(json!({"suspend": true}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
}

#[test]
fn a_suspended_job_shows_who_holds_the_output() {
    let mut scene = Scene::held(json!({}));
    scene.apply(json!({"suspend": true}));
    scene.facts().lock = LockFacts::Waiting {
        holder: "team/other".to_owned(),
    };
    scene.step();
    assert_eq!(scene.status().phase.as_deref(), Some("Suspended"));
    assert_eq!(
        condition(scene.status(), "OutputLocked").as_deref(),
        Some("True HeldByAnother")
    );
}

#[test]
fn a_queue_owns_suspend() {
    let mut scene = Scene::planned(100, json!({"queue": "team-queue"}));
    let decision = scene.act();
    let operator::model::Action::Start { job, .. } = &decision.actions[1] else {
        panic!("{decision:?}");
    };
    assert_eq!(job.spec.as_ref().unwrap().suspend, Some(true));
    let labels = job.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["kueue.x-k8s.io/queue-name"], "team-queue");
    assert!(scene.jobs[0].queue.is_some() && scene.jobs[0].is_suspended);

    // The queue has not let it in: nobody else does.
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(scene.status().batches[0].state.as_deref(), Some("Waiting"));

    // Nor is its parallelism changed once it runs.
    scene.jobs[0].is_suspended = false;
    scene.apply(json!({"throughput": {"maxWorkers": 2}}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
}

#[test]
fn a_queued_job_is_taken_away_while_suspended_and_that_costs_no_tries() {
    let mut scene = Scene::planned(
        8,
        json!({"queue": "team-queue", "failurePolicy": {"retriesPerChunk": 0}}),
    );
    scene.act();
    scene.jobs[0].is_suspended = false;
    scene.attempt(0).was_seen = true;
    scene.apply(json!({"suspend": true}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Settle 0/1"]);
    assert_eq!(
        scene.status().batches[0].state.as_deref(),
        Some("Suspended")
    );

    scene.apply(json!({"suspend": false}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Settle 0/1"]);
    scene.lose(0, &[(0, 1), (1, 2)]);
    let decision = scene.act();
    let start = format!(
        "Start 0/2 [0-1 1-2] workers 2 epoch 3 tries 0 after {}",
        scene.name(0, 1)
    );
    assert_eq!(scene.actions(&decision)[0], start);
}
