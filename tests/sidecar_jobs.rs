//! SidecarJobs of an API server, as tests look at them and wait for them.

#![allow(dead_code, reason = "not every test binary needs all of it")]

use std::time::{Duration, Instant};

use crds::{ShardCounts, SidecarJob};
use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

/// Between two looks.
const POLL: Duration = Duration::from_millis(100);

fn find<'a>(object: &'a SidecarJob, kind: &str) -> Option<&'a Condition> {
    let mut conditions = object.status.as_ref()?.conditions.iter();
    conditions.find(|condition| condition.type_ == kind)
}

/// Status of a condition.
pub fn condition<'a>(object: &'a SidecarJob, kind: &str) -> Option<&'a str> {
    find(object, kind).map(|found| found.status.as_str())
}

/// Reason of a condition.
pub fn reason<'a>(object: &'a SidecarJob, kind: &str) -> Option<&'a str> {
    find(object, kind).map(|found| found.reason.as_str())
}

/// Reason and message of a condition.
pub fn words<'a>(object: &'a SidecarJob, kind: &str) -> (&'a str, &'a str) {
    find(object, kind).map_or(("", ""), |found| (&found.reason, &found.message))
}

pub fn is_true(object: &SidecarJob, kind: &str) -> bool {
    condition(object, kind) == Some("True")
}

pub fn phase(object: &SidecarJob) -> &str {
    let phase = object
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    phase.unwrap_or_default()
}

/// What `kubectl get` shows as MESSAGE.
pub fn message(object: &SidecarJob) -> &str {
    let status = object.status.as_ref();
    status
        .and_then(|status| status.message.as_deref())
        .unwrap_or_default()
}

pub fn counts(object: &SidecarJob) -> ShardCounts {
    let status = object.status.as_ref();
    status
        .and_then(|status| status.shards.clone())
        .unwrap_or_default()
}

/// Deletes an object. One that has gone since the test saw it is as good as deleted: the operator
/// and the controllers delete, too.
pub async fn delete<K>(api: &Api<K>, name: &str, parameters: &DeleteParams)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.delete(name, parameters).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => panic!("{name} can't be deleted: {error}"),
    }
}

/// Lets a namespace have so many pods.
pub async fn limit_pods(client: &Client, namespace: &str, limit: Duration, pods: &str) {
    let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
        "spec": {"hard": {"pods": pods}},
    });
    let parameters = PatchParams::apply("test").force();
    let quota = Patch::Apply(&quota);
    quotas.patch("few", &parameters, &quota).await.unwrap();
    // Nothing is counted against a quota before its controller has seen it.
    eventually(limit, "the quota holds", async || {
        let quota = quotas.get("few").await.unwrap();
        let hard = quota.status?.hard?;
        (hard.get("pods")?.0 == pods).then_some(())
    })
    .await;
}

/// Deletes every object of an API.
pub async fn delete_all<K>(api: &Api<K>, parameters: &DeleteParams)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    for object in api.list_metadata(&ListParams::default()).await.unwrap() {
        let name = object.metadata.name.unwrap_or_default();
        delete(api, &name, parameters).await;
    }
}

/// Waits until something is so.
pub async fn eventually<T>(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not after {limit:?}");
        tokio::time::sleep(POLL).await;
    }
}

/// Waits until a SidecarJob is as `is_right` says.
pub async fn wait(
    objects: &Api<SidecarJob>,
    limit: Duration,
    name: &str,
    what: &str,
    is_right: impl Fn(&SidecarJob) -> bool,
) -> SidecarJob {
    let deadline = Instant::now() + limit;
    loop {
        let object = objects.get(name).await.unwrap();
        if is_right(&object) {
            return object;
        }
        assert!(
            Instant::now() < deadline,
            "{name} is not {what} after {limit:?}: {:#}",
            json!(object.status)
        );
        tokio::time::sleep(POLL).await;
    }
}

pub async fn patch(objects: &Api<SidecarJob>, name: &str, patch: &Value) -> SidecarJob {
    let parameters = PatchParams::default();
    let patched = objects.patch(name, &parameters, &Patch::Merge(patch)).await;
    patched.unwrap()
}

/// Reasons and notes of the events about an object.
pub async fn events(client: &Client, namespace: &str, name: &str) -> Vec<(String, String)> {
    let events: Api<Event> = Api::namespaced(client.clone(), namespace);
    let all = events.list(&ListParams::default()).await.unwrap();
    let about = all.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|regarding| regarding.name.as_deref() == Some(name))
    });
    about
        .map(|event| {
            (
                event.reason.unwrap_or_default(),
                event.note.unwrap_or_default(),
            )
        })
        .collect()
}

/// Lays the fields of one value over those of another.
pub fn lay_over(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (name, value) in above {
                lay_over(below.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}
