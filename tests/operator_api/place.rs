//! A namespace of the one cluster, and a folder with datasets.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crds::SidecarJob;
use futures::StreamExt;
use harness::cluster::Cluster;
use harness::dataset::{Shape, join_job};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

use crate::sidecar_jobs::{self, counts, is_true, lay_over};

/// By which a tenant lets the operator read Secrets.
pub const SECRETS_BINDING: &str = "sidecarjob-operator-secrets";

/// Longest wait for anything.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The cluster of this process, with what `kubectl apply -k config/` installs.
fn cluster() -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Option<Cluster>> = OnceLock::new();
    let cluster = CLUSTER.get_or_init(|| {
        let cluster = Cluster::control_plane()?;
        let config = repository().join("config");
        cluster
            .kubectl(&[
                "apply",
                "--server-side",
                "-k",
                &config.display().to_string(),
            ])
            .unwrap();
        Some(cluster)
    });
    cluster.as_ref()
}

/// Operators share one Lease, so there is one test at a time.
static TURN: Mutex<()> = Mutex::const_new(());

/// Where a test works.
pub struct Place {
    pub cluster: &'static Cluster,
    pub client: Client,
    pub namespace: String,
    pub folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    /// A new namespace, with nothing of earlier tests about; none where there is no cluster.
    pub async fn new(name: &str) -> Option<Self> {
        let turn = TURN.lock().await;
        let cluster = cluster()?;
        let client = cluster.client().await.unwrap();
        let all: Api<SidecarJob> = Api::all(client.clone());
        // One of them may be unreadable, for a test's sake.
        for object in all.list_metadata(&ListParams::default()).await.unwrap() {
            let namespace = object.namespace().unwrap();
            let objects: Api<SidecarJob> = Api::namespaced(client.clone(), &namespace);
            let name = object.name_any();
            sidecar_jobs::delete(&objects, &name, &DeleteParams::background()).await;
        }
        let namespace = format!("{name}-{:06x}", rand::random::<u32>() & 0x00ff_ffff);
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .unwrap();
        let place = Self {
            cluster,
            client,
            namespace,
            folder: tempfile::tempdir().unwrap(),
            _turn: turn,
        };
        place.let_secrets_be_read();
        Some(place)
    }

    /// As `config/rbac/tenant_roles.yaml` says.
    pub fn let_secrets_be_read(&self) {
        let binding = [
            "create",
            "rolebinding",
            SECRETS_BINDING,
            "--namespace",
            &self.namespace,
            "--clusterrole=sidecarjob-operator-secrets",
            "--serviceaccount=sidecarjob-system:sidecarjob-operator",
        ];
        self.cluster.kubectl(&binding).unwrap();
    }

    pub fn objects(&self) -> Api<SidecarJob> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn object(&self, name: &str) -> SidecarJob {
        self.objects().get(name).await.unwrap()
    }

    /// Writes a dataset of `shards` shards below the folder.
    pub fn dataset(&self, name: &str, shards: usize) -> PathBuf {
        let root = self.folder.path().join(name);
        let shape = Shape {
            shards,
            ..Shape::default()
        };
        shape.write(&root);
        root
    }

    /// Where the output of a job goes.
    pub fn output(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    /// A SidecarJob that joins the index of the dataset at `root`; `more` is laid over its spec.
    pub fn job(&self, name: &str, root: &Path, more: &Value) -> SidecarJob {
        let output = format!("{}/", self.output(name).display());
        let text = join_job(&root.display().to_string(), &output);
        let mut manifest: Value = serde_yaml::from_str(&text).unwrap();
        manifest["metadata"] = json!({"name": name, "namespace": self.namespace});
        lay_over(&mut manifest["spec"], more);
        serde_json::from_value(manifest).unwrap()
    }

    pub async fn create(&self, object: &SidecarJob) {
        self.objects()
            .create(&PostParams::default(), object)
            .await
            .unwrap();
    }

    pub async fn patch(&self, name: &str, patch: &Value) -> SidecarJob {
        sidecar_jobs::patch(&self.objects(), name, patch).await
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

    /// Waits until some of a job's shards are done.
    pub async fn wait_until_under_way(&self, name: &str) -> SidecarJob {
        self.wait(name, "under way", |object| counts(object).done > 0)
            .await
    }

    pub async fn wait_for_end(&self, name: &str) -> SidecarJob {
        self.wait_for_end_within(LIMIT, name).await
    }

    pub async fn wait_for_end_within(&self, limit: Duration, name: &str) -> SidecarJob {
        sidecar_jobs::wait(&self.objects(), limit, name, "at its end", |object| {
            is_true(object, "Complete") || is_true(object, "Failed")
        })
        .await
    }

    /// Reasons and notes of the events about an object.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        sidecar_jobs::events(&self.client, &self.namespace, name).await
    }
}

/// Notes every version of the objects of a place.
pub async fn record(place: &Place) -> Arc<std::sync::Mutex<Vec<SidecarJob>>> {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let watch = watcher(place.objects(), watcher::Config::default());
    let mut versions = watch.default_backoff().applied_objects().boxed();
    tokio::spawn(async move {
        while let Some(version) = versions.next().await {
            if let Ok(object) = version {
                noted.lock().unwrap().push(object);
            }
        }
    });
    seen
}

/// Waits until something is so.
pub async fn eventually<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    sidecar_jobs::eventually(LIMIT, what, look).await
}

/// Paths of all shards below a folder, relative to it, and their bytes.
pub fn shards(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&next) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "parquet")
            {
                let relative = path.strip_prefix(folder).unwrap().to_owned();
                found.push((relative, std::fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Everything below a folder: paths, sizes and times.
pub fn everything(folder: &Path) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).into_iter().flatten() {
            let path = entry.unwrap().path();
            let metadata = std::fs::metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path);
            } else {
                found.push((path, metadata.len(), metadata.modified().unwrap()));
            }
        }
    }
    found.sort();
    found
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Documents of a kustomization.
pub fn kustomize(cluster: &Cluster, folder: &str) -> Vec<DynamicObject> {
    let folder = repository().join("config").join(folder);
    let text = cluster
        .kubectl(&["kustomize", &folder.display().to_string()])
        .unwrap();
    let documents = text.split("\n---\n");
    documents
        .map(|document| serde_yaml::from_str(document).unwrap())
        .collect()
}
