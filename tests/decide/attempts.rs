//! What becomes of attempts at batches.

use std::time::Duration;

use rules::model::JobEnd;
use serde_json::json;

use crate::scene::{Scene, condition, events};

/// Eight shards in four items of two, on two workers.
fn working() -> Scene {
    let mut scene = Scene::planned(8, json!({"throughput": {"maxWorkers": 2}}));
    scene.settings.item_seconds = 2.0;
    scene.batch(0, 1, &[(0, 2), (2, 4), (4, 6), (6, 8)], 3, 0);
    scene.job(0, 1, 4, 2);
    scene.step();
    scene
}

fn failed(reason: &str) -> Option<JobEnd> {
    Some(JobEnd::Failed {
        reason: reason.to_owned(),
        message: String::new(),
    })
}

#[test]
fn a_file_without_a_job_is_started_again_under_its_name() {
    let mut scene = working();
    let name = scene.jobs.remove(0).name;
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/1 [0-2 2-4 4-6 6-8] workers 2 epoch 3 tries 0"]
    );
    let rules::model::Action::Start { job, .. } = &decision.actions[1] else {
        panic!("{decision:?}");
    };
    assert_eq!(job.metadata.name.as_deref(), Some(name.as_str()));
}

/// Nor does it cost a try: it was taken from its items before it had come to an end.
#[test]
fn a_job_that_is_gone_is_settled_and_not_started_again() {
    let mut scene = working();
    scene.jobs.clear();
    scene.attempt(0).was_seen = true;
    scene.attempt(0).ended = 3;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Settle 0/1"]);
    scene.lose(0, &[(6, 8)]);
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        [format!(
            "Start 0/2 [6-8] workers 1 epoch 3 tries 0 after {}",
            scene.name(0, 1)
        )]
    );
    let decision = scene.step();
    assert_eq!(events(&decision), ["BatchRetried"]);
}

#[test]
fn a_sealed_batch_does_not_come_back_when_its_job_is_deleted() {
    let mut scene = working();
    scene.finish(0);
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Seal"]);
}

#[test]
fn a_job_that_ended_is_settled_however_it_ended() {
    for end in [
        Some(JobEnd::Complete),
        failed("FailedIndexes"),
        failed("PodFailurePolicy"),
    ] {
        let mut scene = working();
        scene.jobs[0].end = end;
        let decision = scene.step();
        assert_eq!(scene.actions(&decision), ["Settle 0/1"]);
    }
}

#[test]
fn failed_indexes_whose_items_have_ended_are_not_tried_again() {
    let mut scene = working();
    scene.jobs[0].end = failed("FailedIndexes");
    scene.finish(0);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1", "Seal"]);
}

#[test]
fn the_next_attempt_waits_until_the_job_before_is_over() {
    let mut scene = working();
    scene.lose(0, &[(6, 8)]);
    // Settled too early, by a look at the Jobs that was old: it is there, and runs.
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    scene.jobs[0].is_deleting = true;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    scene.jobs[0].is_deleting = false;
    scene.jobs[0].end = failed("FailedIndexes");
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/2 [6-8] workers 1 epoch 3 tries 1 after 0/1"]
    );
    // And then the Job before goes.
    scene.batch(0, 2, &[(6, 8)], 3, 1);
    scene.job(0, 2, 1, 1);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
}

#[test]
fn tries_come_to_an_end() {
    let mut scene = working();
    scene.apply(json!({"failurePolicy": {"retriesPerChunk": 2}}));
    scene.end(0);
    for tries in 1..=2_u32 {
        scene.lose(0, &[(6, 8)]);
        let decision = scene.act();
        let attempt = tries + 1;
        let start = format!("Start 0/{attempt} [6-8] workers 1 epoch 3 tries {tries} after");
        let actions = scene.actions(&decision);
        assert!(actions[0].starts_with(&start), "{actions:?}");
        scene.jobs.remove(0);
        assert!(events(&scene.end(0)).contains(&"BatchRetried"));
    }
    scene.jobs.clear();
    scene.lose(0, &[(6, 8)]);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Seal without 6-8 (no reason)"]);
    let batch = &scene.status().batches[0];
    assert_eq!((batch.failed, batch.state.as_deref()), (1, Some("Failed")));
}

/// The second attempt follows at once: a node may have died. The third waits, and says so.
#[test]
fn what_keeps_coming_to_nothing_is_given_time() {
    let mut scene = working();
    scene.end(0);
    let lose = |scene: &mut Scene| {
        scene.lose(0, &[(6, 8)]);
        let now = scene.now.as_millisecond();
        let settled = scene.attempt(0).settled.as_mut().unwrap();
        settled.at_ms = now;
        settled.reason = Some("no answer of the store".to_owned());
    };
    lose(&mut scene);
    let decision = scene.act();
    assert!(scene.actions(&decision)[0].starts_with("Start 0/2"));
    scene.jobs.remove(0);
    scene.end(0);
    lose(&mut scene);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(decision.requeue, Duration::from_secs(30));
    let told = scene.status().message.clone().unwrap();
    let words = "what batch 0 has lost (no answer of the store) is tried again at 2";
    assert!(told.contains(words), "{told}");
    scene.wait(29);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(scene.status().message.as_ref(), Some(&told));
    scene.wait(1);
    let decision = scene.step();
    assert!(scene.actions(&decision)[0].starts_with("Start 0/3"));
}

