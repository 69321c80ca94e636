//! What stands still says why, where people look first.

use rules::model::{PodRef, Trouble};
use serde_json::json;

use crate::scene::{Scene, condition, events};

/// A Job on its way, which has made no pod yet.
fn begun() -> Scene {
    let spec = json!({
        "worker": {"serviceAccountName": "writer"}, "throughput": {"maxWorkers": 2},
    });
    let mut scene = Scene::planned(8, spec);
    scene.batch(0, 1, &[(0, 2), (2, 4), (4, 6), (6, 8)], 3, 0);
    scene.job(0, 1, 4, 2);
    scene.jobs[0].template = Some(scene.template(0, 1));
    scene.jobs[0].has_had_pods = false;
    scene.step();
    scene
}

#[test]
fn pods_that_are_refused_are_told_of_in_the_words_of_the_job_controller() {
    let mut scene = begun();
    let words = "Error creating: pods: is forbidden: exceeded quota: none";
    scene.asked.refused = Some(words.to_owned());
    let decision = scene.step();
    assert_eq!(
        condition(scene.status(), "WorkersUnschedulable").as_deref(),
        Some("True FailedCreate")
    );
    assert!(events(&decision).contains(&"FailedCreate"));
    let message = scene.status().message.clone().unwrap();
    assert!(message.ends_with(words), "{message}");
    // Nothing may happen until somebody raises the quota: it is looked at again all the same.
    assert!(decision.requeue.as_secs() <= 10, "{:?}", decision.requeue);

    scene.asked.refused = None;
    scene.jobs[0].active = 2;
    scene.jobs[0].has_had_pods = true;
    scene.step();
    assert_eq!(
        condition(scene.status(), "WorkersUnschedulable").as_deref(),
        Some("False Schedulable")
    );
}

#[test]
fn a_job_that_has_made_no_pod_gives_way_to_a_corrected_spec() {
    let mut scene = begun();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    scene.apply(json!({"worker": {"serviceAccountName": "reader"}}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    scene.jobs.clear();
    let decision = scene.step();
    let start = &scene.actions(&decision)[0];
    assert!(
        start.starts_with("Start 0/1 ") && start.ends_with("tries 0"),
        "{start}"
    );
}

#[test]
fn a_job_whose_pods_work_does_not_give_way() {
    let mut scene = begun();
    scene.jobs[0].has_had_pods = true;
    scene.apply(json!({"worker": {"serviceAccountName": "reader"}}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
}

#[test]
fn what_stops_workers_from_starting_is_in_the_message() {
    let mut scene = begun();
    scene.pods.unschedulable = Some("0/3 nodes are available".to_owned());
    scene.step();
    let message = scene.status().message.clone().unwrap();
    assert!(
        message.ends_with("workers can't start: 0/3 nodes are available"),
        "{message}"
    );
    scene.pods.unschedulable = None;
    scene.pods.cannot_start = Some("ImagePullBackOff: no such image".to_owned());
    scene.step();
    let message = scene.status().message.clone().unwrap();
    assert!(
        message.ends_with("ImagePullBackOff: no such image"),
        "{message}"
    );
}

#[test]
fn a_job_that_the_api_server_refuses_stalls_the_run_until_the_spec_changes() {
    for reason in ["JobRefused", "Forbidden", "ForeignJob"] {
        let mut scene = begun();
        scene.jobs.clear();
        let words = "can't create the Job photos-0: Job.batch \"photos-0\" is invalid";
        scene.trouble = Some(Trouble {
            reason,
            message: words.to_owned(),
        });
        let decision = scene.fail();
        let stalled = condition(scene.status(), "Stalled");
        assert_eq!(stalled, Some(format!("True {reason}")));
        assert_eq!(condition(scene.status(), "Reconciling"), None);
        assert_eq!(scene.status().phase.as_deref(), Some("Stalled"));
        assert_eq!(scene.status().message.as_deref(), Some(words));
        assert!(events(&decision).contains(&reason));
        scene.trouble = None;
        scene.step();
        assert_eq!(condition(scene.status(), "Stalled"), None);
        assert_eq!(scene.status().phase.as_deref(), Some("Running"));
    }
}

/// Other Jobs of the run work on: it isn't stalled.
#[test]
fn a_refused_job_beside_others_is_tried_again() {
    let mut scene = begun();
    scene.pods.live = 2;
    scene.trouble = Some(Trouble {
        reason: "JobRefused",
        message: "words".to_owned(),
    });
    scene.fail();
    assert_eq!(
        condition(scene.status(), "Reconciling").as_deref(),
        Some("True ProgressingWithRetry")
    );
    assert_eq!(condition(scene.status(), "Stalled"), None);
}

/// The canary's verdict comes with a look whose actions fail: it is told, and told once.
#[test]
fn events_of_a_look_that_fails_are_not_lost() {
    let mut scene = Scene::planned(100, json!({"canary": {"shards": 2, "minMatchRate": 0.5}}));
    scene.act();
    scene.step();
    scene.finish(0);
    scene.trouble = Some(Trouble {
        reason: "ApiError",
        message: "can't delete the Job".to_owned(),
    });
    let decision = scene.fail();
    assert!(
        events(&decision).contains(&"CanaryPassed"),
        "{:?}",
        decision.events
    );
    let decision = scene.step();
    assert!(!events(&decision).contains(&"CanaryPassed"));
}

/// The number of workers is that of what was done.
#[test]
fn workers_that_could_not_be_started_are_not_asked_for() {
    let mut scene = Scene::planned(100, json!({}));
    scene.trouble = Some(Trouble {
        reason: "QuotaExceeded",
        message: "exceeded quota: jobs".to_owned(),
    });
    scene.fail();
    let status = scene.status();
    let sizing = status.sizing.as_ref();
    assert_eq!(sizing.and_then(|sizing| sizing.workers), None);
    assert_eq!(
        status.workers.as_ref().map_or(0, |workers| workers.desired),
        0
    );
    scene.trouble = None;
    scene.act();
    assert_eq!(scene.status().sizing.as_ref().unwrap().workers, Some(4));
}

fn pod(name: &str, since_s: i64) -> PodRef {
    PodRef {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        since_s,
    }
}

/// The follower says which items stand still; whether a pod had the time to report is decided here.
#[test]
fn a_worker_that_hangs_is_told_of_and_replaced() {
    let mut scene = begun();
    let now = scene.now.as_second();
    scene.pods.silent = vec![pod("young", now - 599), pod("hung", now - 600)];
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["End hung"]);
    assert!(events(&decision).contains(&"WorkerSilent"));
    let message = scene.status().message.clone().unwrap();
    assert!(message.contains("reported nothing for 600 s"), "{message}");
    assert_eq!(decision.requeue.as_secs(), 1);
    // What could not be done is not told of.
    assert!(!events(&scene.fail()).contains(&"WorkerSilent"));
}

#[test]
fn a_pod_that_outlives_its_worker_is_ended() {
    let mut scene = begun();
    let now = scene.now.as_second();
    scene.pods.outlived = vec![pod("new", now - 10), pod("old", now - 30)];
    scene.pods.outlived_by = Some("istio-proxy".to_owned());
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["End old"]);
    assert!(events(&decision).contains(&"WorkerOutlived"));
    let message = scene.status().message.clone().unwrap();
    assert!(
        message.contains("the container istio-proxy runs on"),
        "{message}"
    );
}
