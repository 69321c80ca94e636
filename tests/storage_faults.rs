//! Each way in which a network or a server fails, and how the S3 store gets over it.

mod bucket;

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::fault_proxy::{Fault, FaultProxy, Rule};
use harness::s3_server::S3Server;
use storage::{
    Error, Payload, PutCondition, RequestCounts, StorageConfig, Store, Stores, conformance,
};

struct Fixture {
    store: Arc<dyn Store>,
    /// The same prefix by a way that nothing happens on.
    quiet: Arc<dyn Store>,
    proxy: FaultProxy,
    _server: S3Server,
}

fn config(server: &S3Server, endpoint: String) -> StorageConfig {
    StorageConfig {
        endpoint: Some(endpoint),
        retry_budget: Duration::from_secs(60),
        ..bucket::config(server)
    }
}

/// None where the server is not installed, which it says.
fn fixture_with(change: impl FnOnce(&mut StorageConfig)) -> Option<Fixture> {
    let server = S3Server::start()?;
    server.create_bucket("bucket");
    let proxy = FaultProxy::start(server.address(), 1);
    let mut faulty = config(&server, proxy.endpoint());
    change(&mut faulty);
    let uri = "s3://bucket/p/";
    let store = Stores::new(&faulty).open(uri).expect("a store");
    let quiet = Stores::new(&config(&server, server.endpoint()));
    let quiet = quiet.open(uri).expect("a store");
    Some(Fixture {
        store,
        quiet,
        proxy,
        _server: server,
    })
}

fn fixture() -> Option<Fixture> {
    fixture_with(|_| {})
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 % 251) as u8).collect()
}

impl Fixture {
    async fn plant(&self, key: &str, bytes: Vec<u8>) -> storage::Published {
        self.quiet
            .put(key, Payload::new(bytes), PutCondition::Create)
            .await
            .expect("plant")
    }

    /// As many requests were counted as came by.
    fn assert_counted(&self) -> RequestCounts {
        let counts = self.store.requests();
        let made = counts.list + counts.head + counts.get + counts.put + counts.delete;
        assert_eq!(made, self.proxy.seen().len() as u64, "{counts:?}");
        counts
    }
}

#[tokio::test]
async fn a_burst_of_slow_down_is_waited_out() {
    let Some(fixture) = fixture() else { return };
    fixture.plant("a", content(10)).await;
    let slow_down = Fault::Status(503, "SlowDown");
    fixture
        .proxy
        .add(Rule::once("GET", "/a", slow_down.clone()).times(5));
    let (_, bytes) = fixture.store.read("a").await.expect("read");
    assert_eq!(bytes, content(10));
    let counts = fixture.assert_counted();
    assert_eq!((counts.get, counts.slow_down, counts.retries), (6, 5, 5));

    for (status, code) in [(500, "InternalError"), (502, ""), (429, "TooManyRequests")] {
        fixture
            .proxy
            .add(Rule::once("PUT", "", Fault::Status(status, code)));
    }
    let payload = Payload::new("x");
    let published = fixture.store.put("b", payload, PutCondition::Create).await;
    assert!(!published.expect("put").already_there);
    let counts = fixture.assert_counted();
    assert_eq!((counts.put, counts.slow_down, counts.retries), (4, 6, 8));
}

#[tokio::test]
async fn a_bucket_that_stays_slow_is_given_up_when_the_budget_is_used_up() {
    let budget = Duration::from_millis(1500);
    let Some(fixture) = fixture_with(|config| config.retry_budget = budget) else {
        return;
    };
    let slow_down = Fault::Status(503, "SlowDown");
    fixture
        .proxy
        .add(Rule::once("GET", "", slow_down).times(1000));
    let started = Instant::now();
    let error = fixture.store.read("a").await.expect_err("no answer");
    assert!(started.elapsed() < Duration::from_secs(20));
    assert!(
        matches!(&error, Error::Unavailable { attempts, .. } if *attempts > 2),
        "{error:?}"
    );
    assert!(error.to_string().contains("SlowDown"), "{error}");
    assert!(!error.is_refused());
}

#[tokio::test]
async fn bodies_go_on_from_the_byte_they_stopped_at() {
    let Some(fixture) = fixture_with(|config| config.stall_timeout = Duration::from_millis(300))
    else {
        return;
    };
    let bytes = content(1_000_000);
    let planted = fixture.plant("a", bytes.clone()).await;
    for fault in [
        Fault::ShortBody(400_000),
        Fault::ResetBody(400_000),
        Fault::StallBody(400_000),
    ] {
        fixture.proxy.clear();
        let before = fixture.store.requests();
        fixture.proxy.add(Rule::once("GET", "/a", fault.clone()));
        fixture.proxy.add(Rule::once("GET", "/a", fault.clone()));
        let (meta, read) = fixture.store.read("a").await.expect("read");
        assert!(read == bytes, "{fault:?}");
        assert_eq!(meta.etag, planted.etag);
        let counts = fixture.store.requests() - before;
        assert_eq!((counts.get, counts.retries), (3, 2), "{fault:?}");
        // No byte came twice.
        assert_eq!(counts.bytes_read, 1_000_000, "{fault:?}");
        assert_eq!(fixture.proxy.struck(), 2);
    }
}

