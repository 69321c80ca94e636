//! The writer lock: who wins a race, and how a writer that lost finds out. On local files, and
//! in memory where the order of calls is to be chosen.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "state_memory_store.rs"]
mod memory_store;
#[path = "state_racers.rs"]
mod racers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use memory_store::Bucket;
use racers::{identity_of, race, request, somebody};
use storage::state::RunId;
use storage::state::ancestors::open_ancestors;
use storage::state::clock::{Clock, Moment, SystemClock};
use storage::state::fence::{Fence, FenceError};
use storage::state::identity;
use storage::state::lock::Identity;
use storage::state::writer::{AcquireError, LockRequest, WriterLock};
use storage::{StorageConfig, Store, Stores};

const SHORT_TTL: Duration = Duration::from_millis(800);
const DEADLINE: Duration = Duration::from_secs(30);

/// Somebody whose process others can't see.
fn somebody_elsewhere() -> Identity {
    let mut holder = identity::this_process("test");
    holder.process = None;
    identity_of(holder)
}

/// A request for a folder below `root`.
fn local_request(root: &tempfile::TempDir, folder: &str, identity: Identity) -> LockRequest {
    let stores = Stores::new(&StorageConfig::default());
    request(
        &stores,
        &format!("{}/{folder}", root.path().display()),
        identity,
    )
}

