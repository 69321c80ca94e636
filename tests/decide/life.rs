//! The life of a job to which nothing happens.

use rules::model::{
    Action, JobEnd, LockFacts, PlanFacts, PlanTotals, RunFacts, SealFacts, SealTotals,
};
use serde_json::json;

use crate::scene::{OUTPUT, Scene, events};

#[test]
fn a_run_begins_by_its_name_and_nothing_else() {
    let mut scene = Scene::new(json!({}));
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "phase Pending",
            "Ready=Unknown Progressing",
            "Reconciling=True Progressing"
        ]
    );
    assert_eq!(events(&decision), ["RunStarted"]);
    let status = scene.status();
    assert_eq!(status.observed_generation, Some(1));
    assert_eq!(status.output.as_deref(), Some(OUTPUT));
    let run = status.run.as_ref().unwrap();
    assert!(run.name.starts_with("20250601-101500-"), "{}", run.name);
    assert_eq!(run.attempt, Some(1));
    assert_eq!(run.pipeline_digest.as_ref().unwrap().len(), 64);
}

#[test]
fn the_whole_way_without_a_canary() {
    let mut scene = Scene::new(json!({}));
    scene.step();

    // Nothing is known of the run: it is asked for, and nothing else is said.
    let before = scene.status().clone();
    let decision = scene.step();
    assert_eq!(scene.lines(&decision)[0], "Hold");
    assert_eq!(*scene.status(), before);
    let Action::Hold {
        prefix,
        manifest,
        replaces,
        skip_existing,
        ..
    } = &decision.actions[0]
    else {
        panic!("{decision:?}");
    };
    assert_eq!(prefix, OUTPUT);
    let manifest = manifest.as_ref().expect("a manifest");
    assert_eq!(manifest["spec"]["output"]["prefix"], OUTPUT);
    assert_eq!(
        manifest["metadata"],
        json!({"name": "photos", "namespace": "team"})
    );
    assert!(replaces.is_empty() && *skip_existing);

    // The lock is held: the plan.
    scene.facts = Some(RunFacts {
        run: scene.run(),
        lock: LockFacts::Held { epoch: 3 },
        ..RunFacts::default()
    });
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "Plan",
            "phase Planning",
            "Ready=Unknown Progressing",
            "Reconciling=True Progressing",
            "OutputLocked=False HeldByThisJob"
        ]
    );
    assert_eq!(scene.status().run.as_ref().unwrap().epoch, Some(3));

    // The plan is made: the API server is told before anything is started.
    scene.facts().plan = PlanFacts::Made(PlanTotals {
        shards: 120,
        todo: 100,
        kept: 20,
        kept_rows: 20 * 512,
        kept_matched: 20 * 500,
        rows_per_shard: 512.0,
        ..PlanTotals::default()
    });
    scene.facts().batches_loaded = true;
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Running",
            "Ready=Unknown Progressing",
            "Reconciling=True Progressing",
            "Planned=True Planned",
            "OutputLocked=False HeldByThisJob"
        ]
    );
    assert_eq!(events(&decision), ["Planned"]);

    // Work: four workers, and four items for each of them.
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        [
            "Start 0/1 [0-5 5-11 11-17 17-23 23-29 29-35 35-41 41-47 47-52 52-58] workers 4 \
             epoch 3 tries 0"
        ]
    );
    assert_eq!(events(&decision), ["Scaled"]);
    let decision = scene.step();
    assert_eq!(events(&decision), ["BatchStarted"]);
    let shards = scene.status().shards.clone().unwrap();
    assert_eq!(shards.progress.as_deref(), Some("20/120"));

    // Too few items are left for all workers: the next batch.
    scene.attempt(0).was_seen = true;
    scene.attempt(0).ended = 3;
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        Vec::<String>::new(),
        "the workers of the first batch still have items"
    );
    scene.attempt(0).ended = 7;
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        [
            "Start 1/1 [58-60 60-62 62-64 64-66 66-68 68-70 70-72 72-74 74-76 76-78] workers 1 \
          epoch 3 tries 0"
        ]
    );

    // The first batch is through: its Job goes, its workers go to the second.
    scene.finish(0);
    scene.jobs[0].end = Some(JobEnd::Complete);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1", "Scale 1/1 to 4"]);
    scene.jobs.remove(0);
    scene.jobs[0].parallelism = 4;

    scene.finish(1);
    scene.jobs[0].end = Some(JobEnd::Complete);
    let decision = scene.act();
    assert_eq!(scene.actions(&decision)[0], "Delete 1/1");
    assert!(scene.actions(&decision)[1].starts_with("Start 2/1 [78-79 79-80 "));
    scene.jobs.remove(0);
    for batch in 2..=3 {
        scene.finish(batch);
        scene.jobs.clear();
        scene.act();
    }
    scene.jobs.clear();
    scene.finish(4);

    // All is made: the output is verified and sealed.
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "Seal",
            "phase Verifying",
            "Ready=Unknown Progressing",
            "Reconciling=True Progressing",
            "Planned=True Planned",
            "OutputLocked=False HeldByThisJob"
        ]
    );
    assert_eq!(events(&decision), ["BatchStarted", "Verifying"]);

    scene.facts().seal = SealFacts::Sealed(SealTotals {
        shards: 120,
        rows: 120 * 512,
        matched: 120 * 500,
        ..SealTotals::default()
    });
    scene.wait(3600);
    let decision = scene.step();
    assert_eq!(
        scene.lines(&decision),
        [
            "Hold",
            "phase Succeeded",
            "Ready=True Completed",
            "Planned=True Planned",
            "Complete=True Completed"
        ]
    );
    assert_eq!(events(&decision), ["Completed"]);
    let status = scene.status();
    let shards = status.shards.as_ref().unwrap();
    assert_eq!((shards.done, shards.failed), (120, 0));
    assert_eq!(status.rates.as_ref().unwrap().rows_per_hour, 51_200);
    assert_eq!(
        status.workers.as_ref().unwrap().summary.as_deref(),
        Some("0/0")
    );
    assert_eq!(
        status.rows.as_ref().unwrap().match_share.as_deref(),
        Some("97.7%")
    );

    // The API server has the end: the lock is given up.
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Release"]);
    // Should the process have ended before it did so, the next one does, for as long as the lock
    // may not have expired.
    scene.facts = None;
    let before = scene.status().clone();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Abandon"]);
    assert_eq!(*scene.status(), before);
    scene.wait(900);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(*scene.status(), before);
}