#[test]
fn what_no_retry_mends_is_not_tried_again() {
    let mut scene = working();
    scene.despair(0, &[(6, 8)], "no such index");
    let decision = scene.step();
    assert_eq!(events(&decision), ["BatchGaveUp", "ShardsFailed"]);
    let shards = scene.status().shards.clone().unwrap();
    assert_eq!((shards.done, shards.failed), (0, 2));
    // The others go on, in further attempts too.
    scene.end(0);
    scene.lose(0, &[(0, 2)]);
    scene.attempt(0).ended = 3;
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/2 [0-2] workers 1 epoch 3 tries 1 after 0/1"]
    );
    scene.finish(0);
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        [
            "Delete 0/1",
            "Delete 0/2",
            "Seal without 6-8 (no such index)"
        ]
    );
    let batch = &scene.status().batches[0];
    assert_eq!((batch.failed, batch.state.as_deref()), (1, Some("Failed")));
}

/// Where no worker could say why, how they died is kept: their pods go with the Job.
#[test]
fn what_was_tried_often_enough_has_failed() {
    let mut scene = working();
    scene.apply(json!({"failurePolicy": {"retriesPerChunk": 0}}));
    scene.jobs[0].template = Some(scene.template(0, 1));
    scene.pods.died = Some("OOMKilled (exit 137)".to_owned());
    scene.end(0);
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        ["Settle 0/1 (OOMKilled (exit 137))"]
    );
    scene.lose(0, &[(6, 8)]);
    let settled = scene.attempt(0).settled.as_mut().unwrap();
    settled.reason = Some("its workers died: OOMKilled (exit 137)".to_owned());
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        [
            "Delete 0/1",
            "Seal without 6-8 (its workers died: OOMKilled (exit 137))"
        ]
    );
}

#[test]
fn a_file_that_does_not_count_tries_counts_its_attempts() {
    let mut scene = working();
    scene.apply(json!({"failurePolicy": {"retriesPerChunk": 1}}));
    scene.attempt(0).attempt = 2;
    scene.attempt(0).tries = None;
    scene.attempt(0).epoch = 0;
    scene.jobs[0].attempt = 2;
    scene.end(0);
    scene.jobs.clear();
    scene.lose(0, &[(6, 8)]);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Seal without 6-8 (no reason)"]);
}

#[test]
fn jobs_of_nothing_that_is_known_go() {
    let mut scene = working();
    scene.job(7, 1, 4, 2);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 7/1"]);
}

#[test]
fn nothing_is_decided_about_batches_before_their_files_were_read() {
    let mut scene = working();
    scene.facts().batches_loaded = false;
    scene.facts().batches.clear();
    let before = scene.status().clone();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(*scene.status(), before);
}

#[test]
fn workers_that_find_no_node_show_in_the_words_of_the_scheduler() {
    let mut scene = working();
    scene.pods.unschedulable = Some("0/3 nodes are available: 3 Insufficient cpu".to_owned());
    let decision = scene.step();
    assert_eq!(events(&decision), ["Unschedulable"]);
    assert_eq!(
        condition(scene.status(), "WorkersUnschedulable").as_deref(),
        Some("True Unschedulable")
    );
    scene.pods.unschedulable = None;
    scene.pods.cannot_start = Some("ErrImageNeverPull".to_owned());
    let decision = scene.step();
    assert_eq!(events(&decision), ["CannotStart"]);
    scene.pods.cannot_start = None;
    let decision = scene.step();
    assert_eq!(events(&decision), ["Schedulable"]);
}

#[test]
fn a_job_whose_pods_can_not_start_is_made_anew_when_the_spec_changes() {
    let mut scene = working();
    scene.jobs[0].active = 2;
    scene.pods.unschedulable = Some("0/3 nodes are available: 3 Insufficient cpu".to_owned());
    // It is as the spec says: waiting is all that there is to do.
    scene.jobs[0].template = Some(scene.template(0, 1));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());

    scene.jobs[0].template = Some("of another spec".to_owned());
    scene.jobs[0].ready = 1;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new(), "one works");
    scene.jobs[0].ready = 0;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    scene.jobs.clear();
    scene.pods.unschedulable = None;
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/1 [0-2 2-4 4-6 6-8] workers 2 epoch 3 tries 0"]
    );
}

#[test]
fn a_job_whose_workers_die_makes_way_for_one_with_more_memory() {
    let mut scene = working();
    scene.jobs[0].active = 2;
    scene.jobs[0].ready = 1;
    scene.jobs[0].template = Some("with less memory".to_owned());
    scene.attempt(0).was_seen = true;
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        Vec::<String>::new(),
        "nobody died"
    );
    scene.pods.died = Some("OOMKilled (exit 137)".to_owned());
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Delete 0/1"]);
    scene.jobs[0].is_deleting = true;
    scene.step();
    scene.jobs.clear();
    scene.pods.died = None;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Settle 0/1"]);
    scene.lose(0, &[(2, 4), (6, 8)]);
    let decision = scene.act();
    let name = scene.name(0, 1);
    assert_eq!(
        scene.actions(&decision),
        [format!(
            "Start 0/2 [2-4 6-8] workers 2 epoch 3 tries 0 after {name}"
        )]
    );
}

#[test]
fn how_workers_die_is_in_the_message() {
    let mut scene = working();
    scene.pods.died = Some("OOMKilled (exit 137)".to_owned());
    scene.step();
    let message = scene.status().message.clone().unwrap();
    assert_eq!(
        message,
        "working on 8 shards; workers die and are tried again: OOMKilled (exit 137)"
    );
}

#[test]
fn counts_do_not_fall_when_an_item_begins_again() {
    let mut scene = working();
    scene.facts().progress.done = 5;
    scene.facts().progress.rows = 5 * 512;
    scene.step();
    scene.facts().progress.done = 3;
    scene.facts().progress.rows = 3 * 512;
    scene.wait(60);
    scene.step();
    let shards = scene.status().shards.as_ref().unwrap();
    assert_eq!((shards.done, shards.total), (5, 8));
    assert_eq!(scene.status().rows.as_ref().unwrap().written, 5 * 512);
}
