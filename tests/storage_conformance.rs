//! Every store passes the same checks: files on disk, and S3 on a real server.

mod bucket;

use std::sync::Arc;

use bucket::config;
use harness::s3_server::S3Server;
use storage::{StorageConfig, Store, Stores, conformance};

/// A store on an empty prefix; the fields keep what is behind it alive.
struct Fixture {
    store: Arc<dyn Store>,
    _stores: Stores,
    _server: Option<Arc<S3Server>>,
    _folder: Option<tempfile::TempDir>,
}

fn local() -> Fixture {
    let folder = tempfile::tempdir().expect("a folder");
    let stores = Stores::new(&StorageConfig::default());
    let path = folder.path().join("not made yet");
    let store = stores.open(&path.to_string_lossy()).expect("a store");
    Fixture {
        store,
        _stores: stores,
        _server: None,
        _folder: Some(folder),
    }
}

/// None where the server is not installed, which it says.
fn s3() -> Option<Fixture> {
    let server = Arc::new(S3Server::start()?);
    server.create_bucket("bucket");
    let stores = Stores::new(&config(&server));
    let store = stores.open("s3://bucket/some prefix+%/").expect("a store");
    Some(Fixture {
        store,
        _stores: stores,
        _server: Some(server),
        _folder: None,
    })
}

macro_rules! both_stores {
    ($($check:ident),* $(,)?) => {
        mod local_files {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let fixture = super::local();
                    storage::conformance::$check(&*fixture.store).await;
                }
            )*
        }

        mod s3_server {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $check() {
                    let Some(fixture) = super::s3() else { return };
                    storage::conformance::$check(&*fixture.store).await;
                }
            )*
        }
    };
}

both_stores![
    put_get_delete,
    create_is_write_once,
    replace_is_conditional,
    one_of_a_race_wins,
    compare_and_swap_loses_nothing,
    versions_never_repeat,
    deletes_are_conditional,
    leave_is_asked_for,
    bad_keys_are_refused,
    ranges_are_exact,
    changed_objects_are_refused,
    large_objects_are_left_alone,
    missing_objects_are_told,
    keys_are_opaque,
    listing_is_in_byte_order,
    listing_passes_over_what_is_no_shard,
    listing_finds_nested_locks,
    folders_list_everything,
    found_keys_are_those_that_exist,
    nothing_is_no_error,
];

/// A request answers for a thousand neighbours; what lies between keys that are far apart is
/// not listed.
#[tokio::test]
async fn neighbours_are_found_with_few_requests() {
    let Some(fixture) = s3() else { return };
    let store = &fixture.store;
    let key = |number: usize| format!("{number:05}.parquet");
    for number in 0..2500 {
        let payload = storage::Payload::new("x");
        let condition = storage::PutCondition::Create;
        store
            .put(&key(number), payload, condition)
            .await
            .expect("put");
    }
    for (asked, lists, heads) in [
        ((0..2500).collect::<Vec<_>>(), 3, 0),
        ((100..1100).collect(), 1, 0),
        ((2600..2700).collect(), 1, 0),
        ((0..2500).step_by(100).collect(), 1, 15),
        (vec![3, 2000], 0, 2),
    ] {
        let keys: Vec<String> = asked.iter().map(|number| key(*number)).collect();
        let before = store.requests();
        let found = store.find(&keys).await.expect("find");
        let made = store.requests() - before;
        let existing = asked.iter().filter(|number| **number < 2500).count();
        assert_eq!(found.len(), existing);
        assert_eq!(
            (made.list, made.head),
            (lists, heads),
            "{} keys",
            asked.len()
        );
    }
}

#[tokio::test]
async fn sweeping_local_files_removes_temporary_ones() {
    let fixture = local();
    let folder = std::path::Path::new(fixture.store.uri()).join("x/y");
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in [
        ".x.parquet.0123456789abcdef.sidecar-tmp",
        "../.y.sidecar-tmp",
    ] {
        std::fs::write(folder.join(name), "half").expect("a file");
    }
    conformance::sweep_spares_objects(&*fixture.store, 2).await;
}

