//! What one tenant can't do to another, or to the operator.

use std::collections::BTreeSet;
use std::sync::Arc;

use crds::SidecarJob;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use operator::apply::Applier;
use operator::events::Events;
use operator::identity::{Identities, Rights};
use operator::leader::Election;
use operator::memory::Memory;
use operator::metrics::Metrics;
use operator::runner::{Pace, Runners};
use rules::model::{Action, Asked, Decision, Observed, ObservedJob, ObservedPods, Settings};
use serde_json::{Value, json};

use crate::operator::{Operator, Start};
use crate::place::{Place, SECRETS_BINDING, eventually, record, repository, shards};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{is_true, words};

/// What the kubelet makes of `$` must be what was meant: the prefix reaches the worker as it is,
/// and nothing of the worker's environment gets into it.
#[tokio::test]
async fn a_prefix_with_dollars_reaches_the_workers_as_it_is() {
    let Some(place) = Place::new("dollars").await else {
        return;
    };
    let root = place.dataset("d", 4);
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let name = "a$(TMPDIR)b$$(TMPDIR)c$d$$e$(NOBODY)";
    let output = place.output(name);
    let spec = json!({
        "output": {"prefix": format!("{}/", output.display())},
        "canary": {"shards": 0},
    });
    place.create(&place.job("dollars", &root, &spec)).await;
    let object = place.wait_for_end("dollars").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    assert_eq!(shards(&output).len(), 4);
    let folders = std::fs::read_dir(place.folder.path().join("out")).unwrap();
    assert_eq!(folders.count(), 1, "nothing was written elsewhere");
}

/// Another namespace, in which somebody else may do what they like.
async fn elsewhere(place: &Place) -> String {
    let name = format!("{}-forger", place.namespace);
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let parameters = PostParams::default();
    namespaces.create(&parameters, &namespace).await.unwrap();
    name
}

fn plain_job(name: &str, metadata: Value) -> Job {
    let mut job = json!({
        "metadata": {"name": name},
        "spec": {
            "suspend": true,
            "template": {"spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "worker", "image": "localhost/none:1"}],
            }},
        },
    });
    for (key, value) in metadata.as_object().unwrap() {
        job["metadata"][key] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

/// Labels and owner by which a Job passes for one of `object`'s.
fn forged(object: &SidecarJob) -> Value {
    let run = object.status.clone().unwrap().run.unwrap().name;
    json!({
        "labels": {
            "sidecarjob.dev/job-uid": object.uid(), "sidecarjob.dev/run": run,
            "sidecarjob.dev/batch": "999", "sidecarjob.dev/attempt": "1",
            "sidecarjob.dev/epoch": "1",
        },
        "ownerReferences": [{
            "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
            "name": object.name_any(), "uid": object.uid(), "controller": true,
        }],
    })
}

/// A Job and a pod elsewhere that name the object as their owner: it would have the operator delete
/// a Job of the forged one's name beside the object, and believe the forged pod.
#[tokio::test]
async fn a_forged_owner_in_another_namespace_changes_nothing() {
    let Some(place) = Place::new("forged").await else {
        return;
    };
    let root = place.dataset("d", 16);
    let seen = record(&place).await;
    let operator = Operator::begin(&place).await;
    let pods = PodRunner::limited(&place, 0);
    let spec = json!({"canary": {"shards": 0}});
    place.create(&place.job("photos", &root, &spec)).await;
    let object = place
        .wait("photos", "planned", |object| is_true(object, "Planned"))
        .await;
    let parameters = PostParams::default();
    // Somebody's own Job beside the object, and the forger's of the same name.
    let bystander = plain_job("nightly", json!({}));
    place.jobs().create(&parameters, &bystander).await.unwrap();
    let there = elsewhere(&place).await;
    let jobs: Api<Job> = Api::namespaced(place.client.clone(), &there);
    let forgery = plain_job("nightly", forged(&object));
    jobs.create(&parameters, &forgery).await.unwrap();
    let pod = json!({
        "metadata": {
            "name": "forged", "labels": {"sidecarjob.dev/job-uid": object.uid()},
        },
        "spec": {"containers": [{"name": "worker", "image": "localhost/none:1"}]},
    });
    let others: Api<Pod> = Api::namespaced(place.client.clone(), &there);
    let account = json!({"metadata": {"name": "default"}});
    let accounts: Api<k8s_openapi::api::core::v1::ServiceAccount> =
        Api::namespaced(place.client.clone(), &there);
    // The controllers make it in a moment, too.
    let _ = accounts
        .create(&parameters, &serde_json::from_value(account).unwrap())
        .await;
    let pod: Pod = serde_json::from_value(pod).unwrap();
    others.create(&parameters, &pod).await.unwrap();
    let status = json!({"status": {"phase": "Pending", "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "forged",
    }]}});
    let patch = PatchParams::default();
    let status = Patch::Merge(&status);
    let patched = others.patch_status("forged", &patch, &status).await;
    patched.unwrap();

    pods.set_limit(4);
    let object = place.wait_for_end("photos").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    for version in seen.lock().unwrap().iter() {
        let status = json!(version.status).to_string();
        assert!(!status.contains("forged"), "{status}");
    }
    let bystander = place.jobs().get("nightly").await.unwrap();
    assert!(bystander.metadata.deletion_timestamp.is_none());
    let requests = place.cluster.requests().unwrap();
    let to_it = requests
        .iter()
        .filter(|request| request.namespace == place.namespace && request.name == "nightly");
    let verbs: BTreeSet<_> = to_it
        .filter(|request| request.user.ends_with(":sidecarjob-operator"))
        .map(|request| request.verb.clone())
        .collect();
    assert!(verbs.is_empty(), "{verbs:?}");
    drop(operator);
}

