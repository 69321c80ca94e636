//! A status has one size, whatever fails and however long the words of others are.

use proptest::prelude::*;
use rules::model::{
    FailureNote, LockFacts, PlanFacts, ProgressFacts, SealFacts, SealTotals, Trouble,
};
use serde_json::json;

use crate::scene::Scene;

/// What the operator may add to an object.
const LARGEST: usize = 24 * 1024;

/// As the API server stores it: Go's JSON, which writes some characters longer than others do.
fn stored_bytes(scene: &Scene) -> usize {
    let text = serde_json::to_string(scene.status()).expect("JSON");
    text.chars()
        .map(|character| match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => 6,
            other => other.len_utf8(),
        })
        .sum()
}

fn nasty() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\u{1}".repeat(5_000)),
        Just("\"\\".repeat(5_000)),
        Just("<&>".repeat(5_000)),
        Just("𝔘".repeat(5_000)),
        Just("a/".repeat(50_000)),
        "\\PC{0,2000}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_object_stays_small(words in nasty(), path in nasty(), batches in 0_u32..60) {
        let mut scene = Scene::planned(
            1_000_000,
            json!({
                "output": {"prefix": format!("s3://bucket/{}", "p".repeat(1_000))},
                "canary": {"shards": 20},
                "throughput": {"targetRowsPerHour": 10_000_000, "maxWorkers": 10_000},
            }),
        );
        scene.object.metadata.name = Some("n".repeat(253));
        let failures = vec![FailureNote { path, reason: words.clone() }; 50];
        for batch in 0..batches {
            let first = u64::from(batch) * 10;
            scene.batch(batch, 4, &[(first, first + 5), (first + 5, first + 10)], 3, 2);
            if batch % 3 > 0 {
                scene.lose(batch as usize, &[(first, first + 5)]);
            }
        }
        scene.facts().progress = ProgressFacts {
            done: 999_990,
            failed: 500_000,
            rows: u64::MAX / 2,
            matched: u64::MAX / 2,
            window_shards: u64::MAX / 2,
            window_rows: u64::MAX / 2,
            window_seconds: 1e-9,
            window_workers: 1e300,
            failures: failures.clone(),
            ..ProgressFacts::default()
        };
        scene.pods.unschedulable = Some(words.clone());
        scene.trouble = Some(Trouble { reason: "ApiError", message: words.clone() });
        scene.apply(json!({"dataset": {"sources": {"default": "agency"}}}));
        scene.step();
        prop_assert!(stored_bytes(&scene) < LARGEST, "{}", stored_bytes(&scene));

        let finished = scene.facts().clone();
        for lock in [
            LockFacts::Waiting { holder: words.clone() },
            LockFacts::Lost { by: words.clone() },
        ] {
            scene.facts().lock = lock;
            scene.step();
            prop_assert!(stored_bytes(&scene) < LARGEST);
        }
        *scene.facts() = finished;
        scene.facts().seal = SealFacts::Sealed(SealTotals {
            shards: 500_000,
            failed: 500_000,
            failure_report: Some(format!("s3://bucket/{}", "p".repeat(1_300))),
            failures,
            ..SealTotals::default()
        });
        scene.step();
        prop_assert!(stored_bytes(&scene) < LARGEST);
        scene.facts().plan = PlanFacts::Refused {
            reason: words.clone(),
            message: words.clone(),
        };
        scene.step();
        prop_assert!(stored_bytes(&scene) < LARGEST);
    }
}