/// Stores of one bucket see their own prefix, and nothing beside or above it.
#[tokio::test]
async fn stores_are_rooted_at_their_prefix() {
    let Some(server) = S3Server::start() else {
        return;
    };
    server.create_bucket("bucket");
    let stores = Stores::new(&config(&server));
    let whole = stores.open("s3://bucket").expect("a store");
    let below = stores.open("s3://bucket/a").expect("a store");
    assert_eq!(
        (whole.uri(), below.uri()),
        ("s3://bucket/", "s3://bucket/a/")
    );
    let beside = stores.open("s3://bucket/a-b/").expect("a store");
    for store in [&below, &beside] {
        let payload = storage::Payload::new("x");
        let condition = storage::PutCondition::Create;
        store
            .put("x.parquet", payload, condition)
            .await
            .expect("put");
    }
    let keys = ["a-b/x.parquet", "a/x.parquet"].map(str::to_string);
    conformance::lists_exactly(&*whole, &keys).await;
    conformance::lists_exactly(&*below, &["x.parquet".to_string()]).await;
    let (parent, key) = stores
        .open_parent("s3://bucket/a/x.parquet")
        .expect("a store");
    assert_eq!(
        (parent.uri(), key.as_str()),
        ("s3://bucket/a/", "x.parquet")
    );
    assert!(Arc::ptr_eq(&parent, &below));
    let sum = stores.requests();
    assert_eq!(sum.put, 2);
    assert_eq!(sum.list, whole.requests().list + below.requests().list);
}

#[tokio::test]
async fn refusals_say_what_to_check() {
    let Some(server) = S3Server::start() else {
        return;
    };
    server.create_bucket("bucket");
    let mut wrong = config(&server);
    if let Some(key) = &mut wrong.access_key {
        key.secret = "wrong".to_string();
    }
    let store = Stores::new(&wrong).open("s3://bucket/p/").expect("a store");
    let error = store.read("x").await.expect_err("a refusal");
    assert!(error.is_refused(), "{error:?}");
    assert!(
        error.to_string().contains("AWS_SECRET_ACCESS_KEY"),
        "{error}"
    );

    let store = Stores::new(&config(&server))
        .open("s3://none/p/")
        .expect("a store");
    let error = conformance::collect(&*store).await.expect_err("no bucket");
    assert!(error.to_string().contains("no such bucket"), "{error}");
    assert!(!error.is_refused());
}

/// An object too large for one request: sent in parts, read in parts, and conditional too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_objects_go_in_parts() {
    let Some(fixture) = s3() else { return };
    let store = &fixture.store;
    let content: Vec<u8> = (0..70_u32 << 20).map(|at| (at >> 8) as u8).collect();
    let payload = storage::Payload::new(content.clone());
    let create = storage::PutCondition::Create;
    let first = store
        .put("large.parquet", payload.clone(), create.clone())
        .await
        .expect("create");
    assert!(!first.already_there);
    // Begin, five parts, complete.
    assert_eq!(store.requests().put, 7);
    let again = store
        .put("large.parquet", payload, create.clone())
        .await
        .expect("create again");
    assert!(again.already_there);
    let mut other = content.clone();
    other[0] ^= 1;
    let refused = store
        .put("large.parquet", storage::Payload::new(other), create)
        .await;
    assert!(
        matches!(refused, Err(storage::Error::Exists { .. })),
        "{refused:?}"
    );
    let (meta, bytes) = store.read("large.parquet").await.expect("read");
    assert_eq!(meta.etag, first.etag);
    assert!(bytes == content);
    // The uploads that lost were aborted at once.
    assert!(store.leftovers().await.expect("leftovers").is_empty());
}