/// A decision about a Job that has gone, of whose name there is another by now.
#[tokio::test]
async fn only_the_very_job_that_was_seen_is_deleted() {
    let Some(place) = Place::new("another").await else {
        return;
    };
    let root = place.dataset("d", 1);
    place.create(&place.job("photos", &root, &json!({}))).await;
    let job = plain_job("photos-0123456789", json!({}));
    let parameters = PostParams::default();
    let job = place.jobs().create(&parameters, &job).await.unwrap();
    let mut election = Election::new(place.client.clone(), &place.namespace, "lease", "me");
    election.win().await;
    let (runners, _woken) = Runners::new(Pace::default());
    let applier = Applier {
        client: place.client.clone(),
        runners: Arc::new(runners),
        identities: Arc::new(Identities::new(place.client.clone(), Rights::default())),
        memory: Arc::new(Memory::default()),
        events: Events::new(place.client.clone(), "me"),
        metrics: Arc::new(Metrics::new().unwrap()),
        leadership: election.leadership(),
    };
    let delete = async |uid: &str| {
        let observed = Observed {
            object: Arc::new(place.object("photos").await),
            jobs: vec![ObservedJob {
                name: job.name_any(),
                uid: uid.to_owned(),
                ..ObservedJob::default()
            }],
            pods: ObservedPods::default(),
            asked: Asked::default(),
            run: None,
            refusal: None,
            has_identity: false,
            is_namespace_going: false,
            trouble: None,
            live_written_ms: None,
            random: 0,
            settings: Arc::new(Settings::default()),
        };
        let decision = Decision {
            actions: vec![Action::DeleteJob {
                name: job.name_any(),
            }],
            ..Decision::default()
        };
        applier.apply(&observed, decision).await
    };
    let error = delete("6d1a8a9e-0000-4000-8000-000000000000").await;
    assert!(error.unwrap_err().is_outdated());
    let stays = place.jobs().get(&job.name_any()).await.unwrap();
    assert!(stays.metadata.deletion_timestamp.is_none());
    delete(&job.uid().unwrap()).await.unwrap();
}

