//! Jobs and pods, exactly as they are sent.

use k8s_openapi::api::batch::v1::Job;
use rules::build;
use rules::model::{JobSpec, Settings};
use serde_json::{Value, json};

use crate::scene::Scene;

/// With all that the kubelet would expand.
const PREFIX: &str = "s3://bucket/side$(car)$$(AWS_SECRET_ACCESS_KEY)$/";

fn spec() -> JobSpec {
    JobSpec {
        name: "photos-0123456789".to_owned(),
        run: "20250601-101500-222222".to_owned(),
        batch: 2,
        attempt: 1,
        epoch: 3,
        completions: 40,
        parallelism: 4,
        suspend: false,
        prefix: PREFIX.to_owned(),
        has_identity: false,
        digest: "9b1c".to_owned(),
        image: "worker:1".to_owned(),
    }
}

fn job(changes: Value, settings: &Settings) -> Job {
    build::job(&Scene::new(changes).object, &spec(), settings)
}

#[test]
fn a_plain_job() {
    let settings = Settings {
        worker_image: "worker:1".to_owned(),
        ..Settings::default()
    };
    let labels = json!({
        "sidecarjob.dev/job-uid": "uid-1",
        "sidecarjob.dev/run": "20250601-101500-222222",
        "sidecarjob.dev/batch": "2",
        "sidecarjob.dev/attempt": "1",
        "sidecarjob.dev/epoch": "3",
        "app.kubernetes.io/name": "sidecarjob-worker",
        "app.kubernetes.io/component": "worker",
        "app.kubernetes.io/managed-by": "sidecarjob-operator",
    });
    let template = build::template_digest(&Scene::new(json!({})).object, &spec(), &settings);
    let expected = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "photos-0123456789",
            "namespace": "team",
            "labels": labels,
            "annotations": {
                "sidecarjob.dev/job-name": "photos",
                "sidecarjob.dev/output": PREFIX,
                "sidecarjob.dev/pod-template": template,
            },
            "ownerReferences": [{
                "apiVersion": "sidecarjob.dev/v1alpha1",
                "kind": "SidecarJob",
                "name": "photos",
                "uid": "uid-1",
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "completionMode": "Indexed",
            "completions": 40,
            "parallelism": 4,
            "suspend": false,
            "backoffLimitPerIndex": 2,
            "maxFailedIndexes": 40,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                {
                    "action": "Ignore",
                    "onExitCodes":
                        {"containerName": "worker", "operator": "In", "values": [143]},
                },
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": "worker", "operator": "In", "values": [4]},
                },
                {
                    "action": "FailIndex",
                    "onExitCodes":
                        {"containerName": "worker", "operator": "In", "values": [1, 2, 3]},
                },
                {
                    "action": "Count",
                    "onExitCodes":
                        {"containerName": "worker", "operator": "NotIn", "values": [0]},
                },
                {
                    "action": "FailIndex",
                    "onExitCodes": {"operator": "NotIn", "values": [0]},
                },
            ]},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {
                        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                        "karpenter.sh/do-not-disrupt": "true",
                        "sidecarjob.dev/job-name": "photos",
                        "sidecarjob.dev/output": PREFIX,
                    },
                },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "terminationGracePeriodSeconds": 30,
                    "securityContext": {
                        "runAsNonRoot": true,
                        "runAsUser": 65532,
                        "runAsGroup": 65532,
                        "fsGroup": 65532,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
                    "containers": [{
                        "name": "worker",
                        "image": "worker:1",
                        "args": [
                            "chunk",
                            "--output-prefix",
                            "s3://bucket/side$$(car)$$$$(AWS_SECRET_ACCESS_KEY)$$/",
                            "--run", "20250601-101500-222222",
                            "--digest", "9b1c",
                            "--epoch", "3",
                            "--batch", "2",
                            "--attempt", "1",
                            "--log-format", "json",
                            "--termination-log", "/dev/termination-log",
                        ],
                        "env": [{"name": "TMPDIR", "value": "/tmp"}],
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "readOnlyRootFilesystem": true,
                            "capabilities": {"drop": ["ALL"]},
                        },
                        "terminationMessagePolicy": "FallbackToLogsOnError",
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    }],
                },
            },
        },
    });
    let job = serde_json::to_value(job(json!({}), &settings)).unwrap();
    assert_eq!(job, expected);
}

