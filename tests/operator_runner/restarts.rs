//! The operator ends at any step, and the next one goes on.

use storage::state::sentinel::Sentinel;

use crate::controller::Controller;
use crate::everywhere;
use crate::place::{Place, rows};
use crate::worker::{Way, work};

everywhere! {
    every_step => a_restart_at_every_step_changes_nothing;
    interrupted => work_that_is_interrupted_is_done_again;
}

/// What a controller asks for, one after the other.
const STEPS: usize = 8;

async fn step(place: &Place, controller: &mut Controller, number: usize) {
    match number {
        0 => assert_eq!(controller.held().await, 1),
        1 => assert_eq!(controller.planned().await.todo, 7),
        2 => controller.start(0, 1, &[(1, 2), (5, 6)]).await.unwrap(),
        3 => {
            let stopped = Way {
                stop_after: Some(0),
                ..Way::default()
            };
            work(place, controller, (0, 1, 0), stopped).await;
            work(place, controller, (0, 1, 1), Way::default()).await;
            assert_eq!(controller.settled(0, 1).await, [(1, 2)]);
        }
        4 => controller.start(0, 2, &[(1, 2)]).await.unwrap(),
        5 => controller
            .start(1, 1, &[(0, 1), (2, 5), (6, 7)])
            .await
            .unwrap(),
        6 => {
            work(place, controller, (0, 2, 0), Way::default()).await;
            for index in 0..3 {
                work(place, controller, (1, 1, index), Way::default()).await;
            }
            assert!(controller.settled(0, 2).await.is_empty());
            assert!(controller.settled(1, 1).await.is_empty());
        }
        _ => {
            let sealed = controller.sealed().await.unwrap();
            let all: usize = (0..7).map(rows).sum();
            assert_eq!((sealed.shards, sealed.rows), (7, all as u64));
        }
    }
}

async fn a_restart_at_every_step_changes_nothing(place: Place) {
    place.make_main(0..7).await;
    let mut controller = Controller::new(&place, "a");
    for number in 0..STEPS {
        step(&place, &mut controller, number).await;
        let before = controller.facts();
        controller.restart().await;
        assert_eq!(controller.held().await, 1);
        let after = controller.facts();
        assert_eq!(after.plan, before.plan, "step {number}");
        assert_eq!(after.progress.done, before.progress.done, "step {number}");
        assert_eq!(after.batches.len(), before.batches.len(), "step {number}");
        for (before, after) in before.batches.iter().zip(&after.batches) {
            for (before, after) in before.attempts.iter().zip(&after.attempts) {
                assert_eq!(before.items, after.items, "step {number}");
                assert_eq!(before.was_seen, after.was_seen, "step {number}");
                assert_eq!(before.ended, after.ended, "step {number}");
            }
        }
    }
    assert!(Sentinel::read(&*place.output()).await.unwrap().is_some());
}

/// The process ends right after something was asked for, at whatever point that is.
async fn work_that_is_interrupted_is_done_again(place: Place) {
    place.make_main(0..7).await;
    let mut controller = Controller::new(&place, "a");
    for _ in 0..3 {
        controller.hold();
        controller.restart().await;
    }
    controller.held().await;
    for _ in 0..3 {
        controller.runners.plan(&controller.job.uid);
        controller.restart().await;
        controller.held().await;
    }
    assert_eq!(controller.planned().await.todo, 7);
    controller.start(0, 1, &[(0, 7)]).await.unwrap();
    work(&place, &controller, (0, 1, 0), Way::default()).await;
    for _ in 0..3 {
        controller.runners.settle(&controller.job.uid, 0, 1, None);
        controller.restart().await;
        controller.held().await;
    }
    assert!(controller.settled(0, 1).await.is_empty());
    for pause in [0, 1, 5, 20] {
        controller.runners.seal(&controller.job.uid, Vec::new());
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        controller.restart().await;
        controller.held().await;
    }
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (7, 0));
    let sentinel = Sentinel::read(&*place.output()).await.unwrap().unwrap();
    assert_eq!(sentinel.shards, 7);
}
