//! Long listings on disk: in order, and held a few pages at a time.

mod bucket;

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use futures::StreamExt;
use harness::s3_server::S3Server;
use storage::{Error, StorageConfig, Store, Stores, conformance};

/// `folders` folders with `shards` empty shards each, and their keys in byte order.
fn make_tree(root: &Path, folders: usize, shards: usize) -> Vec<String> {
    let mut keys = Vec::with_capacity(folders * shards);
    for folder in 0..folders {
        let name = format!("source={}/day={folder:04}", folder % 3);
        std::fs::create_dir_all(root.join(&name)).expect("a folder");
        for shard in 0..shards {
            let key = format!("{name}/{shard}.parquet");
            File::create(root.join(&key)).expect("a file");
            keys.push(key);
        }
    }
    keys.sort_unstable();
    keys
}

fn open(root: &Path) -> std::sync::Arc<dyn Store> {
    let stores = Stores::new(&StorageConfig::default());
    stores.open(&root.to_string_lossy()).expect("a store")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_files_are_listed_in_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut keys = make_tree(folder.path(), 80, 1_000);
    std::fs::create_dir(folder.path().join("flat")).expect("a folder");
    for shard in 0..20_000 {
        let key = format!("flat/{shard}.parquet");
        File::create(folder.path().join(&key)).expect("a file");
        keys.push(key);
    }
    keys.sort_unstable();
    let store = open(folder.path());
    let started = Instant::now();
    conformance::lists_exactly(&*store, &keys).await;
    println!("100,000 files listed in {:?}", started.elapsed());
}

#[tokio::test]
async fn pages_are_of_moderate_size() {
    let folder = tempfile::tempdir().expect("a folder");
    make_tree(folder.path(), 3, 2_500);
    make_tree(&folder.path().join("small"), 400, 3);
    let store = open(folder.path());
    let mut pages = store.list_shards();
    let mut sizes = Vec::new();
    while let Some(page) = pages.next().await {
        sizes.push(page.expect("a page").shards.len());
    }
    assert_eq!(sizes.iter().sum::<usize>(), 8_700);
    assert!(sizes.iter().all(|size| *size <= 2_000), "{sizes:?}");
    assert!(sizes.len() <= 10, "{sizes:?}");
}

#[tokio::test]
async fn links_are_followed_but_not_in_circles() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("root");
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir_all(root.join("a")).expect("a folder");
    std::fs::create_dir_all(&elsewhere).expect("a folder");
    std::fs::write(elsewhere.join("x.parquet"), "x").expect("a file");
    let link = |to: &Path, at: &str| {
        std::os::unix::fs::symlink(to, root.join(at)).expect("a link");
    };
    link(&elsewhere, "linked");
    link(&elsewhere.join("x.parquet"), "a/file.parquet");
    link(&root, "a/loop");
    link(&folder.path().join("nowhere"), "dangling.parquet");
    // What a link that leads nowhere stood for is missed by whoever opens it.
    let keys = ["a/file.parquet", "dangling.parquet", "linked/x.parquet"].map(str::to_string);
    let store = open(&root);
    conformance::lists_exactly(&*store, &keys).await;
    for error in [
        store.head("dangling.parquet").await.expect_err("no file"),
        store.read("dangling.parquet").await.expect_err("no file"),
    ] {
        assert!(error.to_string().contains("a link to"), "{error}");
    }
    link(&folder.path().join("nowhere"), "folder");
    let error = conformance::collect(&*store).await.expect_err("a folder");
    assert!(error.to_string().contains("leads nowhere"), "{error}");
}

#[tokio::test]
async fn a_shard_that_can_not_be_named_is_an_error() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().expect("a folder");
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    File::create(folder.path().join(name)).expect("a file");
    conformance::lists_exactly(&*open(folder.path()), &[]).await;
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.parquet");
    File::create(folder.path().join(name)).expect("a file");
    let error = conformance::collect(&*open(folder.path())).await;
    let error = error.expect_err("not UTF-8").to_string();
    assert!(
        error.contains("not UTF-8") && error.contains("rename"),
        "{error}"
    );
}

#[tokio::test]
async fn a_prefix_that_is_a_file_is_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("x"), "x").expect("a file");
    let listed = conformance::collect(&*open(&folder.path().join("x"))).await;
    assert!(matches!(listed, Err(Error::Invalid { .. })), "{listed:?}");
}

/// A file replaced from outside while it is read is never mixed with its successor.
#[tokio::test]
async fn a_file_that_others_change_has_a_new_version() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("x.parquet");
    std::fs::write(&path, "one").expect("a file");
    let store = open(folder.path());
    let before = store.head("x.parquet").await.expect("head");
    let file = File::options().write(true).open(&path).expect("a file");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    std::fs::write(&path, "two").expect("a file");
    file.set_modified(later).expect("a time");
    let stale = store
        .read_ranges("x.parquet", &[0..3, 0..1], Some(&before.etag))
        .await;
    assert!(matches!(stale, Err(Error::Changed { .. })), "{stale:?}");
}

#[tokio::test]
async fn an_object_below_an_object_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path());
    let put = async |key: &str| {
        let payload = storage::Payload::new("x");
        store.put(key, payload, storage::PutCondition::Create).await
    };
    put("a").await.expect("create");
    for key in ["a/b", "a/b/c"] {
        let refused = put(key).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    put("b/c").await.expect("create");
    let refused = put("b").await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}

/// A server with this tree in its bucket, and a store of it; none where it is not installed.
fn serve(fill: impl FnOnce(&Path)) -> Option<(S3Server, std::sync::Arc<dyn Store>)> {
    let server = S3Server::start()?;
    fill(&server.create_bucket("bucket"));
    let stores = Stores::new(&bucket::config(&server));
    let store = stores.open("s3://bucket").expect("a store");
    Some((server, store))
}

/// Folders that fill pages are listed one by one, side by side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_folders_on_s3_are_listed_in_order() {
    let mut keys = Vec::new();
    let fill = |root: &Path| keys = make_tree(root, 12, 1_500);
    let Some((_server, store)) = serve(fill) else {
        return;
    };
    let started = Instant::now();
    conformance::lists_exactly(&*store, &keys).await;
    println!(
        "18,000 keys listed in {:?}: {:?}",
        started.elapsed(),
        store.requests()
    );
    // The root, three sources, and two pages a folder.
    assert_eq!(store.requests().list, 1 + 3 + 24);
}

/// Small folders are listed many at once: a request each would cost more than the shards do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_folders_on_s3_are_listed_together() {
    let mut keys = Vec::new();
    let fill = |root: &Path| keys = make_tree(root, 1_500, 3);
    let Some((_server, store)) = serve(fill) else {
        return;
    };
    let started = Instant::now();
    conformance::lists_exactly(&*store, &keys).await;
    println!(
        "1,500 folders listed in {:?}: {:?}",
        started.elapsed(),
        store.requests()
    );
    assert!(store.requests().list < 200, "{:?}", store.requests());
}
