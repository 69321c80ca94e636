//! Where a test works: a namespace, and an S3 server with a dataset.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crds::SidecarJob;
use futures::{StreamExt, TryStreamExt, stream};
use harness::cluster::{Cluster, FailureReport};
use harness::dataset::{Shape, full_job, join_job};
use harness::s3_server::S3Server;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use storage::{AccessKey, Payload, PutCondition, StorageConfig, Stores};
use tempfile::TempDir;

use crate::outputs::{self, Shards, Witness, assert_same};
use crate::sidecar_jobs::{self, counts, is_true, lay_over};
use crate::site;

/// Much longer than anything takes, even on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);
const UPLOADS_IN_FLIGHT: usize = 16;

/// Where a test works.
pub struct Place {
    pub cluster: &'static Cluster,
    pub client: Client,
    pub namespace: String,
    pub server: S3Server,
    /// The bucket's objects as files.
    bucket: PathBuf,
    shape: Shape,
    folder: TempDir,
    _report: FailureReport<'static>,
}

impl Place {
    /// What most tests work on.
    pub const SMALL: Shape = Shape {
        shards: 120,
        rows: 6,
        group_rows: 4,
        image_bytes: 32,
    };

    /// Over the spec of a job that is to last for a while, on whatever machine.
    pub fn slow() -> Value {
        json!({
            "canary": {"shards": 0},
            "throughput": {"maxWorkers": 2},
            "worker": {"resources": {"limits": {"cpu": "200m"}}},
        })
    }

    /// A new namespace, with the keys of a new server that has a dataset in its bucket; none
    /// where there can't be any, which it says.
    pub async fn new(name: &str, shape: Shape) -> Option<Self> {
        let cluster = site::cluster()?;
        let server = S3Server::start_at(cluster.gateway().unwrap())?;
        let place = Self {
            cluster,
            client: cluster.client().await.unwrap(),
            namespace: format!("{name}-{:06x}", rand::random::<u32>() & 0x00ff_ffff),
            bucket: server.create_bucket("bucket"),
            server,
            shape,
            folder: tempfile::tempdir().unwrap(),
            _report: cluster.report_on_failure(),
        };
        place.make_namespace().await;
        place.upload_dataset().await;
        Some(place)
    }

    async fn make_namespace(&self) {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let namespace = json!({"metadata": {"name": self.namespace}});
        let namespace = serde_json::from_value(namespace).unwrap();
        let parameters = PostParams::default();
        namespaces.create(&parameters, &namespace).await.unwrap();
        let namespace = ["--namespace", &self.namespace];
        let binding = [
            "create",
            "rolebinding",
            "sidecarjob-operator-secrets",
            "--clusterrole=sidecarjob-operator-secrets",
            "--serviceaccount=sidecarjob-system:sidecarjob-operator",
        ];
        self.cluster
            .kubectl(&[&binding[..], &namespace].concat())
            .unwrap();
        let secret = json!({
            "metadata": {"name": "keys"},
            "stringData": {
                "AWS_ACCESS_KEY_ID": self.server.access_key(),
                "AWS_SECRET_ACCESS_KEY": self.server.secret_key(),
            },
        });
        let secret = serde_json::from_value(secret).unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        secrets.create(&parameters, &secret).await.unwrap();
    }

    /// By the server, as it keeps more of an object than a file has.
    async fn upload_dataset(&self) {
        let data = tempfile::tempdir().unwrap();
        self.shape.write(data.path());
        let stores = Stores::new(&self.config());
        let store = stores.open("s3://bucket/").unwrap();
        let uploads = stream::iter(files_below(data.path())).map(|path| {
            let store = Arc::clone(&store);
            let key = path.strip_prefix(data.path()).unwrap();
            let key = key.to_str().unwrap().to_owned();
            async move {
                let payload = Payload::new(std::fs::read(&path).unwrap());
                store.put(&key, payload, PutCondition::Create).await
            }
        });
        let uploads = uploads.buffer_unordered(UPLOADS_IN_FLIGHT);
        uploads.try_for_each(async |_| Ok(())).await.unwrap();
    }

    fn config(&self) -> StorageConfig {
        StorageConfig {
            endpoint: Some(self.server.endpoint()),
            region: Some("us-east-1".to_owned()),
            access_key: Some(AccessKey {
                id: self.server.access_key().to_owned(),
                secret: self.server.secret_key().to_owned(),
            }),
            ..StorageConfig::default()
        }
    }

