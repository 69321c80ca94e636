//! Following workers by their reports, and settling what is over.

use harness::fault_proxy::{Fault, FaultProxy, Rule};
use operator::runner::RunnerError;
use rules::model::{LockFacts, PlanFacts};
use storage::state::layout;
use storage::state::report::{ChunkReport, RowErrors};
use storage::{StorageConfig, Stores};

use crate::controller::{Controller, DIGEST};
use crate::everywhere;
use crate::place::{Place, rows, write};
use crate::worker::{Way, work};

everywhere! {
    progress => progress_is_what_reports_add_up_to;
    attempts => lost_items_go_into_the_next_attempt;
    batches => a_batch_is_written_once;
    garbage => a_report_that_cannot_be_read_is_none;
    hostile => a_report_without_end_stops_the_run;
}

/// A planned run of so many shards.
async fn planned(place: &Place, shards: usize) -> Controller {
    place.make_main(0..shards).await;
    let mut controller = Controller::new(place, "a");
    controller.held().await;
    assert_eq!(controller.planned().await.todo, shards as u64);
    controller
}

async fn progress_is_what_reports_add_up_to(place: Place) {
    let mut controller = planned(&place, 9).await;
    controller.start(0, 1, &[(2, 4), (7, 8)]).await.unwrap();
    controller
        .start(1, 1, &[(0, 2), (4, 7), (8, 9)])
        .await
        .unwrap();
    let nobody = controller.facts();
    assert_eq!((nobody.progress.done, nobody.batches.len()), (0, 2));
    assert!(
        nobody
            .batches
            .iter()
            .all(|batch| !batch.attempts[0].was_seen)
    );
    for index in 0..2 {
        work(&place, &controller, (0, 1, index), Way::default()).await;
    }
    controller.ended(0, 1, 2).await;
    let way = Way {
        poison: vec![0, 1, 2],
        ..Way::default()
    };
    for index in 0..3 {
        work(&place, &controller, (1, 1, index), way.clone()).await;
    }
    controller.ended(1, 1, 3).await;
    let facts = controller.facts();
    let progress = &facts.progress;
    assert_eq!(
        (progress.done + progress.failed, facts.trouble.clone()),
        (9, None)
    );
    let failed = progress.failures.iter();
    assert_eq!(failed.clone().count() as u64, progress.failed);
    assert!(
        failed
            .clone()
            .all(|failure| failure.reason.ends_with("is malformed"))
    );
    assert!((1..=3).contains(&progress.failed), "{progress:?}");
    let all: usize = (0..9).map(rows).sum();
    assert!(
        progress.rows <= all as u64 && progress.rows >= 60,
        "{progress:?}"
    );
    assert_eq!(progress.matched, progress.rows - progress.done);
    assert_eq!(progress.nulls["score"], (progress.done, progress.rows));
    assert!(progress.last_progress_ms.is_some());
    let worked = (progress.done + progress.failed) as f64;
    let seconds = progress.costs.of_a_shard().shard * worked;
    let expected = 0.25 * progress.done as f64;
    assert!((seconds - expected).abs() < 1e-9, "{progress:?}");
    assert!(facts.batches.iter().all(|batch| batch.attempts[0].was_seen));
    assert!(
        facts
            .batches
            .iter()
            .all(|batch| batch.attempts[0].epoch == 1)
    );

    // After a restart everything is known again, but for the speed, and what was settled.
    controller.restart().await;
    controller.held().await;
    let again = controller.facts();
    assert_eq!(again.batches, facts.batches);
    assert_eq!(again.plan, facts.plan);
    let mut known = again.progress.clone();
    assert_eq!((known.window_shards, known.window_workers), (0, 0.0));
    known.window_shards = progress.window_shards;
    known.window_rows = progress.window_rows;
    known.window_seconds = progress.window_seconds;
    known.window_workers = progress.window_workers;
    // The last report of an item repeats its counts.
    assert!(known.last_progress_ms >= progress.last_progress_ms);
    known.last_progress_ms = progress.last_progress_ms;
    assert_eq!(known, *progress);
}

async fn lost_items_go_into_the_next_attempt(place: Place) {
    let mut controller = planned(&place, 8).await;
    controller
        .start(0, 1, &[(0, 3), (3, 6), (6, 8)])
        .await
        .unwrap();
    let killed = Way {
        killed_after: Some(2),
        ..Way::default()
    };
    work(&place, &controller, (0, 1, 0), Way::default()).await;
    work(&place, &controller, (0, 1, 1), killed).await;
    let lost = controller.settled(0, 1).await;
    assert_eq!(lost, [(3, 6), (6, 8)]);
    let first = controller.facts();
    assert_eq!(first.progress.done, 5);

    controller.start(0, 2, &lost).await.unwrap();
    assert!(!controller.facts().batches[0].attempts[1].was_seen);
    let stopped = Way {
        stop_after: Some(1),
        ..Way::default()
    };
    work(&place, &controller, (0, 2, 0), Way::default()).await;
    work(&place, &controller, (0, 2, 1), stopped).await;
    let lost = controller.settled(0, 2).await;
    assert_eq!(lost, [(6, 8)]);
    let facts = controller.facts();
    let attempts = &facts.batches[0].attempts;
    let settled = attempts[1].settled.clone().unwrap();
    assert_eq!(settled.reason.as_deref(), Some("stopped by a signal"));
    assert_eq!((attempts[1].tries, attempts[1].ended), (Some(1), 1));
    assert_eq!(facts.progress.done, 7);

    controller.start(0, 3, &lost).await.unwrap();
    work(&place, &controller, (0, 3, 0), Way::default()).await;
    assert!(controller.settled(0, 3).await.is_empty());
    assert_eq!(controller.facts().progress.done, 8);
    let all: usize = (0..8).map(rows).sum();
    assert_eq!(controller.facts().progress.rows, all as u64);
}

