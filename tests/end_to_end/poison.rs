//! Shards that can't be made: listed, judged by the spec, and made once they were mended.

use harness::dataset::Shape;
use serde_json::{Value, json};

use crate::outputs::{Witness, assert_same};
use crate::place::Place;
use crate::sidecar_jobs::{counts, is_true, words};
use crate::site::shared;

const POISONED: [usize; 3] = [4, 17, 33];

#[tokio::test]
async fn poisoned_shards_are_listed_and_made_when_they_were_mended() {
    let _node = shared().await;
    let shape = Shape {
        shards: 60,
        ..Place::SMALL
    };
    let Some(place) = Place::new("poison", shape).await else {
        return;
    };
    let sound = place.join_job("strict", &json!({}));
    let expected = place.of_one_machine(&sound);
    let good: Vec<_> = POISONED
        .map(|shard| std::fs::read(place.main_shard(shard)).unwrap())
        .into();
    for shard in POISONED {
        place.replace_main_shard(shard, b"no parquet at all").await;
    }
    let tolerant = place.join_job(
        "tolerant",
        &json!({"failurePolicy": {"maxFailedShards": 3}}),
    );
    place.create(&sound).await;
    place.create(&tolerant).await;

    let object = place.wait_for_end("tolerant").await;
    assert_eq!(words(&object, "Complete").0, "CompletedWithFailures");
    assert!(is_true(&object, "Ready"));
    let object = place.wait_for_end("strict").await;
    assert_eq!(words(&object, "Failed").0, "TooManyFailedShards");
    assert!(is_true(&object, "Stalled"));
    let mut without = (*expected).clone();
    for shard in POISONED {
        without.remove(&harness::dataset::path(shard)).unwrap();
    }
    for name in ["tolerant", "strict"] {
        let object = place.object(name).await;
        let found = counts(&object);
        assert_eq!((found.total, found.done, found.failed), (60, 57, 3));
        assert_same(&place.shards(name), &without);
        assert!(!place.output(name).join("_SUCCESS").exists());
        let status = object.status.clone().unwrap();
        let named: Vec<_> = status
            .failures
            .iter()
            .map(|failure| &failure.path)
            .collect();
        let mut paths = POISONED.map(harness::dataset::path);
        paths.sort();
        assert_eq!(
            named,
            paths.iter().collect::<Vec<_>>(),
            "{:?}",
            status.failures
        );
        let report = place.read(&status.failure_report.unwrap());
        // The first line says what it is about.
        let lines = report.lines().skip(1);
        let named: Vec<String> = lines
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["path"].to_string())
            .collect();
        assert_eq!(named, paths.map(|path| format!("{path:?}")), "{report}");
        let told = place.reasons(name).await;
        assert!(told.contains(&"ShardsFailed".to_owned()), "{told:?}");
    }

    // Mended: a run that somebody asks for makes these three and leaves the others alone.
    for (shard, bytes) in POISONED.into_iter().zip(good) {
        place.replace_main_shard(shard, &bytes).await;
    }
    let witness = Witness::of(place.output("strict"));
    let patch = json!({"metadata": {"annotations": {"sidecarjob.dev/rerun-requested-at": "now"}}});
    place.patch("strict", &patch).await;
    place.wait_for_second_run("strict").await;
    let object = place.wait_until_whole(&sound, witness).await;
    assert_eq!(counts(&object).kept, 57);
}