/// The Job controller keeps the ended pods of a Job until there are others in their place, which a
/// namespace that is being deleted takes no more.
#[tokio::test]
async fn a_namespace_goes_while_workers_are_at_it() {
    let Some(place) = Place::new("going").await else {
        return;
    };
    let root = place.dataset("d", 60);
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::limited(&place, 2);
    let spec = json!({"canary": {"shards": 0}, "throughput": {"maxWorkers": 2}});
    place.create(&place.job("photos", &root, &spec)).await;
    place.wait_until_under_way("photos").await;
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    let parameters = DeleteParams::default();
    namespaces
        .delete(&place.namespace, &parameters)
        .await
        .unwrap();
    eventually("the namespace is gone", async || {
        let found = namespaces.get_opt(&place.namespace).await.unwrap();
        found.is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_endpoint_or_an_account_that_is_not_allowed_is_refused_in_words() {
    let Some(place) = Place::new("refused").await else {
        return;
    };
    let mut start = Start::new(&place);
    start
        .arguments
        .retain(|argument| !argument.contains("allow-endpoint"));
    let own = "--own-identity-prefix=sidecarjob-system=s3://bucket/";
    let operator = start
        .argument("--allow-endpoint=*")
        .argument(own)
        .begin()
        .await;
    operator.wait_for("leader").await;
    let root = place.folder.path().join("d");
    let storage = |endpoint: &str| json!({"storage": {"endpoint": endpoint}});
    for (name, endpoint) in [
        ("metadata", "http://169.254.169.254"),
        ("decimal", "http://2852039166"),
        ("here", "http://127.0.0.1:8080"),
    ] {
        place
            .create(&place.job(name, &root, &storage(endpoint)))
            .await;
        let object = place
            .wait(name, "stalled", |object| is_true(object, "Stalled"))
            .await;
        let (reason, message) = words(&object, "Stalled");
        assert_eq!(reason, "EndpointNotAllowed", "{message}");
        assert!(message.contains("--allow-endpoint"), "{message}");
    }
    // The operator's own account may have a role of its own, which no worker is to get.
    let mut system = place;
    let namespace = std::mem::replace(&mut system.namespace, "sidecarjob-system".to_owned());
    let place = system;
    let account = json!({"worker": {"serviceAccountName": "sidecarjob-operator"}});
    let mut object = json!(place.job("own-account", &root, &account));
    let main = object["spec"]["dataset"]["mainPrefix"].clone();
    let text = object.to_string().replace(
        main.as_str().unwrap().trim_end_matches("main/"),
        "s3://bucket/",
    );
    object = serde_json::from_str(&text).unwrap();
    object["spec"]["output"]["prefix"] = json!("s3://bucket/out/");
    place.create(&serde_json::from_value(object).unwrap()).await;
    let object = place
        .wait("own-account", "stalled", |object| {
            is_true(object, "Stalled")
        })
        .await;
    let (reason, message) = words(&object, "Stalled");
    assert_eq!(reason, "ServiceAccountNotAllowed", "{message}");
    let parameters = DeleteParams::default();
    place
        .objects()
        .delete("own-account", &parameters)
        .await
        .unwrap();
    assert!(namespace.starts_with("refused"));
}

/// With what `kubectl apply -k config/` installs the operator reads no Secret, until a tenant lets
/// it or `config/all-secrets` is part of the installation.
#[tokio::test]
async fn secrets_are_read_where_somebody_allows_it() {
    let Some(place) = Place::new("allowed").await else {
        return;
    };
    let kubectl = |arguments: &[&str]| place.cluster.kubectl(arguments).unwrap();
    let own = ["--namespace", place.namespace.as_str()];
    let unbind = ["delete", "rolebinding", SECRETS_BINDING];
    kubectl(&[&unbind[..], &own].concat());
    let keys = [
        "create",
        "secret",
        "generic",
        "keys",
        "--from-literal=AWS_ACCESS_KEY_ID=id",
        "--from-literal=AWS_SECRET_ACCESS_KEY=secret",
    ];
    kubectl(&[&keys[..], &own].concat());
    let _operator = Operator::begin(&place).await;
    let _pods = PodRunner::begin(&place);
    let root = place.dataset("d", 2);
    // Asks for the Secret; the paths are the operator's own, so that it is never used.
    let spec = json!({
        "storage": {"credentialsSecretRef": {"name": "keys"}}, "canary": {"shards": 0},
    });
    let create = async |name: &str| {
        place.create(&place.job(name, &root, &spec)).await;
        let is_settled =
            |object: &SidecarJob| is_true(object, "Stalled") || is_true(object, "Complete");
        place.wait(name, "stalled or complete", is_settled).await
    };
    let object = create("nobody").await;
    let (reason, message) = words(&object, "Stalled");
    assert_eq!(reason, "SecretForbidden", "{message}");
    assert!(message.contains("sidecarjob-operator-secrets"), "{message}");

    place.let_secrets_be_read();
    let object = create("tenant").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));

    // The installation that allows it everywhere, as its file says to make it.
    kubectl(&[&unbind[..], &own].concat());
    let target = repository().join("target");
    std::fs::create_dir_all(&target).unwrap();
    let overlay = tempfile::tempdir_in(&target).unwrap();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": ["../../config"],
        "components": ["../../config/all-secrets", "../../config/network-policy"],
    });
    let file = overlay.path().join("kustomization.yaml");
    std::fs::write(file, kustomization.to_string()).unwrap();
    let overlay = overlay.path().display().to_string();
    kubectl(&["apply", "--server-side", "-k", &overlay]);
    let object = create("everybody").await;
    assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    kubectl(&["delete", "clusterrolebinding", SECRETS_BINDING]);
    let workers = repository().join("config/network-policy/workers.yaml");
    let workers = workers.display().to_string();
    kubectl(&[&["apply", "-f", workers.as_str()][..], &own].concat());
}
