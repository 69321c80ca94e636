//! The writer lock, refusals and trouble.

use rules::model::{LockFacts, PlanFacts, Refusal, Trouble};
use serde_json::json;

use crate::scene::{Scene, condition, events};

/// As long as a Job is there the Job controller keeps ended pods, and the namespace stays.
#[test]
fn in_a_namespace_that_goes_the_jobs_go_first() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    scene.is_namespace_going = true;
    let decision = scene.step();
    let lines = scene.lines(&decision);
    assert_eq!(lines[0], "Delete 0/1", "{lines:?}");
    assert!(!lines.contains(&"Release".to_owned()), "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.starts_with("Start")),
        "{lines:?}"
    );
    assert!(condition(scene.status(), "Reconciling").is_some());
    scene.jobs[0].is_deleting = true;
    assert!(scene.decide().actions.is_empty());

    // The lock is given up once nobody writes any more.
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(scene.lines(&decision)[0], "Release");
    scene.facts().lock = LockFacts::Released;
    assert!(scene.decide().actions.is_empty());
}

#[test]
fn somebody_else_holds_the_output() {
    let mut scene = Scene::held(json!({}));
    scene.facts().lock = LockFacts::Waiting {
        holder: "team/other".to_owned(),
    };
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Pending",
            "Ready=Unknown HeldByAnother",
            "Reconciling=True HeldByAnother",
            "OutputLocked=True HeldByAnother"
        ]
    );
    assert_eq!(events(&decision), ["HeldByAnother"]);
    assert!(
        scene
            .status()
            .message
            .as_ref()
            .unwrap()
            .starts_with("team/other holds")
    );

    // It is asked for again and again, and nothing is written meanwhile.
    let before = scene.status().clone();
    scene.wait(600);
    let decision = scene.step();
    assert_eq!(*scene.status(), before);
    assert!(decision.events.is_empty());

    scene.facts().lock = LockFacts::Held { epoch: 9 };
    let decision = scene.step();
    assert_eq!(events(&decision), ["HeldByThisJob"]);
    assert_eq!(scene.actions(&decision), ["Plan"]);
}

#[test]
fn a_lost_lock_ends_its_workers_and_costs_no_tries() {
    let mut scene = Scene::planned(8, json!({"failurePolicy": {"retriesPerChunk": 0}}));
    scene.act();
    scene.attempt(0).was_seen = true;
    scene.facts().lock = LockFacts::Lost {
        by: "laptop".to_owned(),
    };
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    assert_eq!(
        condition(scene.status(), "OutputLocked").as_deref(),
        Some("True LockLost")
    );

    // Held again, in another epoch: what the old workers had goes into another attempt.
    scene.facts().lock = LockFacts::Held { epoch: 5 };
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Settle 0/1"]);
    scene.lose(0, &[(0, 1), (1, 2)]);
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision)[0],
        format!(
            "Start 0/2 [0-1 1-2] workers 2 epoch 5 tries 0 after {}",
            scene.name(0, 1)
        )
    );
}

#[test]
fn jobs_of_another_epoch_go() {
    let mut scene = Scene::planned(8, json!({}));
    scene.act();
    scene.jobs[0].epoch = 2;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    scene.jobs[0].is_deleting = true;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
}

#[test]
fn jobs_of_another_run_go() {
    let mut scene = Scene::planned(8, json!({}));
    scene.job(0, 1, 4, 4);
    scene.jobs[0].run = "20250101-000000-222222".to_owned();
    let decision = scene.step();
    assert!(scene.actions(&decision).contains(&"Delete 0/1".to_owned()));
}

