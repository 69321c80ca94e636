//! Jobs, and waiting for what becomes of them.

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

/// Much longer than anything takes, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// An Indexed Job whose failed indexes are not tried again. `container` is laid over a
/// container of that image.
pub fn indexed(name: &str, image: &str, completions: u32, container: &Value) -> Job {
    let mut whole = json!({
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    for (field, value) in container.as_object().unwrap() {
        whole[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": completions,
            "parallelism": completions,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 0,
            "podReplacementPolicy": "Failed",
            "template": {"spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 20,
                "containers": [whole],
            }},
        },
    }))
    .unwrap()
}

pub async fn create(client: &Client, job: &Job) {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), job).await.unwrap();
}

/// Waits until the Job has come to its end, whatever that is.
pub async fn await_end(client: &Client, name: &str) -> Job {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    until(&format!("the end of job {name}"), async || {
        let job = jobs.get(name).await.unwrap();
        let conditions = job.status.as_ref()?.conditions.as_ref()?;
        let ended = conditions.iter().any(|condition| {
            matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
        });
        ended.then_some(job)
    })
    .await
}

/// The Job's pods, in the order of their names.
pub async fn pods(client: &Client, job: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let of_job = ListParams::default().labels(&format!("job-name={job}"));
    let mut list = pods.list(&of_job).await.unwrap().items;
    list.sort_by_key(ResourceExt::name_any);
    list
}

/// Waits until a Job has so many running pods, and returns the name of the first.
pub async fn await_running(client: &Client, job: &str, count: usize) -> String {
    until(&format!("{count} running pods of {job}"), async || {
        let pods = pods(client, job).await;
        let running = pods.iter().filter(|pod| phase(pod) == "Running");
        (running.count() == count).then(|| pods[0].name_any())
    })
    .await
}

pub fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// How the pod's only container ended, if it has.
pub fn ending(pod: &Pod) -> Option<ContainerStateTerminated> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    containers.first()?.state.as_ref()?.terminated.clone()
}

/// Asks again and again until there is an answer.
///
/// # Panics
/// If there is none in time.
pub async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
