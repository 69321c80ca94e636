//! Verifying and sealing: whole, with failures, with holes, and with strangers.

use rules::model::SealFacts;
use storage::state::layout;
use storage::state::manifest::{Completeness, Manifest};
use storage::state::sentinel::Sentinel;

use crate::controller::{Controller, DIGEST};
use crate::everywhere;
use crate::place::{Place, file, path, rows, write};
use crate::planning::whole_run;
use crate::worker::{Way, work};

everywhere! {
    whole => a_whole_output_is_sealed;
    failures => failures_are_listed;
    missing => what_is_reported_and_missing_is_done_again;
    strangers => strangers_are_found;
    kept => what_was_kept_and_has_gone_is_told;
    nothing => a_run_with_nothing_to_do_is_sealed;
}

/// A run of 8 shards whose 3 items were done in this way.
async fn done(place: &Place, way: Way) -> Controller {
    place.make_main(0..8).await;
    let mut controller = Controller::new(place, "a");
    controller.held().await;
    controller.planned().await;
    controller
        .start(0, 1, &[(0, 3), (3, 6), (6, 8)])
        .await
        .unwrap();
    for index in 0..3 {
        work(place, &controller, (0, 1, index), way.clone()).await;
    }
    assert!(controller.settled(0, 1).await.is_empty());
    controller
}

fn all_rows(shards: impl IntoIterator<Item = usize>) -> u64 {
    shards.into_iter().map(rows).sum::<usize>() as u64
}

async fn a_whole_output_is_sealed(place: Place) {
    let mut controller = done(&place, Way::default()).await;
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (8, 0));
    assert_eq!(
        (sealed.rows, sealed.matched),
        (all_rows(0..8), all_rows(0..8) - 8)
    );
    assert_eq!((sealed.failure_report, sealed.failures.len()), (None, 0));
    let manifest = Manifest::load(&*place.output()).await.unwrap().unwrap();
    assert_eq!(manifest.manifest.state, Completeness::Complete);
    assert_eq!(manifest.manifest.main, place.main().uri());
    assert_eq!(manifest.manifest.run, controller.run());
    let parts = manifest.manifest.parts.iter();
    assert_eq!(parts.map(|part| part.chunk).collect::<Vec<_>>(), [0, 3, 6]);
    let sentinel = Sentinel::read(&*place.output()).await.unwrap().unwrap();
    assert_eq!(sentinel.manifest_sha256, manifest.sha256);
    assert_eq!((sentinel.shards, sentinel.rows), (8, all_rows(0..8)));

    // Sealing again after a restart finds the same.
    controller.restart().await;
    controller.held().await;
    assert_eq!(controller.facts().seal, SealFacts::None);
    assert_eq!(controller.sealed().await.unwrap().shards, 8);
    assert!(Sentinel::read(&*place.output()).await.unwrap().is_some());
}

async fn failures_are_listed(place: Place) {
    let way = Way {
        poison: vec![2, 7],
        ..Way::default()
    };
    let mut controller = done(&place, way).await;
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (6, 2));
    assert_eq!(sealed.rows, all_rows([0, 1, 3, 4, 5, 6]));
    let key = layout::failures(&controller.run());
    assert_eq!(
        sealed.failure_report,
        Some(place.uri(&format!("out/{key}")))
    );
    let (_, bytes) = place.output().read(&key).await.unwrap();
    let lines = String::from_utf8(bytes.to_vec()).unwrap();
    let lines: Vec<serde_json::Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["version"], 1);
    assert_eq!(lines[0]["run"], controller.run().as_str());
    let mut expected = vec![(path(2), 2), (path(7), 7)];
    expected.sort();
    assert_eq!(lines.len(), 3);
    for (line, (path, number)) in lines[1..].iter().zip(&expected) {
        assert_eq!(line["path"], path.as_str());
        assert_eq!(line["reason"], format!("shard {number} is malformed"));
    }
    assert_eq!(sealed.failures[0].path, expected[0].0);
    let manifest = Manifest::load(&*place.output()).await.unwrap().unwrap();
    assert_eq!(manifest.manifest.state, Completeness::Incomplete);
    assert_eq!(manifest.manifest.totals.failed, 2);
    assert_eq!(Sentinel::read(&*place.output()).await.unwrap(), None);
}

