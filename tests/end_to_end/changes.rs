//! What people change while a run goes on, and after it.

use std::time::Duration;

use harness::dataset::Shape;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::outputs::{Witness, assert_same};
use crate::place::{Place, eventually};
use crate::sidecar_jobs::{counts, is_true, phase, words};
use crate::site::shared;

fn rerun(token: &str) -> Value {
    json!({"metadata": {"annotations": {"sidecarjob.dev/rerun-requested-at": token}}})
}

/// Columns and pipeline without the join's second column.
fn less(place: &Place, name: &str) -> Value {
    let object = json!(place.join_job(name, &json!({})));
    let mut spec = json!({
        "columns": object["spec"]["columns"], "pipeline": object["spec"]["pipeline"],
    });
    let is_kept = |column: &Value| column["name"] != "file_size";
    spec["columns"].as_array_mut().unwrap().retain(is_kept);
    for step in spec["pipeline"].as_array_mut().unwrap() {
        if let Some(join) = step.get_mut("joinFromParquet") {
            let columns = join["columns"].as_array_mut().unwrap();
            columns.retain(|column| column != "file_size");
        }
    }
    spec
}

#[tokio::test]
async fn a_changed_pipeline_is_refused_or_replaces_the_run_as_the_spec_says() {
    let _node = shared().await;
    let Some(place) = Place::new("changes", Place::SMALL).await else {
        return;
    };
    for (name, policy) in [("reject", "Reject"), ("rerun", "Rerun")] {
        let mut slow = Place::slow();
        slow["onSpecChange"] = policy.into();
        place.create(&place.join_job(name, &slow)).await;
    }
    let mut changed = Vec::new();
    for name in ["reject", "rerun"] {
        place.wait_for_shards(name, 8).await;
        let spec = less(&place, name);
        place.patch(name, &json!({"spec": spec})).await;
        changed.push(place.join_job(name, &spec));
    }
    let object = place
        .wait("reject", "told of the change", |object| {
            words(object, "Stalled").0 == "SpecChangedAfterStart"
        })
        .await;
    assert!(counts(&object).done < 120, "it was too quick");
    let object = place
        .wait("rerun", "at its end", |object| is_true(object, "Complete"))
        .await;
    assert_eq!(counts(&object).done, 120);
    assert_same(&place.shards("rerun"), &place.of_one_machine(&changed[1]));
    let told = place.reasons("rerun").await;
    assert!(told.contains(&"ReplacingRun".to_owned()), "{told:?}");

    // The run goes on as it began; the change is made by a run that somebody asks for.
    let object = place.wait_for_completion("reject").await;
    assert_eq!(words(&object, "Stalled").0, "SpecChangedAfterStart");
    let original = place.join_job("reject", &json!({}));
    assert_same(&place.shards("reject"), &place.of_one_machine(&original));
    place.patch("reject", &rerun("as it is now")).await;
    place.wait_for_second_run("reject").await;
    let object = place.wait_for_completion("reject").await;
    assert!(!is_true(&object, "Stalled"));
    assert_same(&place.shards("reject"), &place.of_one_machine(&changed[0]));
}

#[tokio::test]
async fn a_run_pauses_after_its_canary_and_makes_good_what_people_delete() {
    let _node = shared().await;
    let Some(place) = Place::new("pause", Place::SMALL).await else {
        return;
    };
    let mut careful = Place::slow();
    careful["canary"] = json!({"shards": 6, "pause": true});
    let job = place.join_job("photos", &careful);
    place.create(&job).await;
    let paused = |object: &crds::SidecarJob| words(object, "Ready").0 == "PausedAfterCanary";
    let object = place.wait("photos", "paused", paused).await;
    assert!(is_true(&object, "CanaryPassed"));
    assert!(place.running().await.is_empty());
    assert_eq!(place.shards("photos").len(), 6);
    let go = json!({"spec": {"canary": {"pause": false}}});
    place.patch("photos", &go).await;

    // Somebody deletes a Job and, with it, pods in the middle of their work.
    place.wait_for_shards("photos", 12).await;
    let parameters = DeleteParams::background();
    let jobs = place.jobs().list(&ListParams::default()).await.unwrap();
    for job in jobs {
        crate::sidecar_jobs::delete(&place.jobs(), &job.name_any(), &parameters).await;
    }
    // Somebody deletes shards that were finished, before the run has ended.
    let victim = |shard| place.output("photos").join(harness::dataset::path(shard));
    let first = eventually("a finished shard goes", async || {
        (0..120).find(|shard| std::fs::remove_file(victim(*shard)).is_ok())
    })
    .await;
    let object = place.wait_for_completion("photos").await;
    assert_eq!(phase(&object), "Succeeded");
    let expected = place.of_one_machine(&job);
    assert_same(&place.shards("photos"), &expected);
    let told = place.reasons("photos").await;
    for reason in ["BatchRetried", "ShardsMissing"] {
        assert!(told.contains(&reason.to_owned()), "{told:?}");
    }

    // After the end nothing happens, until somebody asks.
    std::fs::remove_file(victim(first)).unwrap();
    let witness = Witness::of(place.output("photos"));
    place.patch("photos", &rerun("it is gone")).await;
    place.wait_for_second_run("photos").await;
    let object = place.wait_until_whole(&job, witness).await;
    assert_eq!(counts(&object).kept, 119);
}

/// A shard that somebody replaces under way is not made from two versions, nor passed over.
#[tokio::test]
async fn a_main_shard_that_changes_under_way_fails_and_is_made_by_the_next_run() {
    let _node = shared().await;
    let Some(place) = Place::new("moving", Place::SMALL).await else {
        return;
    };
    let mut slow = Place::slow();
    slow["failurePolicy"] = json!({"maxFailedShards": 1});
    place.create(&place.join_job("photos", &slow)).await;
    place.wait_for_shards("photos", 4).await;
    // One that comes late gets the bytes of its neighbour.
    let other = std::fs::read(place.main_shard(118)).unwrap();
    let last = harness::dataset::path(119);
    assert!(
        !place.output("photos").join(&last).exists(),
        "it was too quick"
    );
    place.replace_main_shard(119, &other).await;
    let object = place.wait_for_end("photos").await;
    assert_eq!(words(&object, "Complete").0, "CompletedWithFailures");
    let failures = object.status.unwrap().failures;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(failures[0].path, last);
    assert!(failures[0].reason.contains("changed"), "{failures:?}");

    place.patch("photos", &rerun("it was replaced")).await;
    place.wait_for_second_run("photos").await;
    let object = place.wait_for_completion("photos").await;
    assert_eq!((counts(&object).done, counts(&object).kept), (120, 119));
    assert!(place.output("photos").join(&last).exists());
}

/// What somebody deletes as soon as it is there is not made for ever.
#[tokio::test]
async fn an_output_that_never_stays_whole_ends_the_run() {
    let _node = shared().await;
    let few = Shape {
        shards: 3,
        ..Place::SMALL
    };
    let Some(place) = Place::new("vanishing", few).await else {
        return;
    };
    place.create(&place.join_job("photos", &json!({}))).await;
    let shard = place.output("photos").join(harness::dataset::path(1));
    let deleting = async {
        loop {
            let _ = std::fs::remove_file(&shard);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let object = tokio::select! {
        object = place.wait_for_end("photos") => object,
        () = deleting => unreachable!("it goes on for ever"),
    };
    assert_eq!(words(&object, "Failed").0, "OutputIncomplete");
    assert!(!place.output("photos").join("_SUCCESS").exists());
}
