//! The simulated Job controller beside the real one: what becomes of an index all of whose pods end
//! in the same way.

use std::time::{Duration, Instant};

use crds::SidecarJob;
use futures::future::join_all;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use rules::build;
use rules::model::{JobEnd, JobSpec, Settings};
use serde_json::json;

use crate::cluster::{Cluster, End};
use crate::random::Random;

/// Pods after which an index that still gets others is taken to get them for ever.
const MOST_PODS: usize = 4;
/// Much longer than the pauses between so many.
const LIMIT: Duration = Duration::from_secs(300);

/// What became of a Job with one index.
#[derive(Debug, PartialEq)]
struct Fate {
    /// When each of its pods was made, in seconds.
    pods: Vec<i64>,
    /// Why it ended, if it did.
    end: Option<String>,
}

fn job(name: &str) -> Job {
    let manifest = harness::dataset::join_job("s3://bucket", "s3://bucket/out/");
    let object: SidecarJob = serde_yaml::from_str(&manifest).unwrap();
    let spec = JobSpec {
        name: name.to_owned(),
        run: "20250601-101500-222222".to_owned(),
        batch: 0,
        attempt: 1,
        epoch: 1,
        completions: 1,
        parallelism: 1,
        suspend: false,
        prefix: "s3://bucket/out/".to_owned(),
        has_identity: false,
        digest: "9b1c".to_owned(),
        image: "worker:1".to_owned(),
    };
    let mut job = build::job(&object, &spec, &Settings::default());
    // There is no such object, so that nobody would keep the Job.
    job.metadata.owner_references = None;
    job.metadata.namespace = None;
    job
}

fn simulated(name: &str, end: End) -> Fate {
    let (mut cluster, mut random) = (Cluster::default(), Random::new(1));
    assert!(cluster.create("owner", &job(name)));
    let mut pods = Vec::new();
    for second in 0.. {
        cluster.control(name, 1, second * 1000, &mut random);
        let job = cluster.jobs.get_mut(name).unwrap();
        let over = job.seen.end.as_ref().map(|end| match end {
            JobEnd::Complete => "Complete".to_owned(),
            JobEnd::Failed { reason, .. } => reason.clone(),
        });
        if over.is_some() || pods.len() == MOST_PODS {
            return Fate { pods, end: over };
        }
        if !job.pods.is_empty() {
            pods.push(second);
            job.ended(0, end, second * 1000);
        }
    }
    unreachable!("seconds come to no end")
}

/// The status of a pod whose worker has ended.
fn ended(end: End) -> serde_json::Value {
    let (code, disrupted) = match end {
        End::Exit(code) => (code, false),
        End::Disrupted => (143, true),
    };
    let conditions = disrupted.then(|| {
        json!([{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "lastTransitionTime": "2025-06-01T10:00:00Z"}])
    });
    json!({"status": {
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "conditions": conditions,
        "containerStatuses": [{
            "name": "worker", "image": "worker:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": {"exitCode": code}},
        }],
    }})
}

async fn real(client: &Client, name: &str, end: End) -> Fate {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &job(name))
        .await
        .unwrap();
    let ours = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let (mut seen, mut pods) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + LIMIT;
    loop {
        let status = jobs.get(name).await.unwrap().status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        let over = conditions
            .find(|found| found.status == "True" && ["Complete", "Failed"].contains(&&*found.type_))
            .map(|found| match &*found.type_ {
                "Complete" => "Complete".to_owned(),
                _ => found.reason.clone().unwrap_or_default(),
            });
        if over.is_some() || pods.len() == MOST_PODS {
            return Fate { pods, end: over };
        }
        assert!(Instant::now() < deadline, "{name}: {pods:?}, {status:?}");
        for pod in all.list(&ours).await.unwrap() {
            let uid = pod.uid().unwrap();
            if seen.contains(&uid) {
                continue;
            }
            seen.push(uid);
            pods.push(pod.creation_timestamp().unwrap().0.as_second());
            let patch = Patch::Merge(ended(end));
            let parameters = PatchParams::default();
            let name = pod.name_any();
            all.patch_status(&name, &parameters, &patch).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn an_index_has_the_same_fate_with_the_simulated_and_the_real_job_controller() {
    let Some(cluster) = harness::cluster::Cluster::control_plane() else {
        return;
    };
    let client = cluster.client().await.unwrap();
    let mut ends: Vec<End> = [0, 1, 2, 3, 4, 5, 101, 137, 143].map(End::Exit).into();
    ends.push(End::Disrupted);
    let named = ends.iter().enumerate();
    let named: Vec<(String, End)> = named.map(|(at, end)| (format!("end-{at}"), *end)).collect();
    let fates = join_all(named.iter().map(|(name, end)| real(&client, name, *end))).await;
    for ((name, end), real) in named.iter().zip(fates) {
        let simulated = simulated(name, *end);
        let told = format!("{end:?}: simulated {simulated:?}, real {real:?}");
        assert_eq!(
            (simulated.pods.len(), &simulated.end),
            (real.pods.len(), &real.end),
            "{told}"
        );
        // The API server keeps whole seconds.
        let gaps = |pods: &[i64]| {
            pods.windows(2)
                .map(|pair| pair[1] - pair[0])
                .collect::<Vec<_>>()
        };
        let pairs = gaps(&simulated.pods).into_iter().zip(gaps(&real.pods));
        for (simulated, real) in pairs {
            assert!(real + 1 >= simulated, "{told}");
        }
    }
}
