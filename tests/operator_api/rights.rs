//! The rights that `config/` gives are enough, and not more than that.

use std::collections::BTreeSet;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use crate::operator::{Operator, Start};
use crate::place::{Place, eventually, kustomize, repository};
use crate::pods::PodRunner;
use crate::sidecar_jobs::{delete, is_true};

/// Rights that not every run's requests show: why they are there is said beside them. A Job is read
/// before a further attempt only if a worker of the one before had begun; events and Workloads are
/// listed while a Job stands still; pods are deleted if they hang.
const UNSEEN: [(&str, &str); 6] = [
    ("events", "list"),
    ("jobs", "get"),
    ("namespaces", "get"),
    ("pods", "delete"),
    ("sidecarjobs/finalizers", "update"),
    ("workloads", "list"),
];

/// What everybody may who has an account: to ask who one is.
const EVERYBODYS: (&str, &str) = ("selfsubjectreviews", "create");

/// The roles of the operator, with the one that a tenant binds.
const ROLES: [&str; 3] = [
    "sidecarjob-operator",
    "sidecarjob-operator-lease",
    "sidecarjob-operator-secrets",
];

/// What the rules of a role allow, as resource and verb.
fn allowed(role: &DynamicObject) -> BTreeSet<(String, String)> {
    let words = |rule: &Value, key: &str| -> Vec<String> {
        serde_json::from_value(rule[key].clone()).unwrap()
    };
    let rules = role.data["rules"].as_array().unwrap();
    let pairs = rules.iter().flat_map(|rule| {
        let verbs = words(rule, "verbs");
        let resources = words(rule, "resources");
        resources.into_iter().flat_map(move |resource| {
            verbs
                .clone()
                .into_iter()
                .map(move |verb| (resource.clone(), verb))
        })
    });
    pairs.collect()
}

/// Does everything that an operator ever does.
async fn do_everything(place: &Place) {
    let root = place.dataset("d", 24);
    let pods = PodRunner::limited(place, 1);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "keys", "namespace": place.namespace},
        "stringData": {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"},
    });
    let secrets: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(place.client.clone(), &place.namespace);
    let secret = serde_json::from_value(secret).unwrap();
    secrets
        .create(&PostParams::default(), &secret)
        .await
        .unwrap();
    // Asks for the Secret; the paths are the operator's own, so that it is never used.
    let spec = json!({
        "storage": {"credentialsSecretRef": {"name": "keys"}},
        "canary": {"shards": 2}, "throughput": {"maxWorkers": 1},
        "ttlSecondsAfterFinished": 1,
    });
    place.create(&place.job("photos", &root, &spec)).await;
    place.wait_until_under_way("photos").await;
    let jobs = place.jobs();
    let active = async || {
        let jobs = jobs.list(&ListParams::default()).await.unwrap();
        jobs.items.into_iter().find(|job| {
            let status = job.status.clone().unwrap_or_default();
            status.active.is_some_and(|active| active > 0)
        })
    };
    eventually("a Job is under way", &active).await;
    // From here on no pod begins, so that the run can't end before all is done that is asked of it.
    pods.set_limit(0);
    // Suspended and resumed, which patches Jobs, whose reasons give the same event twice.
    for suspend in [true, false, true, false] {
        place
            .patch("photos", &json!({"spec": {"suspend": suspend}}))
            .await;
        place
            .wait("photos", "suspended or resumed", |object| {
                is_true(object, "Suspended") == suspend
            })
            .await;
    }
    // A deleted Job makes a further attempt, before which the API server is asked.
    let job = eventually("a Job is under way", &active).await;
    let name = job.metadata.name.unwrap();
    delete(&jobs, &name, &DeleteParams::background()).await;
    pods.set_limit(4);
    eventually("the job has ended and is deleted", async || {
        place
            .objects()
            .get_opt("photos")
            .await
            .unwrap()
            .is_none()
            .then_some(())
    })
    .await;
}

/// A job that names no Secret is asked for the role of its service account.
async fn no_identity(place: &Place) {
    let root = place.folder.path().join("d");
    let mut object = json!(place.job("nobody", &root, &json!({})));
    object["spec"]["output"]["prefix"] = json!("s3://bucket/out/");
    place.create(&serde_json::from_value(object).unwrap()).await;
    place
        .wait("nobody", "stalled", |object| is_true(object, "Stalled"))
        .await;
}

