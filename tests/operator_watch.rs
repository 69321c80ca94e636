//! Watches against an API server that does what real ones do at their worst: it falls silent,
//! forgets, breaks off and tells of objects that can't be read.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::Api;
use kube::core::error_boundary::InvalidObject;
use kube::{Client, Config};
use operator::watch::{ObjectKey, Selection, Sink, WatchHealth, watch};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

#[path = "operator_watch/stops.rs"]
mod stops;

const LIMIT: Duration = Duration::from_secs(30);

/// What the server does with a request.
enum Answer {
    /// These lines, or this document, and the end.
    Whole(u16, Vec<Value>),
    /// These lines, and then nothing, for ever.
    Silence(Vec<Value>),
}

/// A server that answers by a script, and what it was asked.
struct Script {
    address: std::net::SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Script {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Script {
    async fn begin(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let answers = Mutex::new(VecDeque::from(answers));
        let task = tokio::spawn(async move {
            // Held, so that silence is not the end of a connection.
            let mut silent = Vec::new();
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let Some(line) = request_line(&mut connection).await else {
                    continue;
                };
                noted.lock().unwrap().push(line);
                let answer = answers.lock().unwrap().pop_front();
                match answer {
                    Some(Answer::Whole(status, documents)) => {
                        send(&mut connection, status, &documents).await;
                    }
                    Some(Answer::Silence(documents)) => {
                        send(&mut connection, 200, &documents).await;
                        silent.push(connection);
                    }
                    None => silent.push(connection),
                }
            }
        });
        Self {
            address,
            asked,
            task,
        }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn request_line(connection: &mut TcpStream) -> Option<String> {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("\r\n\r\n") {
        let count = connection.read(&mut buffer).await.ok()?;
        if count == 0 {
            return None;
        }
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
    text.lines().next().map(str::to_owned)
}

/// The end of the connection is the end of the answer.
async fn send(connection: &mut TcpStream, status: u16, documents: &[Value]) {
    let lines: Vec<String> = documents.iter().map(Value::to_string).collect();
    let text = format!(
        "HTTP/1.1 {status} Words\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{}\n",
        lines.join("\n")
    );
    connection.write_all(text.as_bytes()).await.unwrap();
}

#[derive(Clone, Default)]
struct Told(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    there: BTreeSet<String>,
    invalid: Vec<String>,
    listings: usize,
}

impl Sink<Job> for Told {
    fn apply(&self, job: Job) {
        self.0
            .lock()
            .unwrap()
            .there
            .insert(job.metadata.name.unwrap());
    }

    fn invalid(&self, invalid: InvalidObject) {
        self.0
            .lock()
            .unwrap()
            .invalid
            .push(invalid.metadata.name.unwrap());
    }

    fn delete(&self, metadata: &ObjectMeta) {
        self.0
            .lock()
            .unwrap()
            .there
            .remove(metadata.name.as_ref().unwrap());
    }

    fn listed(&self, keys: HashSet<ObjectKey>) {
        let mut state = self.0.lock().unwrap();
        state.listings += 1;
        let names: BTreeSet<String> = keys.into_iter().map(|key| key.name).collect();
        state.there.retain(|name| names.contains(name));
    }
}

impl Told {
    fn there(&self) -> Vec<String> {
        self.0.lock().unwrap().there.iter().cloned().collect()
    }
}

/// A watch of Jobs on that server.
async fn begin(script: &Script) -> (Told, Arc<WatchHealth>, JoinHandle<()>) {
    let config = Config::new(format!("http://{}", script.address).parse().unwrap());
    let client = Client::try_from(config).unwrap();
    let told = Told::default();
    let health = Arc::new(WatchHealth::new("Job", None));
    let selection = Selection {
        labels: Some("ours".to_owned()),
        silent_after: Duration::from_millis(300),
        ..Selection::default()
    };
    let watching = watch(
        Api::all(client),
        selection,
        told.clone(),
        Arc::clone(&health),
    );
    (told, health, tokio::spawn(watching))
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not after {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn job(name: &str, version: u32) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "n", "resourceVersion": version.to_string()},
    })
}

fn list(version: u32, next: Option<&str>, items: &[Value]) -> Answer {
    let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
    let list = json!({
        "apiVersion": "batch/v1", "kind": "JobList", "metadata": metadata, "items": items,
    });
    Answer::Whole(200, vec![list])
}

fn event(kind: &str, object: Value) -> Value {
    json!({"type": kind, "object": object})
}

fn bookmark(version: u32) -> Value {
    event(
        "BOOKMARK",
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"resourceVersion": version.to_string()},
        }),
    )
}

