//! The end of a run.

use rules::model::{FailureNote, SealFacts, SealTotals};
use serde_json::{Value, json};

use crate::scene::{Scene, condition, events};

/// Eight shards in four items, all of which have ended.
fn through(changes: Value) -> Scene {
    let mut scene = Scene::planned(8, changes);
    scene.batch(0, 1, &[(0, 2), (2, 4), (4, 6), (6, 8)], 3, 0);
    scene.finish(0);
    scene.step();
    scene
}

fn with_failures(failed: u64) -> SealFacts {
    SealFacts::Sealed(SealTotals {
        shards: 8 - failed,
        failed,
        rows: (8 - failed) * 512,
        matched: (8 - failed) * 500,
        failure_report: (failed > 0).then(|| "s3://bucket/sidecar/report".to_owned()),
        failures: (0..failed)
            .map(|shard| FailureNote {
                path: format!("{shard}.parquet"),
                reason: "page 3 has a wrong checksum".to_owned(),
            })
            .collect(),
    })
}

#[test]
fn failures_decide_how_a_run_ends() {
    for (failed, accepted, phase, reason, ready, stalled) in [
        (0, 0, "Succeeded", "Completed", "True", None),
        (2, 2, "Succeeded", "CompletedWithFailures", "True", None),
        (
            2,
            1,
            "Failed",
            "TooManyFailedShards",
            "False",
            Some("True TooManyFailedShards"),
        ),
    ] {
        let mut scene = through(json!({"failurePolicy": {"maxFailedShards": accepted}}));
        scene.facts().seal = with_failures(failed);
        scene.step();
        let status = scene.status();
        assert_eq!(status.phase.as_deref(), Some(phase));
        assert_eq!(
            condition(status, "Ready").as_deref(),
            Some(format!("{ready} {reason}").as_str())
        );
        assert_eq!(condition(status, "Stalled").as_deref(), stalled);
        assert_eq!(condition(status, "Reconciling"), None);
        let shards = status.shards.as_ref().unwrap();
        assert_eq!(
            (shards.done, shards.failed),
            (8 - failed as i64, failed as i64)
        );
        assert_eq!(status.failures.len() as u64, failed);
        assert_eq!(status.failure_report.is_some(), failed > 0);
        assert!(status.run.as_ref().unwrap().finished_at.is_some());
    }
}

#[test]
fn shards_that_nobody_made_or_counted_have_failed() {
    let mut scene = through(json!({}));
    scene.facts().seal = SealFacts::Sealed(SealTotals {
        shards: 7,
        ..SealTotals::default()
    });
    scene.step();
    assert_eq!(scene.status().shards.as_ref().unwrap().failed, 1);
    assert_eq!(scene.status().phase.as_deref(), Some("Failed"));
}

#[test]
fn shards_that_are_missing_are_made_again() {
    let mut scene = through(json!({"failurePolicy": {"retriesPerChunk": 1}}));
    let missing = |scene: &mut Scene| {
        scene.facts().seal = SealFacts::Missing {
            items: vec![(2, 4)],
            message: "2 shards of the plan are missing".to_owned(),
        };
    };
    missing(&mut scene);
    let decision = scene.act();
    assert_eq!(
        scene.actions(&decision),
        [format!(
            "Start 0/2 [2-4] workers 1 epoch 3 tries 1 after {}",
            scene.name(0, 1)
        )]
    );
    assert!(events(&decision).contains(&"ShardsMissing"));
    scene.facts().seal = SealFacts::None;
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    scene.finish(0);
    scene.jobs.clear();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Seal"]);

    // Again and again is too often.
    missing(&mut scene);
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), Vec::<String>::new());
    assert_eq!(
        condition(scene.status(), "Failed").as_deref(),
        Some("True OutputIncomplete")
    );
}

#[test]
fn an_end_stays_whatever_becomes_of_facts_and_jobs() {
    let mut scene = through(json!({}));
    scene.facts().seal = with_failures(0);
    scene.step();
    let end = scene.status().clone();
    scene.facts().batches.clear();
    scene.facts().seal = SealFacts::None;
    scene.facts().progress = rules::model::ProgressFacts::default();
    let decision = scene.step();
    assert_eq!(scene.actions(&decision), ["Release"]);
    assert_eq!(*scene.status(), end);
    scene.facts = None;
    scene.wait(1_000_000);
    let decision = scene.step();
    assert!(decision.actions.is_empty() && decision.events.is_empty());
    assert_eq!(*scene.status(), end);
}