#[test]
fn all_that_a_spec_may_say_of_workers() {
    let changes = json!({
        "worker": {
            "image": "mine:2",
            "imagePullPolicy": "Never",
            "imagePullSecrets": [{"name": "registry"}],
            "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}},
            "serviceAccountName": "writer",
            "nodeSelector": {"pool": "batch"},
            "tolerations": [
                {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute",
                 "tolerationSeconds": 5},
            ],
            "priorityClassName": "low",
            "env": [
                {"name": "RUST_LOG", "value": "debug=$(HOME)"},
                {"name": "AWS_REGION", "value": "of-an-older-object"},
                {"name": "AWS_ENDPOINT_URL_STS", "value": "of-an-older-object"},
                {"name": "SIDECARJOB_LOCK_TTL_SECONDS", "value": "of-an-older-object"},
            ],
            "podLabels": {"team": "photos", "sidecarjob.dev/run": "forged"},
            "podAnnotations": {"note": "hi"},
            "disruption": "Allow",
            "terminationGracePeriodSeconds": 60,
        },
        "storage": {
            "endpoint": "http://store:9000",
            "region": "eu-central-1",
            "pathStyle": true,
            "requestChecksums": "WhenRequired",
            "credentialsSecretRef": {"name": "bucket-keys"},
        },
        "queue": "team-queue",
    });
    let settings = Settings {
        worker_environment: [("AWS_ENDPOINT_URL_S3", "http://default"), ("LANG", "C")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Settings::default()
    };
    let spec = JobSpec {
        has_identity: true,
        ..spec()
    };
    let job = build::job(&Scene::new(changes).object, &spec, &settings);
    let job = serde_json::to_value(job).unwrap();
    assert_eq!(
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"],
        "team-queue"
    );
    assert_eq!(
        job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"],
        "1"
    );
    let template = &job["spec"]["template"];
    assert_eq!(template["metadata"]["labels"]["team"], "photos");
    assert_eq!(
        template["metadata"]["labels"]["sidecarjob.dev/run"],
        "20250601-101500-222222"
    );
    assert_eq!(
        template["metadata"]["annotations"],
        json!({
            "note": "hi",
            "sidecarjob.dev/job-name": "photos",
            "sidecarjob.dev/output": PREFIX,
        })
    );
    let pod = &template["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    assert_eq!(pod["serviceAccountName"], "writer");
    assert_eq!(pod["nodeSelector"], json!({"pool": "batch"}));
    assert_eq!(pod["priorityClassName"], "low");
    assert_eq!(pod["terminationGracePeriodSeconds"], 60);
    assert_eq!(
        pod["tolerations"],
        json!([
            {"key": "spot", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute",
             "tolerationSeconds": 5},
        ])
    );
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "mine:2");
    assert_eq!(container["imagePullPolicy"], "Never");
    assert_eq!(
        container["resources"],
        json!({"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}})
    );
    let secret = |name: &str| json!({"name": "bucket-keys", "key": name});
    assert_eq!(
        container["env"],
        json!([
            {"name": "AWS_ACCESS_KEY_ID",
             "valueFrom": {"secretKeyRef": secret("AWS_ACCESS_KEY_ID")}},
            {"name": "AWS_EC2_METADATA_DISABLED", "value": "true"},
            {"name": "AWS_ENDPOINT_URL_S3", "value": "http://store:9000"},
            {"name": "AWS_REGION", "value": "eu-central-1"},
            {"name": "AWS_REQUEST_CHECKSUM_CALCULATION", "value": "when_required"},
            {"name": "AWS_SECRET_ACCESS_KEY",
             "valueFrom": {"secretKeyRef": secret("AWS_SECRET_ACCESS_KEY")}},
            {"name": "AWS_SESSION_TOKEN", "valueFrom": {"secretKeyRef":
                {"name": "bucket-keys", "key": "AWS_SESSION_TOKEN", "optional": true}}},
            {"name": "LANG", "value": "C"},
            {"name": "RUST_LOG", "value": "debug=$$(HOME)"},
            {"name": "SIDECARJOB_S3_PATH_STYLE", "value": "true"},
            {"name": "TMPDIR", "value": "/tmp"},
        ])
    );
}

#[test]
fn labels_are_copied_by_an_allow_list_but_never_those_that_get_a_job_pruned() {
    let mut scene = Scene::new(json!({}));
    scene.object.metadata.labels = Some(
        [
            ("team", "photos"),
            ("secret", "no"),
            ("app.kubernetes.io/instance", "argo"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    );
    let settings = Settings {
        copied_labels: vec!["team".to_owned(), "app.kubernetes.io/instance".to_owned()],
        ..Settings::default()
    };
    let job = build::job(&scene.object, &spec(), &settings);
    let labels = job.metadata.labels.unwrap();
    assert_eq!(labels["team"], "photos");
    assert!(!labels.contains_key("secret"));
    assert!(!labels.contains_key("app.kubernetes.io/instance"));
}