#[tokio::test]
async fn a_listing_comes_in_pages_and_a_watch_goes_on_from_it() {
    let script = Script::begin(vec![
        list(5, Some("more"), &[job("a", 1)]),
        list(5, None, &[job("b", 2)]),
        Answer::Whole(
            200,
            vec![event("ADDED", job("c", 6)), event("DELETED", job("a", 7))],
        ),
    ])
    .await;
    let (told, health, watching) = begin(&script).await;
    until("all was told", || told.there() == ["b", "c"]).await;
    until("the watch goes on", || script.asked().len() >= 4).await;
    let asked = script.asked();
    assert!(
        asked[0].contains("limit=500") && asked[0].contains("labelSelector=ours"),
        "{asked:?}"
    );
    assert!(asked[1].contains("continue=more"), "{asked:?}");
    assert!(
        asked[2].contains("watch=true") && asked[2].contains("resourceVersion=5"),
        "{asked:?}"
    );
    assert!(asked[3].contains("resourceVersion=7"), "{asked:?}");
    assert!(health.is_synced());
    watching.abort();
}

#[tokio::test]
async fn a_silent_watch_is_noticed_and_begun_again_where_it_was() {
    let script = Script::begin(vec![
        list(5, None, &[job("a", 1)]),
        Answer::Silence(vec![bookmark(9)]),
        Answer::Silence(vec![event("ADDED", job("b", 10))]),
    ])
    .await;
    let (told, health, watching) = begin(&script).await;
    until("it was begun again", || told.there() == ["a", "b"]).await;
    assert!(health.restarts() >= 1);
    let asked = script.asked();
    assert!(
        asked[2].contains("resourceVersion=9"),
        "from the bookmark on: {asked:?}"
    );
    assert_eq!(
        told.0.lock().unwrap().listings,
        1,
        "nothing was listed again"
    );
    watching.abort();
}

#[tokio::test]
async fn a_server_that_forgot_the_version_is_listed_anew() {
    let gone = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "too old resource version", "reason": "Expired", "code": 410,
    });
    let script = Script::begin(vec![
        list(5, None, &[job("a", 1), job("b", 2)]),
        Answer::Whole(200, vec![event("ERROR", gone.clone())]),
        list(50, None, &[job("b", 2)]),
        Answer::Whole(410, vec![gone]),
        list(60, None, &[job("b", 2), job("c", 55)]),
    ])
    .await;
    let (told, _, watching) = begin(&script).await;
    until("what was deleted meanwhile is gone", || {
        told.there() == ["b", "c"]
    })
    .await;
    assert_eq!(told.0.lock().unwrap().listings, 3);
    watching.abort();
}

#[tokio::test]
async fn an_object_that_can_not_be_read_is_named_and_stops_no_other() {
    let mut odd = job("odd", 2);
    odd["spec"] = json!("no spec at all");
    let mut late = job("late", 7);
    late["status"] = json!(["no", "status"]);
    let script = Script::begin(vec![
        list(5, None, &[odd, job("a", 3)]),
        Answer::Silence(vec![event("MODIFIED", late), event("ADDED", job("b", 8))]),
    ])
    .await;
    let (told, _, watching) = begin(&script).await;
    until("the others were told", || told.there() == ["a", "b"]).await;
    assert_eq!(told.0.lock().unwrap().invalid, ["odd", "late"]);
    watching.abort();
}

#[tokio::test]
async fn what_is_no_event_at_all_is_not_asked_for_for_ever() {
    let noise = || Answer::Whole(200, vec![json!({"neither": "event nor status"})]);
    let script = Script::begin(vec![
        list(5, None, &[job("a", 1)]),
        noise(),
        noise(),
        noise(),
        list(9, None, &[job("a", 1), job("b", 8)]),
    ])
    .await;
    let (told, _, watching) = begin(&script).await;
    until("it was listed anew", || told.there() == ["a", "b"]).await;
    watching.abort();
}

#[tokio::test]
async fn a_server_that_refuses_is_asked_again() {
    let refusal = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "not now", "reason": "InternalError", "code": 500,
    });
    let script = Script::begin(vec![
        Answer::Whole(500, vec![refusal.clone()]),
        list(5, None, &[job("a", 1)]),
        Answer::Whole(500, vec![refusal]),
        Answer::Silence(vec![event("ADDED", job("b", 6))]),
    ])
    .await;
    let (told, health, watching) = begin(&script).await;
    until("all was told", || told.there() == ["a", "b"]).await;
    assert!(health.restarts() >= 2);
    watching.abort();
}
