//! Suspended jobs, and those in a queue.

use rules::decide::stop;
use rules::model::{LockFacts, Refusal, Trouble};
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
    let rules::model::Action::Start { job, .. } = &decision.actions[1] else {
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

/// Jobs stop by what is seen of them: after a restart nothing else is known, and the store, the
/// Secret or the lock may be out of reach for as long as they like.
#[test]
fn jobs_are_suspended_whatever_else_is_in_the_way() {
    type Obstacle = fn(&mut Scene);
    let obstacles: [Obstacle; 4] = [
        |scene| scene.facts = None,
        |scene| scene.facts().lock = LockFacts::Acquiring,
        |scene| scene.facts().batches_loaded = false,
        |scene| {
            scene.refusal = Some(Refusal {
                reason: "SecretNotFound",
                message: "there is no Secret".to_owned(),
            });
        },
    ];
    for obstacle in obstacles {
        let mut scene = Scene::planned(100, json!({}));
        scene.act();
        scene.step();
        scene.apply(json!({"suspend": true}));
        obstacle(&mut scene);
        assert_eq!(stop(&scene.observed()).len(), 1);
        let decision = scene.step();
        assert_eq!(scene.actions(&decision), ["Suspend 0/1"]);
        let first = &decision.actions[0];
        let is_first = matches!(first, rules::model::Action::Suspend { suspend: true, .. });
        assert!(is_first, "{first:?}");
        assert_eq!(
            condition(scene.status(), "Suspended").as_deref(),
            Some("True Suspended")
        );
        scene.jobs[0].is_suspended = true;
        assert!(stop(&scene.observed()).is_empty());
    }
}

#[test]
fn what_could_not_be_suspended_is_not_called_suspended() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    scene.apply(json!({"suspend": true}));
    scene.trouble = Some(Trouble {
        reason: "ApiError",
        message: "can't suspend the Job: the server is down".to_owned(),
    });
    scene.fail();
    assert_eq!(condition(scene.status(), "Suspended"), None);
    let status = scene.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let message = status.message.as_deref().unwrap();
    assert!(message.contains("the server is down"), "{message}");
    scene.trouble = None;
    scene.step();
    assert_eq!(scene.status().phase.as_deref(), Some("Suspended"));

    // Nor is it called resumed while that can't be done.
    scene.jobs[0].is_suspended = true;
    scene.jobs[0].is_suspended_by_us = true;
    scene.apply(json!({"suspend": false}));
    let decision = scene.fail();
    assert!(events(&decision).is_empty(), "{:?}", decision.events);
    assert_eq!(
        condition(scene.status(), "Suspended").as_deref(),
        Some("True Suspended")
    );
}

/// Kueue suspends Jobs without a queue's name, too, if it is told to manage them.
#[test]
fn a_job_that_somebody_else_suspended_is_left_to_them() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    scene.jobs[0].is_suspended = true;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(
        condition(scene.status(), "Queued").as_deref(),
        Some("True SuspendedByAnother")
    );
    assert_eq!(events(&decision), ["SuspendedByAnother"]);
    let message = scene.status().message.as_deref().unwrap();
    assert!(message.contains("something else"), "{message}");

    scene.jobs[0].is_suspended = false;
    let decision = scene.step();
    assert_eq!(events(&decision), ["Admitted"]);
    assert_eq!(
        condition(scene.status(), "Queued").as_deref(),
        Some("False Admitted")
    );
}

/// The version before this one left no mark on the Jobs that it suspended.
#[test]
fn a_job_that_an_earlier_version_suspended_is_resumed() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    scene.apply(json!({"suspend": true}));
    scene.step();
    scene.jobs[0].is_suspended = true;
    scene.apply(json!({"suspend": false}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Resume 0/1"]);
}

#[test]
fn what_waits_in_a_queue_says_so_in_the_words_of_its_workload() {
    let mut scene = Scene::planned(100, json!({"queue": "team-queue"}));
    scene.act();
    scene.asked.queued = Some("insufficient unused quota for cpu".to_owned());
    scene.step();
    assert_eq!(
        condition(scene.status(), "Queued").as_deref(),
        Some("True WaitingForQueue")
    );
    let message = scene.status().message.as_deref().unwrap();
    assert!(message.contains("the queue team-queue"), "{message}");
    assert!(message.contains("insufficient unused quota"), "{message}");
}

/// The queue lets in fewer workers than were asked for: that is how many there are.
#[test]
fn workers_that_a_queue_did_not_let_in_are_not_counted() {
    let mut scene = Scene::planned(100, json!({"queue": "q", "throughput": {"maxWorkers": 4}}));
    scene.act();
    scene.jobs[0].is_suspended = false;
    scene.jobs[0].parallelism = 2;
    scene.asked.queued = None;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(scene.status().workers.as_ref().unwrap().desired, 2);
}

#[test]
fn a_job_of_another_queue_makes_way_and_that_costs_no_tries() {
    for (before, after) in [
        (json!(null), json!("team-queue")),
        (json!("team-queue"), json!("other")),
        (json!("team-queue"), json!(null)),
    ] {
        let spec = json!({"queue": before, "failurePolicy": {"retriesPerChunk": 0}});
        let mut scene = Scene::planned(8, spec);
        scene.act();
        scene.jobs[0].is_suspended = false;
        scene.jobs[0].has_had_pods = true;
        scene.attempt(0).was_seen = true;
        scene.step();
        scene.apply(json!({"queue": after}));
        let decision = scene.step();
        assert_eq!(scene.actions(&decision), ["Delete 0/1"], "{before} {after}");
        assert_eq!(scene.status().batches[0].state.as_deref(), Some("Replaced"));
        scene.jobs.clear();
        scene.step();
        scene.lose(0, &[(0, 1), (1, 2)]);
        let decision = scene.act();
        let start = &scene.actions(&decision)[0];
        assert!(start.contains("epoch 3 tries 0"), "{start}");
    }
}
