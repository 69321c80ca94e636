//! Runs the containers of pods as processes of this machine, and tells the API server of it as
//! a kubelet does.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{EnvVar, Pod, Secret};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::expansion::expand;
use crate::place::Place;
use crate::worker_program::worker;

/// What runs pods; they end when this is dropped.
pub struct PodRunner {
    task: JoinHandle<()>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    running: HashMap<String, Running>,
    begun: HashSet<String>,
    /// Pods to take on; the others stay pending.
    limit: usize,
}

struct Running {
    child: Child,
    message: PathBuf,
    is_told_to_end: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl PodRunner {
    /// Runs all pods of SidecarJobs in the place's namespace.
    pub fn begin(place: &Place) -> Self {
        Self::limited(place, usize::MAX)
    }

    /// Runs no more than so many at a time.
    pub fn limited(place: &Place, limit: usize) -> Self {
        let shared = Arc::new(Mutex::new(Shared {
            limit,
            ..Shared::default()
        }));
        let kubelet = Kubelet {
            pods: Api::namespaced(place.client.clone(), &place.namespace),
            client: place.client.clone(),
            namespace: place.namespace.clone(),
            folder: place.folder.path().to_owned(),
            shared: Arc::clone(&shared),
        };
        worker();
        Self {
            task: tokio::spawn(kubelet.run()),
            shared,
        }
    }

    pub fn set_limit(&self, limit: usize) {
        self.shared.lock().unwrap().limit = limit;
    }

    /// Pods that were begun so far.
    pub fn started(&self) -> usize {
        self.shared.lock().unwrap().begun.len()
    }
}

impl Drop for PodRunner {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.lock().unwrap().running.clear();
    }
}

struct Kubelet {
    pods: Api<Pod>,
    client: Client,
    namespace: String,
    folder: PathBuf,
    shared: Arc<Mutex<Shared>>,
}

impl Kubelet {
    async fn run(self) {
        let (pods, writer) = reflector::store();
        let ours = watcher::Config::default().labels("sidecarjob.dev/job-uid");
        // The API server may be stopped by a test for a while.
        let watch = watcher(self.pods.clone(), ours).default_backoff();
        let watch = reflector(writer, watch).for_each(async |_| ());
        let rounds = async {
            loop {
                self.round(pods.state()).await;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::join!(watch, rounds);
    }

    async fn round(&self, pods: Vec<Arc<Pod>>) {
        let stays = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_none();
        let staying: HashSet<String> = pods
            .iter()
            .filter(stays)
            .filter_map(|pod| pod.uid())
            .collect();
        let ended: Vec<(String, i32, String)> = {
            let mut shared = self.shared.lock().unwrap();
            // A pod without a node is gone as soon as it is deleted, unless somebody keeps it.
            for (uid, running) in &mut shared.running {
                if !staying.contains(uid) && !running.is_told_to_end {
                    running.is_told_to_end = true;
                    // It may have ended just now.
                    let _ = kill_process(Pid::from_child(&running.child), Signal::TERM);
                }
            }
            let ended = shared.running.iter_mut().filter_map(|(uid, running)| {
                let status = running.child.try_wait().unwrap()?;
                let message = std::fs::read_to_string(&running.message).unwrap_or_default();
                Some((uid.clone(), status.code().unwrap_or(137), message))
            });
            let ended: Vec<_> = ended.collect();
            for (uid, ..) in &ended {
                shared.running.remove(uid);
            }
            ended
        };
        let told = ended.iter().filter_map(|(uid, code, message)| {
            let pod = pods.iter().find(|pod| pod.uid().as_ref() == Some(uid))?;
            Some(async move { self.tell(pod, &finished(*code, message)).await })
        });
        let waiting: Vec<&Arc<Pod>> = {
            let mut shared = self.shared.lock().unwrap();
            let room = shared.limit.saturating_sub(shared.running.len());
            let is_new = |pod: &&Arc<Pod>| {
                // What looks after pretended nodes may have said that it runs.
                matches!(phase(pod), Some("Pending" | "Running"))
                    && pod.metadata.deletion_timestamp.is_none()
                    && shared.begun.insert(pod.uid().unwrap())
            };
            pods.iter().filter(is_new).take(room).collect()
        };
        let begun = waiting.into_iter().map(|pod| self.start(pod));
        tokio::join!(join_all(told), join_all(begun));
    }

    async fn start(&self, pod: &Pod) {
        let container = &pod.spec.as_ref().unwrap().containers[0];
        let message = self.folder.join(format!("{}.message", pod.name_any()));
        let log = self.folder.join(format!("{}.log", pod.name_any()));
        let mut command = Command::new(worker());
        let mut environment = BTreeMap::new();
        for variable in container.env.iter().flatten() {
            let value = match &variable.value {
                // Those before it are known to it.
                Some(text) => Some(expand(text, &environment)),
                None => self.value_from(pod, variable).await,
            };
            environment.extend(value.map(|value| (variable.name.clone(), value)));
        }
        for argument in container.args.iter().flatten() {
            match argument.as_str() {
                "/dev/termination-log" => command.arg(&message),
                argument => command.arg(expand(argument, &environment)),
            };
        }
        command
            .env_clear()
            .env("HOME", &self.folder)
            .envs(environment);
        let child = command
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        {
            let mut shared = self.shared.lock().unwrap();
            let running = Running {
                child,
                message,
                is_told_to_end: false,
            };
            shared.running.insert(pod.uid().unwrap(), running);
        }
        if phase(pod) == Some("Pending") {
            self.tell(pod, &started()).await;
        }
    }

    async fn value_from(&self, pod: &Pod, variable: &EnvVar) -> Option<String> {
        let from = variable.value_from.as_ref()?;
        if let Some(secret) = &from.secret_key_ref {
            let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
            let found = secrets.get(&secret.name).await.unwrap();
            let data: BTreeMap<String, ByteString> = found.data.unwrap_or_default();
            let value = data.get(&secret.key);
            return value.map(|value| String::from_utf8(value.0.clone()).unwrap());
        }
        let path = &from.field_ref.as_ref()?.field_path;
        let key = path.split('\'').nth(1).unwrap();
        let metadata = &pod.metadata;
        let map = match path.starts_with("metadata.labels") {
            true => metadata.labels.as_ref(),
            false => metadata.annotations.as_ref(),
        };
        map.and_then(|map| map.get(key).cloned())
    }

    async fn tell(&self, pod: &Pod, status: &Value) {
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": status});
        let parameters = PatchParams::default();
        let name = pod.name_any();
        // It may be gone.
        let _ = self
            .pods
            .patch_status(&name, &parameters, &Patch::Merge(&patch))
            .await;
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

const NOW: &str = "2025-06-01T10:00:00Z";

fn started() -> Value {
    json!({
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "True"},
        ],
        "containerStatuses": [container(&json!({"running": {"startedAt": NOW}}), true)],
    })
}

fn finished(code: i32, message: &str) -> Value {
    let terminated = json!({"terminated": {
        "exitCode": code, "message": message, "startedAt": NOW, "finishedAt": NOW,
        "reason": if code == 0 { "Completed" } else { "Error" },
    }});
    json!({
        "phase": if code == 0 { "Succeeded" } else { "Failed" },
        "conditions": [
            {"type": "PodScheduled", "status": "True"},
            {"type": "Ready", "status": "False"},
        ],
        "containerStatuses": [container(&terminated, false)],
    })
}

fn container(state: &Value, is_ready: bool) -> Value {
    json!({
        "name": "worker", "image": "localhost/worker:test", "imageID": "", "restartCount": 0,
        "ready": is_ready, "state": state,
    })
}