async fn a_batch_is_written_once(place: Place) {
    let mut controller = planned(&place, 4).await;
    // Nothing is waited for: the file is written in the background.
    assert!(matches!(controller.ask(0, 1, &[(0, 2)]), Ok(false)));
    controller.start(0, 1, &[(0, 2)]).await.unwrap();
    controller.start(0, 1, &[(0, 2)]).await.unwrap();
    let other = controller.start(0, 1, &[(0, 3)]).await;
    assert!(
        matches!(other, Err(RunnerError::OtherItems { .. })),
        "{other:?}"
    );
    assert_eq!(controller.facts().batches[0].attempts[0].items, [(0, 2)]);
    let overlapping = controller.start(1, 1, &[(2, 4), (3, 4)]).await;
    assert!(
        matches!(overlapping, Err(RunnerError::State(_))),
        "{overlapping:?}"
    );
    let unknown = controller.runners.start(
        "nobody",
        &controller.hold.run,
        &operator::runner::Attempt {
            batch: 0,
            attempt: 1,
            items: vec![(0, 1)],
            epoch: 1,
            tries: 0,
        },
    );
    assert!(
        matches!(unknown, Err(RunnerError::NoSuchRun { .. })),
        "{unknown:?}"
    );
}

async fn a_report_that_cannot_be_read_is_none(place: Place) {
    let mut controller = planned(&place, 4).await;
    controller.start(0, 1, &[(0, 2), (2, 4)]).await.unwrap();
    let key = layout::chunk_report(&controller.run(), 0);
    write(&*place.output(), &key, b"{ \"version\": 7 }".to_vec()).await;
    work(&place, &controller, (0, 1, 1), Way::default()).await;
    assert_eq!(controller.settled(0, 1).await, [(0, 2)]);
    controller.start(0, 2, &[(0, 2)]).await.unwrap();
    place.output().delete(&key, None).await.unwrap();
    work(&place, &controller, (0, 2, 0), Way::default()).await;
    assert!(controller.settled(0, 2).await.is_empty());
}

/// Whoever may write below the output may write reports: one that is no worker's ends the run.
async fn a_report_without_end_stops_the_run(place: Place) {
    let mut controller = planned(&place, 4).await;
    controller.start(0, 1, &[(0, 2), (2, 4)]).await.unwrap();
    let mut report = ChunkReport::new(
        controller.run(),
        DIGEST.to_owned(),
        0,
        "pod".to_owned(),
        2,
        time::OffsetDateTime::now_utc(),
    );
    let reasons = (0..20_000).map(|reason| (reason.to_string(), RowErrors::default()));
    report.counts.row_errors = reasons.collect();
    let key = layout::chunk_report(&controller.run(), 0);
    let bytes = serde_json::to_vec(&report).unwrap();
    write(&*place.output(), &key, bytes).await;
    let (reason, message) = controller
        .until(|facts| match &facts.plan {
            PlanFacts::Refused { reason, message } => Some((reason.clone(), message.clone())),
            _ => None,
        })
        .await;
    assert_eq!(reason, "RunUnreadable");
    assert!(message.contains(&key), "{message}");
    assert!(message.contains("no more than 64 are read"), "{message}");
}

/// A store that is away for a while is named as trouble, and only delays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_only_delays() {
    let Some(place) = Place::bucket() else {
        return;
    };
    let proxy = FaultProxy::start(place.server().address(), 1);
    let away = || {
        proxy.add(Rule {
            method: None,
            target: String::new(),
            skip: 0,
            times: u32::MAX,
            one_in: 1,
            fault: Fault::LoseRequest,
        });
    };
    place.make_main(0..4).await;
    let mut controller = Controller::new(&place, "a");
    controller.set_stores(Stores::new(&StorageConfig {
        endpoint: Some(proxy.endpoint()),
        ..place.config().clone()
    }));
    // Before the lock is held, while the plan is made, while workers are followed, while the
    // output is sealed.
    away();
    controller.hold();
    let trouble = controller.until(|facts| facts.trouble.clone()).await;
    assert!(trouble.contains("can't take the writer lock"), "{trouble}");
    proxy.clear();
    controller.held().await;
    assert_eq!(controller.facts().trouble, None);

    away();
    controller.runners.plan(&controller.job.uid);
    let trouble = controller.until(|facts| facts.trouble.clone()).await;
    assert!(trouble.contains("can't make the plan"), "{trouble}");
    proxy.clear();
    assert_eq!(controller.planned().await.todo, 4);

    controller.start(0, 1, &[(0, 2), (2, 4)]).await.unwrap();
    away();
    work(&place, &controller, (0, 1, 0), Way::default()).await;
    work(&place, &controller, (0, 1, 1), Way::default()).await;
    let trouble = controller.until(|facts| facts.trouble.clone()).await;
    assert!(
        trouble.contains("can't read the reports of workers"),
        "{trouble}"
    );
    proxy.clear();
    controller.ended(0, 1, 2).await;
    assert!(controller.settled(0, 1).await.is_empty());

    away();
    controller.runners.seal(&controller.job.uid, Vec::new());
    let trouble = controller.until(|facts| facts.trouble.clone()).await;
    assert!(
        trouble.contains("can't verify and seal the output"),
        "{trouble}"
    );
    proxy.clear();
    assert_eq!(controller.sealed().await.unwrap().shards, 4);
    assert_eq!(controller.facts().lock, LockFacts::Held { epoch: 1 });
    assert_eq!(controller.facts().trouble, None);
}
