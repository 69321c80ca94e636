//! Changes of the spec, and runs that somebody asks for.

use std::time::Duration;

use rules::model::{Action, LockFacts, PlanFacts, RunFacts, SealFacts, SealTotals};
use serde_json::{Value, json};

use crate::scene::{OUTPUT, Scene, condition, events};

const TOKEN: &str = "sidecarjob.dev/rerun-requested-at";
const MODE: &str = "sidecarjob.dev/rerun-mode";

/// Another pipeline.
fn other() -> Value {
    json!({"dataset": {"sources": {"default": "agency"}}})
}

fn ended(changes: Value) -> Scene {
    let mut scene = Scene::planned(0, changes);
    scene.facts().seal = SealFacts::Sealed(SealTotals::default());
    scene.step();
    scene.step();
    scene.facts = None;
    scene.wait(60);
    scene
}

fn digest(scene: &Scene) -> String {
    let run = scene.status().run.clone().expect("a run");
    run.pipeline_digest.expect("a digest")
}

#[test]
fn a_whole_bucket_without_an_output_asks_for_one() {
    let main = json!({"dataset": {"mainPrefix": "s3://bucket"}, "output": {"prefix": null}});
    let mut scene = Scene::new(main);
    scene.step();
    assert!(condition(scene.status(), "Stalled").is_some());
    let message = scene.status().message.clone().expect("a message");
    assert!(message.contains("set spec.output.prefix"), "{message}");
    assert!(scene.status().run.is_none());
    scene.apply(json!({"output": {"prefix": "s3://sidecars/bucket/"}}));
    scene.step();
    assert!(scene.status().run.is_some());
}

#[test]
fn a_rejected_change_is_reported_and_the_run_goes_on() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    let run = scene.run();
    scene.apply(other());
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Running",
            "Ready=Unknown Progressing",
            "Reconciling=True Progressing",
            "Stalled=True SpecChangedAfterStart",
            "Planned=True Planned",
            "OutputLocked=False HeldByThisJob"
        ]
    );
    assert_eq!(events(&decision), ["SpecChangedAfterStart"]);
    assert_eq!(scene.run(), run);
    let message = scene.status().message.clone().unwrap();
    assert!(message.starts_with("working on 100 shards; "), "{message}");
    assert!(message.contains("spec.onSpecChange is Reject"), "{message}");
    // Changed back, nothing is left of it.
    scene.apply(json!({"dataset": {"sources": null}}));
    scene.step();
    assert_eq!(condition(scene.status(), "Stalled"), None);
}

#[test]
fn a_rejected_change_of_an_ended_job_is_not_ready() {
    let mut scene = ended(json!({}));
    scene.apply(other());
    scene.step();
    assert_eq!(
        condition(scene.status(), "Ready").as_deref(),
        Some("False SpecChangedAfterStart")
    );
    assert_eq!(
        condition(scene.status(), "Complete").as_deref(),
        Some("True Completed")
    );
    assert_eq!(scene.status().phase.as_deref(), Some("Stalled"));
    let message = scene.status().message.clone().unwrap();
    assert!(message.contains("changed after run"), "{message}");
    let before = scene.status().clone();
    scene.wait(1000);
    scene.step();
    assert_eq!(*scene.status(), before);
    scene.apply(json!({"dataset": {"sources": null}}));
    scene.step();
    assert_eq!(
        condition(scene.status(), "Ready").as_deref(),
        Some("True Completed")
    );
}

#[test]
fn live_fields_are_no_change() {
    let mut scene = ended(json!({}));
    let run = scene.run();
    scene.apply(json!({
        "throughput": {"maxWorkers": 9, "targetRowsPerHour": 5},
        "canary": {"shards": 3},
        "worker": {"image": "worker:2"},
        "failurePolicy": {"maxFailedShards": 9},
    }));
    let decision = scene.step();
    assert_eq!(scene.run(), run);
    assert_eq!(
        condition(scene.status(), "Ready").as_deref(),
        Some("True Completed")
    );
    assert_eq!(scene.status().observed_generation, Some(2));
    let generations = scene.status().conditions.iter();
    assert!(
        generations
            .into_iter()
            .all(|found| found.observed_generation == Some(2))
    );
    assert!(decision.events.is_empty());
}

#[test]
fn a_run_is_replaced_in_its_place() {
    let mut scene = Scene::planned(100, json!({"onSpecChange": "Rerun"}));
    scene.act();
    let old = digest(&scene);
    let run = scene.run();
    scene.apply(other());
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    assert_eq!(
        condition(scene.status(), "Reconciling").as_deref(),
        Some("True ReplacingRun")
    );
    assert_eq!(scene.run(), run);

    scene.jobs[0].is_deleting = true;
    scene.facts = None;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(scene.run(), run);

    scene.jobs.clear();
    scene.wait(5);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_ne!(scene.run(), run);
    let status = scene.status();
    assert_eq!(status.output.as_deref(), Some(OUTPUT));
    let new = status.run.as_ref().unwrap();
    assert_eq!(new.replaces, [old]);
    assert_eq!(new.attempt, Some(2));
    assert!(status.shards.is_none() && status.batches.is_empty());
    assert_eq!(condition(status, "Planned"), None);
    let decision = scene.step();
    let Action::Hold { replaces, .. } = &decision.actions[0] else {
        panic!("{decision:?}");
    };
    assert_eq!(replaces.len(), 1);
}