#[test]
fn a_dataset_that_is_done_already_is_only_sealed() {
    let mut scene = Scene::planned(0, json!({"canary": {"shards": 20}}));
    assert_eq!(scene.status().phase.as_deref(), Some("Verifying"));
    assert_eq!(scene.status().canary, None);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Seal"]);
}

#[test]
fn an_object_that_goes_lets_go_of_its_lock() {
    let mut scene = Scene::planned(10, json!({}));
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(scene.now);
    scene.object.metadata.deletion_timestamp = Some(now);
    let decision = scene.decide();
    assert!(decision.status.is_none() && decision.events.is_empty());
    assert_eq!(scene.actions(&decision), ["Release"]);
}

#[test]
fn nothing_changes_while_nothing_is_known_after_a_restart() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    scene.step();
    let before = scene.status().clone();
    scene.facts = None;
    scene.wait(1000);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(*scene.status(), before);
    assert!(decision.events.is_empty());
}

#[test]
fn an_old_look_at_the_object_is_no_ground_for_anything() {
    let mut scene = Scene::planned(100, json!({}));
    scene.act();
    let old = scene.object.clone();
    scene.facts().run = "20990101-000000-aaaaaa".to_owned();
    let decision = scene.decide();
    assert!(decision.actions.is_empty());
    assert_eq!(decision.status, old.status);
}

#[test]
fn an_ended_job_is_deleted_once_its_time_to_live_is_over() {
    let mut scene = Scene::planned(0, json!({"ttlSecondsAfterFinished": 100}));
    scene.facts().seal = SealFacts::Sealed(SealTotals::default());
    scene.step();
    scene.facts().lock = LockFacts::Released;
    scene.wait(40);
    let decision = scene.step();
    assert!(decision.actions.is_empty());
    assert_eq!(decision.requeue.as_secs(), 60);
    scene.wait(60);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["DeleteObject"]);
}

#[test]
fn without_a_prefix_the_sidecar_goes_beside_and_that_is_said() {
    let mut scene = Scene::new(json!({"output": {"prefix": null}}));
    let decision = scene.step();
    assert_eq!(
        scene.status().output.as_deref(),
        Some("s3://bucket/main_run_20250601_101500/")
    );
    assert_eq!(events(&decision), ["RunStarted", "OutputChosen"]);
    assert!(
        scene
            .status()
            .message
            .as_ref()
            .unwrap()
            .contains("main_run_20250601_101500/")
    );
}
