//! What is to stop is stopped, whatever else never answers.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::{Client, Config};
use operator::apply::Applier;
use operator::controller::Controller;
use operator::events::Events;
use operator::identity::{Identities, Rights};
use operator::inquiry::Inquiry;
use operator::intake::{Intake, JobIntake, SidecarJobIntake};
use operator::leader::Election;
use operator::memory::Memory;
use operator::metrics::Metrics;
use operator::namespaces::Namespaces;
use operator::observe::{Caches, Observer};
use operator::queue::Queue;
use operator::runner::{Pace, Runners};
use operator::watch::Sink;
use rules::model::Settings;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_secs(60);

/// Verb, path and body of each write to a Job.
type Writes = Arc<Mutex<Vec<(String, Value)>>>;

/// An API server that has a Lease and a Job, and never says anything about Secrets.
async fn serve(listener: TcpListener, writes: Writes) {
    loop {
        let (connection, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(connection, Arc::clone(&writes)));
    }
}

async fn answer(mut connection: TcpStream, writes: Writes) {
    let Some((line, body)) = request(&mut connection).await else {
        return;
    };
    let path = line.split(' ').nth(1).unwrap_or_default();
    if path.contains("/secrets/") {
        return std::future::pending().await;
    }
    let is_write = !line.starts_with("GET");
    let (status, document) = if path.contains("/leases") && is_write {
        (201, body)
    } else if path.contains("/jobs/") && is_write {
        writes.lock().unwrap().push((line, body));
        (200, json!(job(true)))
    } else {
        let message = "not here";
        let status = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404,
            "reason": "NotFound", "message": message,
        });
        (404, status)
    };
    let text = format!(
        "HTTP/1.1 {status} Words\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\
         {document}"
    );
    connection.write_all(text.as_bytes()).await.unwrap();
}

/// The first line and the body of a request.
async fn request(connection: &mut TcpStream) -> Option<(String, Value)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                let line = head.lines().next()?.to_owned();
                return Some((line, serde_json::from_str(body).unwrap_or_default()));
            }
        }
        let count = connection.read(&mut buffer).await.ok()?;
        if count == 0 {
            return None;
        }
        bytes.extend_from_slice(&buffer[..count]);
    }
}

fn job(is_suspended: bool) -> Job {
    serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "photos-0", "namespace": "team", "uid": "uid-j",
            "resourceVersion": if is_suspended { "11" } else { "10" },
            "labels": {
                "sidecarjob.dev/job-uid": "uid-1", "sidecarjob.dev/run": "run-1",
                "sidecarjob.dev/batch": "0", "sidecarjob.dev/attempt": "1",
                "sidecarjob.dev/epoch": "3",
            },
            "ownerReferences": [{
                "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
                "name": "photos", "uid": "uid-1", "controller": true,
            }],
        },
        "spec": {
            "suspend": is_suspended, "parallelism": 2, "completions": 4,
            "template": {"spec": {"containers": []}},
        },
        "status": {"active": 2},
    }))
    .unwrap()
}

fn object() -> crds::SidecarJob {
    serde_json::from_value(json!({
        "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob",
        "metadata": {
            "name": "photos", "namespace": "team", "uid": "uid-1", "generation": 2,
            "resourceVersion": "20",
        },
        "spec": {
            "dataset": {"mainPrefix": "s3://bucket/main/", "keyColumn": "key"},
            "pipeline": [{"extractScaffold": {}}],
            "output": {"prefix": "s3://bucket/sidecar/"},
            "storage": {"credentialsSecretRef": {"name": "keys"}},
            "suspend": true,
        },
        "status": {
            "output": "s3://bucket/sidecar/",
            "run": {"name": "20250601-101500-aaaaaa"},
        },
    }))
    .unwrap()
}

/// Nothing is known of the run since the operator started, and the Secret is never answered for.
#[tokio::test]
async fn jobs_are_suspended_while_the_secret_is_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let writes = Writes::default();
    let server = tokio::spawn(serve(listener, Arc::clone(&writes)));
    let config = Config::new(format!("http://{address}").parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let mut election = Election::new(client.clone(), "system", "lease", "me");
    election.win().await;
    let leadership = election.leadership();
    let keeping = tokio::spawn(async move { election.keep().await });

    let (runners, _woken) = Runners::new(Pace::default());
    let runners = Arc::new(runners);
    let caches = Arc::new(Caches::default());
    let memory = Arc::new(Memory::default());
    let metrics = Arc::new(Metrics::new().unwrap());
    let queue = Arc::new(Queue::default());
    let identities = Arc::new(Identities::new(client.clone(), Rights::default()));
    let inquiry = Arc::new(Inquiry::new(client.clone()));
    let intake = Intake {
        caches: Arc::clone(&caches),
        queue: Arc::clone(&queue),
        runners: Arc::clone(&runners),
        identities: Arc::clone(&identities),
        inquiry: Arc::clone(&inquiry),
        memory: Arc::clone(&memory),
    };
    let controller = Arc::new(Controller {
        observer: Observer {
            caches,
            runners: Arc::clone(&runners),
            identities: Arc::clone(&identities),
            namespaces: Namespaces::new(client.clone()),
            inquiry,
            memory: Arc::clone(&memory),
            settings: Arc::new(Settings::default()),
        },
        applier: Applier {
            client: client.clone(),
            runners,
            identities,
            memory,
            events: Events::new(client, "me"),
            metrics: Arc::clone(&metrics),
            leadership,
        },
        intake: intake.clone(),
        queue,
        metrics,
    });
    let (_stop, stopped) = watch::channel(false);
    let looking = tokio::spawn(controller.run(1, stopped));
    let jobs = JobIntake {
        intake: intake.clone(),
        namespace: None,
    };
    let objects = SidecarJobIntake {
        intake,
        namespace: None,
    };
    jobs.apply(job(false));
    objects.apply(object());

    let suspended = async {
        loop {
            if let Some((line, body)) = writes.lock().unwrap().first().cloned() {
                return (line, body);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (line, body) = tokio::time::timeout(LIMIT, suspended).await.unwrap();
    assert!(
        line.starts_with("PATCH ") && line.contains("/jobs/photos-0"),
        "{line}"
    );
    assert_eq!(body["spec"], json!({"suspend": true}));
    assert_eq!(
        body["metadata"],
        json!({
            "annotations": {"sidecarjob.dev/suspended": "true"}, "resourceVersion": "10",
        })
    );
    for task in [server, looking] {
        task.abort();
    }
    keeping.abort();
}