#[test]
fn a_refused_plan_ends_the_run_and_a_better_spec_begins_another() {
    let mut scene = Scene::held(json!({}));
    scene.facts().plan = PlanFacts::Refused {
        reason: "PrefixConflict".to_owned(),
        message: "shards of another pipeline".to_owned(),
    };
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Failed",
            "Ready=False PrefixConflict",
            "Stalled=True PrefixConflict",
            "Failed=True PrefixConflict"
        ]
    );
    assert_eq!(events(&decision), ["PrefixConflict"]);
    let first = scene.run();
    scene.step();
    scene.facts = None;

    scene.apply(json!({"output": {"prefix": "s3://bucket/elsewhere"}}));
    scene.wait(60);
    scene.step();
    assert_ne!(scene.run(), first);
    assert_eq!(
        scene.status().output.as_deref(),
        Some("s3://bucket/elsewhere/")
    );
    assert_eq!(condition(scene.status(), "Failed"), None);
}

#[test]
fn access_that_is_refused_is_waited_for() {
    for reason in ["AccessDenied", "BucketNotFound", "StoreUnusable"] {
        waits_for_access(reason);
    }
}

fn waits_for_access(reason: &str) {
    let mut scene = Scene::held(json!({}));
    scene.facts().lock = LockFacts::Acquiring;
    scene.facts().plan = PlanFacts::Refused {
        reason: reason.to_owned(),
        message: "s3://bucket/sidecar/: access denied".to_owned(),
    };
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Stalled",
            &format!("Ready=False {reason}"),
            &format!("Stalled=True {reason}"),
        ]
    );
    scene.facts().plan = PlanFacts::None;
    scene.facts().lock = LockFacts::Held { epoch: 1 };
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Plan"]);
    assert_eq!(condition(scene.status(), "Stalled"), None);
}

#[test]
fn without_an_identity_nothing_is_done() {
    let mut scene = Scene::new(json!({}));
    scene.step();
    scene.refusal = Some(Refusal {
        reason: "SecretNotFound",
        message: "there is no Secret".to_owned(),
    });
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "phase Stalled",
            "Ready=False SecretNotFound",
            "Stalled=True SecretNotFound"
        ]
    );
    scene.refusal = None;
    let decision = scene.step();
    assert_eq!(scene.lines(&decision)[0], "Hold");
}

#[test]
fn trouble_shows_and_goes() {
    let mut scene = Scene::planned(8, json!({}));
    scene.act();
    scene.facts().trouble = Some("the store is away".to_owned());
    let decision = scene.step();
    assert_eq!(
        condition(scene.status(), "Reconciling").as_deref(),
        Some("True ProgressingWithRetry")
    );
    assert_eq!(scene.status().message.as_deref(), Some("the store is away"));
    assert!(events(&decision).contains(&"ProgressingWithRetry"));

    // That of the decision before comes first, also while nothing is known of the run.
    scene.facts = None;
    scene.trouble = Some(Trouble {
        reason: "QuotaExceeded",
        message: "exceeded quota: pods".to_owned(),
    });
    scene.live_written_ms = None;
    scene.step();
    assert_eq!(
        scene.status().message.as_deref(),
        Some("exceeded quota: pods")
    );

    scene.trouble = None;
    scene.facts = Some(Scene::planned(8, json!({})).facts().clone());
    scene.batch(0, 1, &[(0, 8)], 3, 0);
    scene.step();
    assert_eq!(
        condition(scene.status(), "Reconciling").as_deref(),
        Some("True Progressing")
    );
}

#[test]
fn a_spec_with_a_mistake_is_said_to_have_one() {
    let mut scene = Scene::new(json!({"columns": [{"name": "score", "type": "no_such_type"}]}));
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "phase Stalled",
            "Ready=False InvalidSpec",
            "Stalled=True InvalidSpec"
        ]
    );
    assert!(
        scene
            .status()
            .message
            .as_ref()
            .unwrap()
            .contains("no_such_type")
    );
    assert!(scene.status().run.is_none());
    scene.apply(json!({"columns": [{"name": "score", "type": "float64"}]}));
    scene.step();
    assert!(scene.status().run.is_some());
}