fn memory_request(bucket: &Arc<Bucket>, prefix: &str, identity: Identity) -> LockRequest {
    let store = bucket.open(prefix);
    let root = "s3://memory/".len();
    let ancestors = open_ancestors::<()>(store.uri(), |uri| Ok(bucket.open(&uri[root..]))).unwrap();
    LockRequest::new(store, ancestors, identity)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_sixteen_wins() {
    let root = tempfile::tempdir().unwrap();
    for epoch in 1..=10 {
        let requests = (0..16)
            .map(|_| local_request(&root, "out/", somebody()))
            .collect();
        let (winners, losers) = race(requests).await;
        assert_eq!((winners.len(), losers.len()), (1, 15), "{losers:?}");
        for error in losers {
            assert!(matches!(error, AcquireError::HeldBy { .. }), "{error:?}");
            assert!(
                error.to_string().contains("is being written by test on"),
                "{error}"
            );
        }
        assert_eq!(winners[0].epoch(), epoch);
        winners[0].check().await.unwrap();
        winners[0].release().await.unwrap();
        assert!(matches!(winners[0].check().await, Err(FenceError::Lost(_))));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_nested_prefixes_wins() {
    let root = tempfile::tempdir().unwrap();
    for _ in 0..10 {
        let requests = ["a/", "a/b/", "a/b/c/", "a/", "a/b/", "a/b/c/"]
            .map(|folder| local_request(&root, folder, somebody()));
        let (winners, losers) = race(requests.into()).await;
        assert_eq!(winners.len(), 1, "{losers:?}");
        winners[0].release().await.unwrap();
    }
}

/// The same under many orders of calls, and what the losers are told.
#[tokio::test]
async fn one_of_nested_prefixes_wins_in_any_order() {
    let races = (0..400).map(async |seed| {
        let bucket = Bucket::new(seed);
        let requests = ["a/", "a/b/", "a/b/c/", "a/b/", ""]
            .into_iter()
            .cycle()
            .skip(seed as usize % 5)
            .take(5)
            .map(|prefix| memory_request(&bucket, prefix, somebody()));
        let (winners, losers) = race(requests.collect()).await;
        assert_eq!(winners.len(), 1, "seed {seed}: {losers:?}");
        for error in losers {
            let is_told = matches!(
                error,
                AcquireError::HeldBy { .. }
                    | AcquireError::HeldByAncestor { .. }
                    | AcquireError::NestedLock { .. }
            );
            assert!(is_told, "seed {seed}: {error:?}");
        }
    });
    futures::future::join_all(races).await;
}

#[tokio::test]
async fn siblings_do_not_mind_each_other() {
    let bucket = Bucket::new(1);
    let requests =
        ["a/b/", "a/c/", "a/bb/"].map(|prefix| memory_request(&bucket, prefix, somebody()));
    let (winners, losers) = race(requests.into()).await;
    assert_eq!((winners.len(), losers.len()), (3, 0));
}

#[tokio::test]
async fn nested_prefixes_are_named() {
    let root = tempfile::tempdir().unwrap();
    let middle = WriterLock::acquire(local_request(&root, "a/b/", somebody()))
        .await
        .unwrap();
    let above = WriterLock::acquire(local_request(&root, "a/", somebody()))
        .await
        .unwrap_err();
    let AcquireError::NestedLock { nested, .. } = &above else {
        panic!("{above:?}")
    };
    assert!(nested.ends_with("/a/b/"), "{nested}");
    let below = WriterLock::acquire(local_request(&root, "a/b/c/", somebody()))
        .await
        .unwrap_err();
    let AcquireError::HeldByAncestor { ancestor, .. } = &below else {
        panic!("{below:?}")
    };
    assert!(ancestor.ends_with("/a/b/"), "{ancestor}");
    assert!(
        !root.path().join("a/b/c").exists(),
        "who is refused beforehand writes nothing"
    );

    middle.release().await.unwrap();
    let below = WriterLock::acquire(local_request(&root, "a/b/c/", somebody()))
        .await
        .unwrap();
    assert_eq!(below.epoch(), 1);
}

/// A process that is stopped is a runtime that isn't driven: neither its renewals nor anything
/// else of it runs until it wakes up.
struct Pausable {
    runtime: tokio::runtime::Runtime,
}

impl Pausable {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        Self { runtime }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }
}

fn acquire_by_deadline(process: &Pausable, request: impl Fn() -> LockRequest) -> WriterLock {
    let start = Instant::now();
    loop {
        match process.run(WriterLock::acquire(request())) {
            Ok(lock) => return lock,
            Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn with_short_ttl(request: LockRequest) -> LockRequest {
    LockRequest {
        ttl: SHORT_TTL,
        max_look_age: Duration::from_secs(3600),
        ..request
    }
}

#[test]
fn a_paused_holder_is_taken_over_and_notices_before_it_publishes() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (Pausable::new(), Pausable::new());
    let request = |identity| with_short_ttl(local_request(&root, "out/", identity));

    let paused = first.run(WriterLock::acquire(request(somebody()))).unwrap();
    first.run(paused.check()).unwrap();
    let (fence, lost) = (paused.fence(), paused.lost());

    let newcomer = somebody();
    let next = acquire_by_deadline(&second, || request(newcomer.clone()));
    assert_eq!(next.epoch(), 2);

    assert!(!paused.is_lost(), "nothing of it has run");
    let error = first.run(fence.check()).unwrap_err();
    let FenceError::Lost(by) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(by.by.as_ref().unwrap().holder, newcomer.holder);
    assert!(
        error.to_string().contains("was taken over by test on"),
        "{error}"
    );
    assert!(lost.borrow().is_some());
    assert!(matches!(
        first.run(paused.renew()),
        Err(FenceError::Lost(_))
    ));
    first.run(paused.release()).unwrap();
    second.run(next.renew()).unwrap();
}

#[test]
fn a_paused_holder_whom_nobody_took_over_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (Pausable::new(), Pausable::new());
    let request = |identity| with_short_ttl(local_request(&root, "out/", identity));
    let lock = first.run(WriterLock::acquire(request(somebody()))).unwrap();
    std::thread::sleep(SHORT_TTL * 2);
    first.run(lock.check()).unwrap();
    let error = second
        .run(WriterLock::acquire(request(somebody())))
        .unwrap_err();
    assert!(matches!(error, AcquireError::HeldBy { .. }), "{error:?}");
}

#[test]
fn a_paused_holder_is_fenced_off_by_nested_prefixes() {
    for (paused_prefix, next_prefix) in [("a/", "a/b/"), ("a/b/", "a/")] {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (Pausable::new(), Pausable::new());
        let request = |folder, identity| with_short_ttl(local_request(&root, folder, identity));
        let paused = first
            .run(WriterLock::acquire(request(paused_prefix, somebody())))
            .unwrap();
        let next = acquire_by_deadline(&second, || request(next_prefix, somebody()));
        second.run(next.check()).unwrap();
        let error = first.run(paused.check()).unwrap_err();
        assert!(matches!(error, FenceError::Lost(_)), "{error:?}");
    }
}

/// A holder whose clock is far behind looks expired, but renews.
#[tokio::test]
async fn a_living_holder_is_not_taken_over_for_its_clock() {
    #[derive(Debug)]
    struct Behind(SystemClock);
    impl Clock for Behind {
        fn now(&self) -> Moment {
            let now = self.0.now();
            Moment {
                wall: now.wall - Duration::from_secs(60),
                ..now
            }
        }
    }
    let bucket = Bucket::new(7);
    let clock = Arc::new(Behind(SystemClock::default()));
    let request = with_short_ttl(memory_request(&bucket, "out/", somebody()));
    let lock = WriterLock::acquire(LockRequest { clock, ..request })
        .await
        .unwrap();
    // Twenty looks with half a time to live between them would pass the deadline of the test.
    let taking = WriterLock::acquire(with_short_ttl(memory_request(&bucket, "out/", somebody())));
    let taken = tokio::time::timeout(SHORT_TTL * 4, taking).await;
    assert!(!matches!(taken, Ok(Ok(_))), "{taken:?}");
    lock.check().await.unwrap();
}

#[tokio::test]
async fn a_lock_is_kept_by_renewals() {
    let root = tempfile::tempdir().unwrap();
    let request = with_short_ttl(local_request(&root, "out/", somebody()));
    let lock = WriterLock::acquire(request).await.unwrap();
    let start = Instant::now();
    while start.elapsed() < SHORT_TTL * 3 {
        let other = with_short_ttl(local_request(&root, "out/", somebody()));
        let error = WriterLock::acquire(other).await.unwrap_err();
        assert!(matches!(error, AcquireError::HeldBy { .. }), "{error:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!lock.is_lost());
}

#[tokio::test]
async fn a_process_that_is_gone_holds_nothing() {
    let root = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let mut dead = somebody();
    dead.holder.pid = child.id();
    child.wait().unwrap();
    drop(
        WriterLock::acquire(local_request(&root, "out/", dead))
            .await
            .unwrap(),
    );
    let next = WriterLock::acquire(local_request(&root, "out/", somebody()))
        .await
        .unwrap();
    assert_eq!(next.epoch(), 2, "no time to live was waited for");
}

#[tokio::test]
async fn a_restart_keeps_the_epoch() {
    let root = tempfile::tempdir().unwrap();
    let me = identity_of(identity::named("default/photos", "uid-1"));
    let request = || local_request(&root, "out/", me.clone());
    drop(WriterLock::acquire(request()).await.unwrap());
    let again = WriterLock::acquire(request()).await.unwrap();
    assert_eq!(again.epoch(), 1);
    let error = WriterLock::acquire(local_request(&root, "out/", somebody()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("default/photos on"), "{error}");
}

#[tokio::test]
async fn workers_follow_a_lock_that_another_process_holds() {
    let root = tempfile::tempdir().unwrap();
    let me = somebody_elsewhere();
    let request = local_request(&root, "out/", me.clone());
    let store = Arc::clone(&request.store);
    let lock = WriterLock::acquire(request).await.unwrap();
    let follow = async |run: &RunId, epoch| {
        let clock = Arc::new(SystemClock::default());
        Fence::follow(Arc::clone(&store), run, epoch, clock, Duration::ZERO).await
    };
    for (run, epoch) in [
        (&me.run, 2),
        (&RunId::new(time::OffsetDateTime::UNIX_EPOCH, 1), 1),
    ] {
        let error = follow(run, epoch).await.unwrap_err();
        assert!(matches!(error, FenceError::Lost(_)), "{error:?}");
    }
    let fence = follow(&me.run, lock.epoch()).await.unwrap();
    fence.check().await.unwrap();
    lock.renew().await.unwrap();
    fence.check().await.unwrap();
    lock.release().await.unwrap();
    assert!(matches!(fence.check().await, Err(FenceError::Lost(_))));
    assert!(fence.is_lost());
}

#[tokio::test]
async fn a_young_look_costs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let request = local_request(&root, "out/", somebody());
    let store: Arc<dyn Store> = Arc::clone(&request.store);
    let lock = WriterLock::acquire(request).await.unwrap();
    let before = store.requests();
    for _ in 0..1000 {
        lock.check().await.unwrap();
    }
    assert_eq!(store.requests(), before);
}

#[tokio::test]
async fn a_lock_of_another_version_is_not_touched() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("out/_sidecar");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("writer.json");
    std::fs::write(&file, r#"{"version": 2, "state": "resting"}"#).unwrap();
    let error = WriterLock::acquire(local_request(&root, "out/", somebody()))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("writer.json has format version 2"),
        "{error}"
    );
    std::fs::write(&file, "{").unwrap();
    let error = WriterLock::acquire(local_request(&root, "out/", somebody()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("writer.json is no writer lock"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{");
}

/// Its holder lives, and renews a lock that has always run out by our clock: whoever wants a
/// prefix inside watched it for ever, and said nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_clock_is_behind_holds() {
    #[derive(Debug)]
    struct Behind(SystemClock);
    impl Clock for Behind {
        fn now(&self) -> Moment {
            let now = self.0.now();
            let wall = now.wall - Duration::from_secs(120);
            Moment { wall, ..now }
        }
    }
    let root = tempfile::tempdir().unwrap();
    let ttl = Duration::from_secs(2);
    let behind = LockRequest {
        ttl,
        clock: Arc::new(Behind(SystemClock::default())),
        ..local_request(&root, "a/", somebody_elsewhere())
    };
    let holder = WriterLock::acquire(behind).await.unwrap();
    for folder in ["a/b/", "a/"] {
        let request = local_request(&root, folder, somebody());
        let acquired = tokio::time::timeout(DEADLINE, WriterLock::acquire(request)).await;
        let error = acquired.expect("an end").unwrap_err();
        let is_told = matches!(
            error,
            AcquireError::HeldByAncestor { .. } | AcquireError::HeldBy { .. }
        );
        assert!(is_told, "{folder}: {error:?}");
        holder.check().await.unwrap();
    }
    holder.release().await.unwrap();
}
