//! Who gets the workers, and what is written of live numbers.

use rules::model::JobEnd;
use rules::sizing::ItemCosts;
use serde_json::json;

use crate::scene::{Scene, events};

/// A run with a target, whose first batch has begun on eight workers.
fn running() -> Scene {
    let mut scene = Scene::planned(
        1_000_000,
        json!({"throughput": {"maxWorkers": 100, "targetRowsPerHour": 10_000_000}}),
    );
    scene.settings.items_per_job = 1_000;
    let decision = scene.act();
    assert_eq!(events(&decision), ["Scaled"]);
    let sizing = scene.status().sizing.clone().expect("a sizing");
    assert_eq!(sizing.target_shards_per_second, Some(5.425));
    assert_eq!(sizing.workers, Some(8));
    assert_eq!(sizing.limited_by.as_deref(), Some("warming up"));
    // A long batch, as where the cost of such items was measured.
    scene.attempt(0).items = (0..1_000)
        .map(|item| (100 * item, 100 * item + 100))
        .collect();
    scene.step();
    scene
}

fn measure(scene: &mut Scene, shards: u64, workers: f64) {
    let progress = &mut scene.facts().progress;
    progress.window_shards = shards;
    progress.window_rows = shards * 512;
    progress.window_seconds = 300.0;
    progress.window_workers = workers;
}

#[test]
fn measured_speed_decides_in_steps() {
    let mut scene = running();
    // 300 shards in 300 s by 8 workers: 5.43 shards/s need 44 of them.
    measure(&mut scene, 300, 8.0);
    scene.wait(120);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    let limit = |scene: &Scene| scene.status().sizing.clone().unwrap().limited_by;
    assert_eq!(limit(&scene).as_deref(), Some("one step a window"));

    scene.wait(200);
    scene.pods.pending = 1;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(limit(&scene).as_deref(), Some("pods pending"));

    scene.pods.pending = 0;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Scale 0/1 to 44"]);
    assert_eq!(events(&decision), ["Scaled"]);
    scene.jobs[0].parallelism = 44;
    let sizing = scene.status().sizing.clone().unwrap();
    assert_eq!(sizing.observed_shards_per_second, Some(1.0));
    assert_eq!(
        (sizing.wanted_workers, sizing.workers),
        (Some(44), Some(44))
    );

    // A little more or less is not worth a step.
    scene.wait(301);
    measure(&mut scene, 1_500, 44.0);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(limit(&scene).as_deref(), Some("dead band"));
}

#[test]
fn a_lower_limit_applies_at_once_and_a_new_target_needs_no_window() {
    let mut scene = running();
    measure(&mut scene, 300, 8.0);
    scene.apply(json!({"throughput": {"maxWorkers": 5}}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Scale 0/1 to 5"]);
    scene.jobs[0].parallelism = 5;
    scene.apply(json!({"throughput": {"maxWorkers": 100, "targetRowsPerHour": 5_000_000}}));
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Scale 0/1 to 22"]);
}

#[test]
fn workers_go_to_batches_in_their_order() {
    let mut scene = Scene::planned(1_000, json!({"throughput": {"maxWorkers": 10}}));
    scene.batch(0, 1, &(0..20).map(|n| (n, n + 1)).collect::<Vec<_>>(), 3, 0);
    scene.job(0, 1, 20, 10);
    scene.attempt(0).was_seen = true;
    scene.attempt(0).ended = 14;
    let decision = scene.act();
    let actions = scene.actions(&decision);
    assert!(actions[0].starts_with("Start 1/1 [20-"), "{actions:?}");
    assert!(actions[0].contains(" workers 4 "), "{actions:?}");

    // As the first runs out the second gets more, in steps.
    scene.attempt(0).ended = 15;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Scale 1/1 to 5"]);
    scene.finish(0);
    scene.jobs[0].end = Some(JobEnd::Complete);
    scene.jobs[1].parallelism = 5;
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision)[..2],
        ["Delete 0/1", "Scale 1/1 to 10"]
    );
}

