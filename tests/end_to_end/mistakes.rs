//! Mistakes that somebody has to correct: each is named, and the job goes on once it is.

use harness::dataset::Shape;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::place::Place;
use crate::sidecar_jobs::{is_true, message, phase, words};
use crate::site::shared;

const FEW: Shape = Shape {
    shards: 3,
    ..Place::SMALL
};

async fn secret(place: &Place, name: &str, data: Value) {
    let secret = json!({"metadata": {"name": name}, "stringData": data});
    let secret = serde_json::from_value(secret).unwrap();
    let secrets: Api<Secret> = Api::namespaced(place.client.clone(), &place.namespace);
    let parameters = PostParams::default();
    secrets.create(&parameters, &secret).await.unwrap();
}

fn keys(name: &str) -> Value {
    json!({"storage": {"credentialsSecretRef": {"name": name}}})
}

#[tokio::test]
async fn mistakes_are_named_and_the_job_goes_on_once_they_are_corrected() {
    let _node = shared().await;
    let Some(place) = Place::new("mistakes", FEW).await else {
        return;
    };
    let (id, key) = (place.server.access_key(), place.server.secret_key());
    secret(&place, "half", json!({"AWS_ACCESS_KEY_ID": id})).await;
    let stranger = json!({"AWS_ACCESS_KEY_ID": "stranger", "AWS_SECRET_ACCESS_KEY": key});
    secret(&place, "strange", stranger).await;
    let endpoint = place.server.endpoint();
    let right = keys("keys");
    // What is wrong, what is said of it, and what makes it right.
    let cases: [(&str, Value, &str, &str, Value); 9] = [
        (
            "spec",
            json!({"dataset": {"mainPrefix": "s3://bucket/"}, "output": {"prefix": null}}),
            "InvalidSpec",
            "output.prefix",
            json!({"dataset": {"mainPrefix": "s3://bucket/main/"},
                   "output": {"prefix": "s3://bucket/out/spec/"}}),
        ),
        (
            "bucket",
            json!({"dataset": {"mainPrefix": "s3://no-such-bucket/main/"}}),
            "BucketNotFound",
            "no-such-bucket",
            json!({"dataset": {"mainPrefix": "s3://bucket/main/"}}),
        ),
        (
            "path",
            json!({"dataset": {"mainPrefix": "/data/main/"}}),
            "PrefixNotAllowed",
            "/data/main/",
            json!({"dataset": {"mainPrefix": "s3://bucket/main/"}}),
        ),
        (
            "missing",
            keys("nowhere"),
            "SecretNotFound",
            "nowhere",
            right.clone(),
        ),
        (
            "half",
            keys("half"),
            "SecretIncomplete",
            "AWS_SECRET_ACCESS_KEY",
            right.clone(),
        ),
        (
            "strange",
            keys("strange"),
            "AccessDenied",
            "strange",
            right.clone(),
        ),
        (
            "nobody",
            json!({"storage": {"credentialsSecretRef": null}}),
            "NoIdentity",
            "no identity",
            right,
        ),
        (
            "endpoint",
            json!({"storage": {"endpoint": "http://10.9.8.7:9000"}}),
            "EndpointNotAllowed",
            "10.9.8.7",
            json!({"storage": {"endpoint": endpoint}}),
        ),
        (
            "job",
            json!({"worker": {"resources": {"requests": {"memory": "2Gi"}}}}),
            "JobRefused",
            "must be less than or equal to memory limit",
            json!({"worker": {"resources": {"requests": {"memory": "32Mi"}}}}),
        ),
    ];
    for (name, wrong, ..) in &cases {
        place.create(&place.join_job(name, wrong)).await;
    }
    for (name, _, reason, said, right) in &cases {
        let object = place
            .wait(name, "stalled", |object| is_true(object, "Stalled"))
            .await;
        let (found, text) = words(&object, "Stalled");
        assert_eq!(found, *reason, "{name}: {text}");
        assert!(text.contains(said), "{name}: {text}");
        assert_eq!(
            (phase(&object), message(&object)),
            ("Stalled", text),
            "{name}"
        );
        place.patch(name, &json!({"spec": right})).await;
    }
    for (name, ..) in &cases {
        let object = place.wait_for_completion(name).await;
        assert!(!is_true(&object, "Stalled"));
        assert_eq!(place.shards(name).len(), FEW.shards, "{name}");
    }
}

/// What can't be made from the objects that are there ends the run; a corrected spec makes another.
#[tokio::test]
async fn runs_that_can_not_be_made_end_with_a_reason_and_another_makes_it_good() {
    let _node = shared().await;
    let Some(place) = Place::new("hopeless", FEW).await else {
        return;
    };
    // The output is another pipeline's, which another job made.
    place.create(&place.full_job("first", &json!({}))).await;
    place.wait_for_completion("first").await;
    let theirs = place.shards("first");
    // Who may write there has left a lock of megabytes.
    let heavy = vec![b'x'; 3 << 20];
    place.put("out/heavy/_sidecar/writer.json", heavy).await;
    let cases = [
        (
            "empty",
            json!({"dataset": {"mainPrefix": "s3://bucket/nothing/"}}),
            "NoShards",
            json!({"dataset": {"mainPrefix": "s3://bucket/main/"}}),
        ),
        (
            "conflict",
            json!({"output": {"prefix": "s3://bucket/out/first/"}}),
            "PrefixConflict",
            json!({"output": {"prefix": "s3://bucket/out/conflict/"}}),
        ),
        (
            "lock",
            json!({"output": {"prefix": "s3://bucket/out/heavy/"}}),
            "OutputUnusable",
            json!({"output": {"prefix": "s3://bucket/out/lock/"}}),
        ),
    ];
    for (name, wrong, reason, right) in cases {
        place.create(&place.join_job(name, &wrong)).await;
        let object = place
            .wait(name, "given up", |object| is_true(object, "Stalled"))
            .await;
        let (found, text) = words(&object, "Stalled");
        assert_eq!(found, reason, "{name}: {text}");
        let again = json!({
            "metadata": {"annotations": {"sidecarjob.dev/rerun-requested-at": "corrected"}},
            "spec": right,
        });
        place.patch(name, &again).await;
        place
            .wait(name, "made good", |object| is_true(object, "Complete"))
            .await;
        assert_eq!(place.shards(name).len(), FEW.shards, "{name}");
    }
    assert!(
        place.shards("first") == theirs,
        "nobody may have touched them"
    );
}