    pub fn objects(&self) -> Api<SidecarJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn object(&self, name: &str) -> SidecarJob {
        self.objects().get(name).await.unwrap()
    }

    /// A main shard, as a file of the server.
    pub fn main_shard(&self, number: usize) -> PathBuf {
        let path = harness::dataset::path(number);
        self.bucket.join("main").join(path)
    }

    /// Puts other bytes in the place of a main shard.
    pub async fn replace_main_shard(&self, number: usize, bytes: &[u8]) {
        let key = format!("main/{}", harness::dataset::path(number));
        self.replace(&key, |_| bytes.to_vec()).await;
    }

    /// Changes an object, also one that others change meanwhile.
    pub async fn replace(&self, key: &str, change: impl Fn(&[u8]) -> Vec<u8>) {
        let stores = Stores::new(&self.config());
        let store = stores.open("s3://bucket/").unwrap();
        eventually("it is replaced", async || {
            let (meta, bytes) = store.read(key).await.unwrap();
            let payload = Payload::new(change(&bytes));
            let condition = PutCondition::Replace(meta.etag);
            store.put(key, payload, condition).await.ok()
        })
        .await;
    }

    /// Puts an object where there is none.
    pub async fn put(&self, key: &str, bytes: Vec<u8>) {
        let stores = Stores::new(&self.config());
        let store = stores.open("s3://bucket/").unwrap();
        let payload = Payload::new(bytes);
        store.put(key, payload, PutCondition::Create).await.unwrap();
    }

    /// An object's text.
    pub fn read(&self, uri: &str) -> String {
        let key = uri.strip_prefix("s3://bucket/").unwrap();
        std::fs::read_to_string(self.bucket.join(key)).unwrap()
    }

    /// The folder in which the output of a job appears.
    pub fn output(&self, name: &str) -> PathBuf {
        self.bucket.join("out").join(name)
    }

    /// The shards of a job's output.
    pub fn shards(&self, name: &str) -> Shards {
        outputs::shards(&self.output(name))
    }

    /// A job with every operation; `more` is laid over its spec.
    pub fn full_job(&self, name: &str, more: &Value) -> SidecarJob {
        self.job(name, &full_job("s3://bucket", &output_uri(name)), more)
    }

    /// A job that joins the index; `more` is laid over its spec.
    pub fn join_job(&self, name: &str, more: &Value) -> SidecarJob {
        self.job(name, &join_job("s3://bucket", &output_uri(name)), more)
    }

    fn job(&self, name: &str, text: &str, more: &Value) -> SidecarJob {
        let mut manifest: Value = serde_yaml::from_str(text).unwrap();
        manifest["metadata"] = json!({"name": name, "namespace": self.namespace});
        let spec = &mut manifest["spec"];
        lay_over(
            spec,
            &json!({
                "storage": {
                    "endpoint": self.server.endpoint(),
                    "region": "us-east-1",
                    "credentialsSecretRef": {"name": "keys"},
                },
                "throughput": {"maxWorkers": 4},
                "worker": {"resources": {
                    "requests": {"cpu": "20m", "memory": "32Mi"},
                    "limits": {"cpu": "1", "memory": "256Mi"},
                }},
            }),
        );
        lay_over(spec, more);
        serde_json::from_value(manifest).unwrap()
    }

    /// A file with an object for kubectl.
    pub fn file(&self, name: &str, object: &Value) -> String {
        let file = self.folder.path().join(name);
        std::fs::write(&file, object.to_string()).unwrap();
        file.display().to_string()
    }

    /// `kubectl apply`, until the API server takes it: what stands in its way may be about to start.
    pub async fn apply(&self, objects: &Value) {
        let file = self.file("applied.json", objects);
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", &file];
        eventually("it is applied", async || self.cluster.kubectl(&apply).ok()).await;
    }

    pub async fn create(&self, object: &SidecarJob) {
        let parameters = PostParams::default();
        self.objects().create(&parameters, object).await.unwrap();
    }

    pub async fn patch(&self, name: &str, patch: &Value) -> SidecarJob {
        sidecar_jobs::patch(&self.objects(), name, patch).await
    }