#[test]
fn changes_that_follow_one_another_replace_all_that_came_before() {
    let mut scene = ended(json!({"onSpecChange": "Rerun"}));
    let first = digest(&scene);
    scene.apply(json!({"dataset": {"sources": {"default": "a"}}}));
    scene.step();
    let second = digest(&scene);
    scene.apply(json!({"dataset": {"sources": {"default": "b"}}}));
    scene.wait(1);
    scene.step();
    let run = scene.status().run.clone().unwrap();
    assert_eq!(run.replaces, [second.clone(), first.clone()]);
    // Back to the first: that is what is made now.
    scene.apply(json!({"dataset": {"sources": null}}));
    scene.wait(1);
    scene.step();
    let run = scene.status().run.clone().unwrap();
    assert_eq!(run.pipeline_digest.as_deref(), Some(first.as_str()));
    assert!(run.replaces.contains(&second) && !run.replaces.contains(&first));
}

#[test]
fn every_pipeline_has_its_folder() {
    let mut scene = ended(json!({"onSpecChange": "NewPrefix"}));
    let folder = |scene: &Scene| format!("{OUTPUT}run={}/", &digest(scene)[..12]);
    let first = folder(&scene);
    assert_eq!(scene.status().output.as_ref(), Some(&first));
    scene.apply(other());
    scene.step();
    let second = folder(&scene);
    assert_ne!(first, second);
    assert_eq!(scene.status().output.as_ref(), Some(&second));
    assert!(scene.status().run.as_ref().unwrap().replaces.is_empty());
}

#[test]
fn the_policy_itself_is_a_live_field() {
    let mut scene = ended(json!({}));
    let run = scene.run();
    scene.apply(json!({"onSpecChange": "NewPrefix"}));
    scene.step();
    assert_eq!(scene.run(), run);
    assert_eq!(
        condition(scene.status(), "Ready").as_deref(),
        Some("True Completed")
    );
}

#[test]
fn before_there_is_a_plan_a_change_begins_anew() {
    let mut scene = Scene::held(json!({}));
    let run = scene.run();
    scene.apply(other());
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Release"]);
    scene.facts().lock = LockFacts::Released;
    scene.wait(1);
    scene.step();
    assert_ne!(scene.run(), run);
    assert_eq!(condition(scene.status(), "Stalled"), None);
}

#[test]
fn a_run_is_asked_for_once_by_a_token() {
    let mut scene = ended(json!({}));
    let run = scene.run();
    scene.annotate(TOKEN, "monday");
    let decision = scene.step();
    assert_eq!(events(&decision), ["RunStarted"]);
    assert_ne!(scene.run(), run);
    let status = scene.status();
    assert_eq!(status.last_handled_rerun.as_deref(), Some("monday"));
    let again = status.run.as_ref().unwrap();
    assert_eq!((again.attempt, again.redo_all), (Some(2), false));
    let decision = scene.step();
    let Action::Hold { skip_existing, .. } = &decision.actions[0] else {
        panic!("{decision:?}");
    };
    assert!(skip_existing);
}

#[test]
fn a_run_of_everything_replaces_everything() {
    let mut scene = ended(json!({}));
    let old = digest(&scene);
    scene.apply(other());
    scene.step();
    scene.annotate(TOKEN, "monday");
    scene.annotate(MODE, "all");
    scene.step();
    let run = scene.status().run.clone().unwrap();
    assert!(run.redo_all);
    assert_eq!(run.replaces, [old]);
    let decision = scene.step();
    let Action::Hold { skip_existing, .. } = &decision.actions[0] else {
        panic!("{decision:?}");
    };
    assert!(!skip_existing);
}

#[test]
fn a_token_is_heeded_once_the_run_has_ended() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    let run = scene.run();
    scene.annotate(TOKEN, "monday");
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(scene.run(), run);
    assert_eq!(scene.status().last_handled_rerun, None);
}

#[test]
fn a_token_of_a_new_job_is_its_first_run() {
    let mut scene = Scene::new(json!({}));
    scene.annotate(TOKEN, "monday");
    scene.step();
    assert_eq!(scene.status().last_handled_rerun.as_deref(), Some("monday"));
}

#[test]
fn a_further_run_waits_for_the_jobs_and_the_lock_of_the_one_before() {
    let mut scene = Scene::planned(0, json!({}));
    scene.facts().seal = SealFacts::Sealed(SealTotals::default());
    scene.step();
    scene.job(0, 1, 1, 1);
    scene.annotate(TOKEN, "monday");
    let run = scene.run();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    assert_eq!(scene.run(), run);
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        ["Release"],
        "once its pods have gone"
    );
    scene.facts().lock = LockFacts::Released;
    scene.wait(1);
    scene.step();
    assert_ne!(scene.run(), run);
}