#[tokio::test]
async fn the_rights_in_the_cluster_are_just_sufficient() {
    let Some(place) = Place::new("rights").await else {
        return;
    };
    // It is created only where there is none.
    let leases: Api<Lease> = Api::namespaced(place.client.clone(), "sidecarjob-system");
    let parameters = DeleteParams::background();
    leases.delete("sidecarjob-operator", &parameters).await.ok();
    let before = place.cluster.requests().unwrap().len();
    let operator = Operator::begin(&place).await;
    do_everything(&place).await;
    no_identity(&place).await;
    assert!(operator.terminate().success());
    let user = "system:serviceaccount:sidecarjob-system:sidecarjob-operator";
    let mut used = BTreeSet::new();
    for request in place.cluster.requests().unwrap().split_off(before) {
        if request.user == user && !request.resource.is_empty() {
            assert_ne!(request.code, 403, "{request:?}");
            if (request.resource.as_str(), request.verb.as_str()) == EVERYBODYS {
                continue;
            }
            used.insert((request.resource, request.verb));
        }
    }
    let roles = kustomize(place.cluster, "");
    let mut rights = BTreeSet::new();
    for role in &roles {
        let name = role.metadata.name.as_deref().unwrap_or_default();
        if ROLES.contains(&name) && role.data.get("rules").is_some() {
            rights.extend(allowed(role));
        }
    }
    let unseen = UNSEEN.map(|(resource, verb)| (resource.to_owned(), verb.to_owned()));
    assert!(unseen.iter().all(|right| rights.contains(right)));
    let unused: Vec<_> = rights
        .difference(&used)
        .filter(|right| !unseen.contains(right))
        .collect();
    assert!(unused.is_empty(), "rights that nothing uses: {unused:?}");
    let missing: Vec<_> = used.difference(&rights).collect();
    assert!(
        missing.is_empty(),
        "used, but not granted here: {missing:?}"
    );
}

#[tokio::test]
async fn one_namespace_takes_roles_only() {
    let Some(place) = Place::new("outside").await else {
        return;
    };
    let team = "sidecarjob-team";
    let parameters = PostParams::default();
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(place.client.clone());
    let namespace = json!({"metadata": {"name": team}});
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&parameters, &namespace).await.unwrap();
    let config = repository().join("config/namespaced");
    let config = config.display().to_string();
    place
        .cluster
        .kubectl(&["apply", "--server-side", "-k", &config])
        .unwrap();
    let kinds = kustomize(place.cluster, "namespaced");
    let kinds: Vec<String> = kinds
        .into_iter()
        .filter_map(|object| Some(object.types?.kind))
        .collect();
    assert!(
        !kinds.iter().any(|kind| kind.starts_with("Cluster")),
        "{kinds:?}"
    );

    let mut inside = place;
    let elsewhere = std::mem::replace(&mut inside.namespace, team.to_owned());
    let place = inside;
    let mut start = Start::new(&place).argument(&format!("--namespace={team}"));
    start.account = (team, "sidecarjob-operator");
    let operator = start.begin().await;
    operator.wait_for("leader").await;
    do_everything(&place).await;
    let user = format!("system:serviceaccount:{team}:sidecarjob-operator");
    for request in place.cluster.requests().unwrap() {
        if request.user == user && !request.resource.is_empty() {
            assert_ne!(request.code, 403, "{request:?}");
            if request.resource != EVERYBODYS.0 {
                assert_eq!(request.namespace, team, "{request:?}");
            }
        }
    }
    // An object elsewhere is none of its business.
    let root = place.folder.path().join("d");
    let mut foreign = place.job("foreign", &root, &json!({}));
    foreign.metadata.namespace = Some(elsewhere.clone());
    let objects: Api<crds::SidecarJob> = Api::namespaced(place.client.clone(), &elsewhere);
    objects.create(&parameters, &foreign).await.unwrap();
    let root = place.dataset("e", 2);
    let _pods = PodRunner::begin(&place);
    place.create(&place.job("own", &root, &json!({}))).await;
    place.wait_for_end("own").await;
    let foreign = objects.get("foreign").await.unwrap();
    assert_eq!(foreign.status.unwrap().observed_generation, Some(-1));
}