    /// What `shard-worker run` on this machine makes of the same spec.
    pub fn of_one_machine(&self, object: &SidecarJob) -> Arc<Shards> {
        let mut object = object.clone();
        object.metadata.name = Some("expected".to_owned());
        object.spec.output.prefix = Some(output_uri("expected"));
        let manifest = self.folder.path().join("expected.yaml");
        std::fs::write(&manifest, serde_yaml::to_string(&object).unwrap()).unwrap();
        let same = (&self.shape, &object.spec.columns, &object.spec.pipeline);
        let name = format!("{same:?}");
        let environment = self.server.environment();
        outputs::of_one_machine(&name, &manifest, &environment, &self.output("expected"))
    }

    /// Waits until a SidecarJob is as `is_right` says.
    pub async fn wait(
        &self,
        name: &str,
        what: &str,
        is_right: impl Fn(&SidecarJob) -> bool,
    ) -> SidecarJob {
        sidecar_jobs::wait(&self.objects(), LIMIT, name, what, is_right).await
    }

    /// Waits for the end of a job that is to complete.
    pub async fn wait_for_completion(&self, name: &str) -> SidecarJob {
        let object = self.wait_for_end(name).await;
        assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
        object
    }

    /// Waits for the end of a job, and asserts that its output is whole: the shards that one
    /// machine makes, each put once, and right counts.
    pub async fn wait_until_whole(&self, job: &SidecarJob, witness: Witness) -> SidecarJob {
        let name = job.name_any();
        let object = self.wait_for_completion(&name).await;
        witness.testify();
        let status = object.status.clone().unwrap();
        let found = counts(&object);
        let shards = i64::try_from(self.shape.shards).unwrap();
        assert_eq!(
            (found.total, found.done, found.failed),
            (shards, shards, 0),
            "{:#}",
            json!(status)
        );
        let rows = shards * i64::try_from(self.shape.rows).unwrap();
        assert_eq!(status.rows.unwrap().written, rows);
        assert_same(&self.shards(&name), &self.of_one_machine(job));
        assert!(self.output(&name).join("_SUCCESS").is_file());
        assert!(self.output(&name).join("_sidecar/manifest.json").is_file());
        object
    }

    /// Waits until no Job is left in the namespace.
    pub async fn wait_for_no_job(&self) {
        eventually("no Job is left", async || {
            let jobs = self.jobs().list(&ListParams::default()).await.unwrap();
            jobs.items.is_empty().then_some(())
        })
        .await;
    }

    pub async fn wait_for_end(&self, name: &str) -> SidecarJob {
        self.wait(name, "at its end", |object| {
            is_true(object, "Complete") || is_true(object, "Failed")
        })
        .await
    }

    /// Waits until a job is in its second run.
    pub async fn wait_for_second_run(&self, name: &str) {
        self.wait(name, "in its second run", |object| {
            let run = object.status.as_ref().and_then(|status| status.run.clone());
            run.is_some_and(|run| run.attempt == Some(2))
        })
        .await;
    }

    /// Waits until so many shards are in the output of a job.
    pub async fn wait_for_shards(&self, name: &str, count: usize) {
        eventually(&format!("{count} shards of {name}"), async || {
            (self.shards(name).len() >= count).then_some(())
        })
        .await;
    }

    /// Worker pods that run.
    pub async fn running(&self) -> Vec<Pod> {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.into_iter()
            .filter(|pod| {
                let status = pod.status.as_ref();
                let phase = status.and_then(|status| status.phase.as_deref());
                phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
            })
            .collect()
    }

    /// Waits for a worker that runs.
    pub async fn wait_for_worker(&self) -> String {
        eventually("a worker runs", async || {
            self.running().await.first().map(ResourceExt::name_any)
        })
        .await
    }

    /// Reasons and words of the events about an object.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        sidecar_jobs::events(&self.client, &self.namespace, name).await
    }

    /// Reasons of the events about an object.
    pub async fn reasons(&self, name: &str) -> Vec<String> {
        let events = self.events(name).await;
        events.into_iter().map(|(reason, _)| reason).collect()
    }
}

fn output_uri(name: &str) -> String {
    format!("s3://bucket/out/{name}/")
}

/// Waits until something is so.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    sidecar_jobs::eventually(LIMIT, what, look).await
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found
}