#[tokio::test]
async fn ranges_survive_broken_bodies_too() {
    let Some(fixture) = fixture() else { return };
    let bytes = content(3_000_000);
    let planted = fixture.plant("a", bytes.clone()).await;
    fixture
        .proxy
        .add(Rule::once("GET", "/a", Fault::ShortBody(10)));
    fixture
        .proxy
        .add(Rule::once("GET", "/a", Fault::LoseAnswer));
    fixture
        .proxy
        .add(Rule::once("GET", "/a", Fault::LoseRequest));
    let ranges = [2_900_000..3_000_000, 0..100_000];
    let read = fixture
        .store
        .read_ranges("a", &ranges, Some(&planted.etag))
        .await
        .expect("read");
    assert!(read[0] == bytes[2_900_000..] && read[1] == bytes[..100_000]);
    let counts = fixture.assert_counted();
    assert_eq!(
        (counts.get, counts.retries, counts.bytes_read),
        (5, 3, 200_000)
    );
}

/// An object that is replaced between two halves of a read is never a mix of both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_changes_under_a_read_is_an_error() {
    let Some(fixture) = fixture_with(|config| config.stall_timeout = Duration::from_millis(1500))
    else {
        return;
    };
    let planted = fixture.plant("a", content(1_000_000)).await;
    fixture
        .proxy
        .add(Rule::once("GET", "/a", Fault::StallBody(400_000)));
    let reading = fixture.store.read("a");
    let replacing = async {
        // The read has its first half once its request has come by.
        while fixture.proxy.seen().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let payload = Payload::new(vec![7; 1_000_000]);
        let condition = PutCondition::Replace(planted.etag.clone());
        fixture
            .quiet
            .put("a", payload, condition)
            .await
            .expect("replace");
    };
    let (read, ()) = tokio::join!(reading, replacing);
    // The proxy may have asked the server only after the replacement: then all is new.
    match read {
        Err(Error::Changed { .. }) => {}
        Ok((_, bytes)) => assert!(bytes.iter().all(|byte| *byte == 7)),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn an_accepted_put_whose_answer_is_lost_is_a_success() {
    let Some(fixture) = fixture() else { return };
    fixture
        .proxy
        .add(Rule::once("PUT", "/a", Fault::LoseAnswer));
    let payload = Payload::new("one");
    let created = fixture.store.put("a", payload, PutCondition::Create).await;
    let created = created.expect("create");
    assert!(created.already_there);
    let counts = fixture.assert_counted();
    assert_eq!((counts.put, counts.head, counts.retries), (2, 1, 1));

    fixture
        .proxy
        .add(Rule::once("PUT", "/a", Fault::LoseAnswer));
    let condition = PutCondition::Replace(created.etag);
    let replaced = fixture.store.put("a", Payload::new("two"), condition).await;
    let replaced = replaced.expect("replace");
    assert!(replaced.already_there);
    let (meta, bytes) = fixture.quiet.read("a").await.expect("read");
    assert_eq!((meta.etag, &bytes[..]), (replaced.etag, &b"two"[..]));
}

/// A lost answer must not hide that somebody else was first.
#[tokio::test]
async fn a_lost_answer_to_a_refused_put_is_still_a_conflict() {
    let Some(fixture) = fixture() else { return };
    fixture.plant("a", b"theirs".to_vec()).await;
    fixture
        .proxy
        .add(Rule::once("PUT", "/a", Fault::LoseAnswer));
    let payload = Payload::new("ours..");
    let refused = fixture.store.put("a", payload, PutCondition::Create).await;
    assert!(matches!(refused, Err(Error::Exists { .. })), "{refused:?}");
}

#[tokio::test]
async fn conditional_conflicts_are_asked_again() {
    let Some(fixture) = fixture() else { return };
    let conflict = Fault::Status(409, "ConditionalRequestConflict");
    fixture
        .proxy
        .add(Rule::once("PUT", "/a", conflict).times(3));
    let payload = Payload::new("one");
    let created = fixture.store.put("a", payload, PutCondition::Create).await;
    assert!(!created.expect("create").already_there);
    let counts = fixture.assert_counted();
    assert_eq!((counts.put, counts.retries, counts.slow_down), (4, 3, 0));
}

#[tokio::test]
async fn a_delete_whose_answer_is_lost_is_a_success() {
    let Some(fixture) = fixture() else { return };
    let planted = fixture.plant("a", content(10)).await;
    fixture
        .proxy
        .add(Rule::once("DELETE", "/a", Fault::LoseAnswer));
    fixture
        .store
        .delete("a", Some(&planted.etag))
        .await
        .expect("delete");
    let gone = fixture.quiet.head("a").await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
}

#[tokio::test]
async fn refusals_are_not_tried_again() {
    let Some(fixture) = fixture() else { return };
    fixture
        .proxy
        .add(Rule::once("GET", "/a", Fault::Status(403, "AccessDenied")));
    let error = fixture.store.read("a").await.expect_err("a refusal");
    assert!(error.is_refused(), "{error:?}");
    assert_eq!(fixture.assert_counted().get, 1);
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_asked_again() {
    let Some(fixture) =
        fixture_with(|config| config.first_byte_timeout = Duration::from_millis(400))
    else {
        return;
    };
    fixture.plant("a", content(10)).await;
    fixture.proxy.add(Rule::once(
        "GET",
        "/a",
        Fault::Delay(Duration::from_secs(30)),
    ));
    let started = Instant::now();
    fixture.store.read("a").await.expect("read");
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(fixture.store.requests().retries, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_are_complete_under_faults() {
    let Some(fixture) = fixture() else { return };
    let mut keys = Vec::new();
    for folder in 0..12 {
        for shard in 0..8 {
            let key = format!("f{folder}/s{shard}.parquet");
            fixture.plant(&key, b"x".to_vec()).await;
            keys.push(key);
        }
    }
    keys.sort_unstable();
    let slow_down = Fault::Status(503, "SlowDown");
    fixture
        .proxy
        .add(Rule::once("GET", "list-type=2", slow_down).one_in(4));
    fixture
        .proxy
        .add(Rule::once("GET", "list-type=2", Fault::ResetBody(100)).one_in(4));
    conformance::lists_exactly(&*fixture.store, &keys).await;
    assert!(fixture.proxy.struck() > 0);
    fixture.assert_counted();
}

/// Many at once on a connection that breaks one request in six, each way in turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bad_network_loses_and_doubles_nothing() {
    let Some(fixture) = fixture_with(|config| config.stall_timeout = Duration::from_millis(300))
    else {
        return;
    };
    for fault in [
        Fault::Status(503, "SlowDown"),
        Fault::LoseAnswer,
        Fault::LoseRequest,
        Fault::ShortBody(1),
        Fault::ResetBody(1),
    ] {
        fixture
            .proxy
            .add(Rule::once("GET", "", fault.clone()).one_in(30));
        fixture.proxy.add(Rule::once("PUT", "", fault).one_in(30));
    }
    let write = async |number: usize| {
        let key = format!("{number}.parquet");
        let bytes = content(1000 + number);
        let payload = Payload::new(bytes.clone());
        let published = fixture.store.put(&key, payload, PutCondition::Create).await;
        let published = published.unwrap_or_else(|error| panic!("{key}: {error}"));
        let (meta, read) = fixture.store.read(&key).await.expect("read");
        assert_eq!((meta.etag, &read[..]), (published.etag, &bytes[..]));
    };
    futures::future::join_all((0..150).map(write)).await;
    assert!(fixture.proxy.struck() > 20);
    assert_eq!(
        conformance::collect(&*fixture.quiet)
            .await
            .expect("list")
            .shards
            .len(),
        150
    );
    fixture.assert_counted();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_in_parts_recover_or_leave_nothing() {
    let Some(fixture) = fixture() else { return };
    let bytes = content(65 << 20);
    let payload = Payload::new(bytes.clone());
    // A part meets a reset, and the answer to the completion is lost.
    fixture
        .proxy
        .add(Rule::once("PUT", "partNumber=2", Fault::LoseAnswer));
    fixture
        .proxy
        .add(Rule::once("POST", "uploadId", Fault::LoseAnswer));
    let created = fixture
        .store
        .put("a", payload.clone(), PutCondition::Create)
        .await;
    // Servers may answer a repeated completion like the first, or not know the upload any more.
    let created = created.expect("create");
    let (meta, read) = fixture.quiet.read("a").await.expect("read");
    assert_eq!(meta.etag, created.etag);
    assert!(read == bytes);
    fixture.assert_counted();
    // A part is refused for good: the upload is aborted.
    fixture.proxy.clear();
    let refused = Fault::Status(403, "AccessDenied");
    fixture
        .proxy
        .add(Rule::once("PUT", "partNumber=3", refused));
    let error = fixture
        .store
        .put("b", payload.clone(), PutCondition::Create)
        .await;
    assert!(error.expect_err("a refusal").is_refused());
    assert!(
        fixture
            .quiet
            .leftovers()
            .await
            .expect("leftovers")
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_of_a_killed_writer_is_swept() {
    let Some(fixture) = fixture() else { return };
    let payload = Payload::new(content(65 << 20));
    // No part is on its way within the server, which could bring an upload back that was aborted.
    fixture
        .proxy
        .add(Rule::once("PUT", "partNumber=", Fault::Silence).times(4));
    let store = Arc::clone(&fixture.store);
    let key = "odd +%/c.parquet";
    let killed = tokio::spawn(async move { store.put(key, payload, PutCondition::Create).await });
    while fixture.proxy.struck() < 4 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    killed.abort();
    let _ = killed.await;
    let missing = fixture.quiet.head(key).await;
    assert!(
        matches!(missing, Err(Error::NotFound { .. })),
        "{missing:?}"
    );
    conformance::sweep_spares_objects(&*fixture.quiet, 1).await;
}