async fn what_is_reported_and_missing_is_done_again(place: Place) {
    let mut controller = done(&place, Way::default()).await;
    let shards: Vec<String> = place.shards().await.into_keys().collect();
    place.output().delete(&shards[1], None).await.unwrap();
    let lines = layout::chunk_lines(&controller.run(), 6);
    write(&*place.output(), &lines, b"not zstd".to_vec()).await;
    let (items, message) = controller.sealed().await.unwrap_err();
    assert_eq!(items, [(0, 3), (6, 8)]);
    assert!(message.starts_with("3 shards of 2 work items"), "{message}");
    assert!(
        message.contains(&format!("{} was reported done", shards[1])),
        "{message}"
    );
    assert_eq!(
        Manifest::load(&*place.output()).await.unwrap().map(|_| ()),
        None
    );
    assert_eq!(Sentinel::read(&*place.output()).await.unwrap(), None);

    controller.start(1, 1, &items).await.unwrap();
    assert_eq!(controller.facts().seal, SealFacts::None);
    for index in 0..2 {
        work(&place, &controller, (1, 1, index), Way::default()).await;
    }
    assert!(controller.settled(1, 1).await.is_empty());
    let sealed = controller.sealed().await.unwrap();
    assert_eq!(
        (sealed.shards, sealed.failed, sealed.rows),
        (8, 0, all_rows(0..8))
    );
}

async fn strangers_are_found(place: Place) {
    let mut controller = done(&place, Way::default()).await;
    let shards: Vec<String> = place.shards().await.into_keys().collect();
    // The same bytes again are another version on some stores, and fine. Others are not.
    let (_, bytes) = place.output().read(&shards[0]).await.unwrap();
    place.output().delete(&shards[0], None).await.unwrap();
    write(&*place.output(), &shards[0], bytes.to_vec()).await;
    let cases = [
        (
            file(10, None),
            "its footer does not say that this pipeline made it",
        ),
        (file(3, Some(DIGEST)), "it has 3 rows, reported were"),
        (
            b"PAR1 no footer".to_vec(),
            "it does not end like a Parquet file",
        ),
        (b"x".to_vec(), "1 bytes are too few for a Parquet file"),
    ];
    for (bytes, words) in cases {
        write(&*place.output(), &shards[4], bytes).await;
        let (items, message) = controller.sealed().await.unwrap_err();
        assert_eq!(items, [(3, 6)]);
        assert!(message.contains(words), "{message}");
        assert!(message.contains(&shards[4]), "{message}");
    }
}

async fn what_was_kept_and_has_gone_is_told(place: Place) {
    place.make_main(0..6).await;
    let mut controller = Controller::new(&place, "a");
    whole_run(&place, &mut controller, Way::default()).await;
    place.make_main(6..8).await;
    place.main().delete(&path(5), None).await.unwrap();
    controller.next_run();
    controller.held().await;
    let plan = controller.planned().await;
    assert_eq!((plan.shards, plan.todo, plan.kept), (7, 2, 5));
    controller.start(0, 1, &[(0, 2)]).await.unwrap();
    work(&place, &controller, (0, 1, 0), Way::default()).await;
    assert!(controller.settled(0, 1).await.is_empty());
    // One of those that were kept goes, and so does one that main doesn't have any more.
    place.output().delete(&path(0), None).await.unwrap();
    place.output().delete(&path(5), None).await.unwrap();
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.failed), (6, 1));
    assert_eq!(sealed.rows, all_rows([1, 2, 3, 4, 6, 7]));
    assert_eq!(sealed.failures[0].path, path(0));
    let reason = &sealed.failures[0].reason;
    assert!(reason.contains("was removed or changed since"), "{reason}");
    assert_eq!(Sentinel::read(&*place.output()).await.unwrap(), None);
    controller.released().await;

    // Another run makes it whole.
    controller.next_run();
    whole_run(&place, &mut controller, Way::default()).await;
    let sentinel = Sentinel::read(&*place.output()).await.unwrap().unwrap();
    assert_eq!(
        (sentinel.shards, sentinel.rows),
        (7, all_rows([0, 1, 2, 3, 4, 6, 7]))
    );
}

async fn a_run_with_nothing_to_do_is_sealed(place: Place) {
    place.make_main(0..3).await;
    let mut controller = Controller::new(&place, "a");
    whole_run(&place, &mut controller, Way::default()).await;
    let before = place.shards().await;
    controller.next_run();
    controller.held().await;
    let plan = controller.planned().await;
    assert_eq!(
        (plan.todo, plan.kept, plan.kept_rows),
        (0, 3, all_rows(0..3))
    );
    assert!(Sentinel::read(&*place.output()).await.unwrap().is_some());
    let sealed = controller.sealed().await.unwrap();
    assert_eq!((sealed.shards, sealed.rows), (3, all_rows(0..3)));
    let sentinel = Sentinel::read(&*place.output()).await.unwrap().unwrap();
    assert_eq!(sentinel.run, controller.run());
    assert_eq!(place.shards().await, before);
}