#[test]
fn an_output_that_the_operator_chose_stays() {
    let mut scene = ended(json!({"output": {"prefix": null}, "onSpecChange": "Rerun"}));
    let output = scene.status().output.clone();
    scene.apply(other());
    scene.step();
    assert_eq!(scene.status().output, output);
    assert_eq!(scene.status().run.as_ref().unwrap().replaces.len(), 1);
}

/// A job that was refused a change, and asked for a run: once by any token, and once by one that
/// is to make everything.
#[test]
fn a_run_asked_for_after_a_rejected_change_replaces_what_the_job_made() {
    for mode in [None, Some("failed-only"), Some("all")] {
        let mut scene = ended(json!({}));
        let old = digest(&scene);
        scene.apply(other());
        scene.step();
        scene.annotate(TOKEN, "monday");
        if let Some(mode) = mode {
            scene.annotate(MODE, mode);
        }
        scene.step();
        let run = scene.status().run.clone().unwrap();
        assert_eq!(run.replaces, [old], "{mode:?}");
        assert_eq!(run.redo_all, mode == Some("all"));
    }
}

/// What the job made is remembered though a run in between was refused, and so made nothing.
#[test]
fn a_run_that_was_refused_is_no_dead_end() {
    let mut scene = ended(json!({}));
    let old = digest(&scene);
    scene.apply(other());
    scene.step();
    scene.annotate(TOKEN, "monday");
    scene.step();
    let refused = digest(&scene);
    scene.facts = Some(RunFacts {
        run: scene.run(),
        lock: LockFacts::Held { epoch: 5 },
        plan: PlanFacts::Refused {
            reason: "PrefixConflict".to_owned(),
            message: "something else is there".to_owned(),
        },
        ..RunFacts::default()
    });
    scene.step();
    assert_eq!(
        condition(scene.status(), "Failed").as_deref(),
        Some("True PrefixConflict")
    );
    scene.facts = None;
    scene.apply(json!({"dataset": {"sources": {"default": "third"}}}));
    scene.annotate(TOKEN, "tuesday");
    scene.wait(1);
    scene.step();
    let replaces = scene.status().run.clone().unwrap().replaces;
    assert_eq!(replaces, [old]);
    assert!(!replaces.contains(&refused));
}

/// Another output in between does not make the job forget the first.
#[test]
fn every_output_is_remembered() {
    let mut scene = ended(json!({"onSpecChange": "Rerun"}));
    let first = digest(&scene);
    for (prefix, source) in [("s3://bucket/second/", "a"), (OUTPUT, "b")] {
        scene.apply(json!({
            "output": {"prefix": prefix}, "dataset": {"sources": {"default": source}},
        }));
        scene.wait(1);
        scene.step();
        assert_eq!(scene.status().output.as_deref(), Some(prefix));
    }
    assert_eq!(scene.status().run.as_ref().unwrap().replaces, [first]);
    // What is remembered has bounds.
    for number in 0..40 {
        scene.apply(json!({
            "output": {"prefix": format!("s3://bucket/{}/", number % 20)},
            "dataset": {"sources": {"default": number.to_string()}},
        }));
        scene.wait(1);
        scene.step();
    }
    let outputs = &scene.status().outputs;
    assert_eq!(outputs.len(), 8);
    assert!(outputs.iter().all(|output| output.digests.len() <= 16));
}

/// A token that came during a run is for the run after it, and not used up by one that begins for
/// another reason.
#[test]
fn a_token_waits_for_its_own_run() {
    let mut scene = Scene::planned(100, json!({"onSpecChange": "Rerun"}));
    scene.annotate(TOKEN, "monday");
    scene.annotate(MODE, "all");
    scene.step();
    let first = scene.run();
    scene.apply(other());
    scene.step();
    scene.facts = None;
    scene.wait(1);
    scene.step();
    let second = scene.run();
    assert_ne!(first, second);
    assert_eq!(scene.status().last_handled_rerun, None);
    assert!(!scene.status().run.as_ref().unwrap().redo_all);

    let end = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(scene.now);
    let status = scene.object.status.as_mut().unwrap();
    status.run.as_mut().unwrap().finished_at = Some(end);
    scene.wait(1);
    scene.step();
    assert_ne!(scene.run(), second);
    let status = scene.status();
    assert_eq!(status.last_handled_rerun.as_deref(), Some("monday"));
    assert!(status.run.as_ref().unwrap().redo_all);
}

/// Whatever a token waits for is told; nobody looks every few seconds whether it has come.
#[test]
fn a_token_that_waits_is_not_polled_for() {
    let mut scene = ended(json!({}));
    let run = scene.run();
    scene.apply(json!({"suspend": true}));
    scene.annotate(TOKEN, "monday");
    let decision = scene.step();
    assert_eq!(scene.run(), run);
    assert!(decision.requeue >= Duration::from_secs(60), "{decision:?}");
    scene.apply(json!({"suspend": false}));
    scene.step();
    assert_ne!(scene.run(), run);
}