#[test]
fn live_numbers_are_written_now_and_then() {
    let mut scene = running();
    measure(&mut scene, 300, 8.0);
    let decision = scene.step();
    assert!(decision.only_live_numbers);
    let rates = scene.status().rates.clone().unwrap();
    assert_eq!(
        (rates.rows_per_hour, rates.shards_per_second),
        (1_843_000, 1.0)
    );
    scene.live_written_ms = Some(scene.now.as_millisecond());

    scene.wait(5);
    scene.facts().progress.done = 50;
    let before = scene.status().clone();
    let decision = scene.step();
    assert_eq!(*scene.status(), before);
    assert_eq!(decision.requeue.as_secs(), 10);

    scene.wait(10);
    let decision = scene.step();
    assert!(decision.only_live_numbers);
    let shards = scene.status().shards.clone().unwrap();
    assert_eq!(shards.progress.as_deref(), Some("50/1000000"));

    // Only time has passed: the end is estimated for another minute, but nothing is written.
    scene.live_written_ms = Some(scene.now.as_millisecond());
    let before = scene.status().clone();
    scene.wait(120);
    let decision = scene.step();
    assert_eq!(*scene.status(), before);
    assert!(!decision.only_live_numbers);
}

#[test]
fn what_is_no_live_number_is_written_at_once() {
    let mut scene = running();
    scene.live_written_ms = Some(scene.now.as_millisecond());
    scene.facts().progress.done = 50;
    scene.pods.unschedulable = Some("no node".to_owned());
    let decision = scene.step();
    assert!(!decision.only_live_numbers);
    let shards = scene.status().shards.clone().unwrap();
    assert_eq!(shards.progress.as_deref(), Some("50/1000000"));
}

#[test]
fn items_follow_what_shards_and_starts_cost() {
    let mut scene = running();
    {
        let progress = &mut scene.facts().progress;
        progress.costs = ItemCosts::default();
        for _ in 0..10 {
            progress.costs.add(100, 8.0, 100, 200.0);
        }
    }
    scene.attempt(0).was_seen = true;
    scene.attempt(0).ended = 995;
    scene.step();
    // 100 s an item at 2 s a shard, and a fixed cost of 8 s that asks for at least 48 shards.
    assert_eq!(
        scene.status().sizing.clone().unwrap().shards_per_chunk,
        Some(50)
    );
}

/// The canary's items of two shards say little about items of thousands: one for each worker shows
/// what those cost, and then the others are cut.
#[test]
fn large_items_are_tried_before_all_are_cut() {
    let mut scene = Scene::planned(1_000_000, json!({"throughput": {"maxWorkers": 4}}));
    scene.settings.items_per_job = 1_000;
    scene.facts().progress.costs.add(2, 4.0, 2, 0.008);
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        ["Start 0/1 [0-20000 20000-40000 40000-60000 60000-80000] workers 4 epoch 3 tries 0"]
    );
    let attempt = scene.attempt(0);
    attempt.was_seen = true;
    attempt.ended = 1;
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        Vec::<String>::new(),
        "nothing was told yet"
    );
    // Each shard takes 20 ms: twenty thousand are too many.
    scene.facts().progress.costs.add(20_000, 3.0, 500, 10.0);
    let decision = scene.step();
    let actions = scene.actions(&decision);
    assert!(actions[0].starts_with("Start 1/1 [80000-85"), "{actions:?}");
}

/// Between the items of a canary there may be no room for as many shards as would be wanted: what
/// fits there was measured soon, and a batch of it is not waited for any longer.
#[test]
fn small_gaps_are_not_tried_for_ever() {
    let mut scene = Scene::planned(1_000, json!({"throughput": {"maxWorkers": 2}}));
    let canary: Vec<(u64, u64)> = (0..10).map(|item| (100 * item, 100 * item + 2)).collect();
    scene.batch(0, 1, &canary, 3, 0);
    scene.finish(0);
    scene.facts().progress.costs = ItemCosts::default();
    scene.facts().progress.costs.add(2, 40.0, 2, 0.05);
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        ["Start 1/1 [2-100] workers 1 epoch 3 tries 0"]
    );
    scene.attempt(1).was_seen = true;
    scene.attempt(1).ended = 1;
    scene.facts().progress.costs.add(98, 40.0, 98, 2.5);
    let decision = scene.step();
    assert_eq!(
        scene.actions(&decision),
        [
            "Delete 1/1",
            "Start 2/1 [102-200 202-300 302-400 402-500 502-600 602-700 702-800 802-900 902-1000] \
             workers 1 epoch 3 tries 0"
        ]
    );
}
