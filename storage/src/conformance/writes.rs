//! Writing and deleting.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::join_all;

use super::{create, payload, text_of};
use crate::error::Error;
use crate::store::{ETag, Permit, PutCondition, Store, Withheld};

/// What is written is read, is listed with the same version, and is gone once deleted.
pub async fn put_get_delete(store: &dyn Store) {
    let published = create(store, "a/b.parquet", "hello").await;
    assert!(!published.already_there);
    assert_eq!(published.size, 5);
    let head = store.head("a/b.parquet").await.expect("head");
    assert_eq!((head.size, &head.etag), (5, &published.etag));
    assert_eq!(head.key, "a/b.parquet");
    let (meta, bytes) = store.read("a/b.parquet").await.expect("read");
    assert_eq!(meta, head);
    assert_eq!(bytes, Bytes::from_static(b"hello"));
    let listed = super::collect(store).await.expect("list");
    assert_eq!(listed.shards, [head]);
    create(store, "a/empty.parquet", "").await;
    assert_eq!(text_of(store, "a/empty.parquet").await, "");
    store.delete("a/b.parquet", None).await.expect("delete");
    let gone = store.head("a/b.parquet").await;
    assert!(matches!(gone, Err(Error::NotFound { .. })), "{gone:?}");
    let counts = store.requests();
    assert!(counts.put >= 2 && counts.get >= 2 && counts.head >= 2 && counts.list >= 1);
    assert_eq!(counts.delete, 1);
    assert_eq!(counts.bytes_written, 5);
}

/// A second create changes nothing: it succeeds if it has the same bytes, and fails otherwise.
pub async fn create_is_write_once(store: &dyn Store) {
    let first = create(store, "a.parquet", "one").await;
    let again = create(store, "a.parquet", "one").await;
    assert!(again.already_there);
    assert_eq!(again.etag, first.etag);
    for other in ["two", "longer"] {
        let refused = store
            .put("a.parquet", payload(other), PutCondition::Create)
            .await;
        assert!(matches!(&refused, Err(Error::Exists { uri }) if uri.ends_with("a.parquet")));
    }
    assert_eq!(text_of(store, "a.parquet").await, "one");
}

/// A replacement takes effect on the version it names and on no other.
pub async fn replace_is_conditional(store: &dyn Store) {
    let first = create(store, "a.parquet", "one").await;
    let second = store
        .put(
            "a.parquet",
            payload("two"),
            PutCondition::Replace(first.etag.clone()),
        )
        .await
        .expect("replace");
    assert!(!second.already_there);
    assert_ne!(second.etag, first.etag);
    let stale = store
        .put(
            "a.parquet",
            payload("three"),
            PutCondition::Replace(first.etag.clone()),
        )
        .await;
    assert!(matches!(stale, Err(Error::Changed { .. })), "{stale:?}");
    let repeated = store
        .put(
            "a.parquet",
            payload("two"),
            PutCondition::Replace(first.etag),
        )
        .await
        .expect("a replacement that has taken effect before");
    assert!(repeated.already_there);
    assert_eq!(repeated.etag, second.etag);
    assert_eq!(text_of(store, "a.parquet").await, "two");
    let missing = store
        .put(
            "none.parquet",
            payload("x"),
            PutCondition::Replace(second.etag),
        )
        .await;
    assert!(matches!(missing, Err(Error::Changed { .. })), "{missing:?}");
}

/// Of fifty that create one object at once, one wins and all others are told.
pub async fn one_of_a_race_wins(store: &dyn Store) {
    for round in 0..3 {
        let key = format!("race-{round}.parquet");
        let contenders = (0..50).map(|number| {
            let text = format!("contender {number:02}");
            store.put(&key, payload(text), PutCondition::Create)
        });
        let outcomes = join_all(contenders).await;
        let mut winner = None;
        for (number, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(published) => {
                    assert!(!published.already_there);
                    assert_eq!(winner.replace(number), None, "a second winner: {number}");
                }
                Err(Error::Exists { .. }) => {}
                Err(error) => panic!("contender {number}: {error}"),
            }
        }
        let winner = winner.expect("a winner");
        let text = text_of(store, &key).await;
        assert_eq!(text, format!("contender {winner:02}"));
    }
}

/// Counters that many increase by compare-and-swap lose no increase.
pub async fn compare_and_swap_loses_nothing(store: &dyn Store) {
    create(store, "_sidecar/counter.json", "00000").await;
    let increase = async |worker: u32| {
        let mut done = 0;
        while done < 10 {
            let (meta, bytes) = store.read("_sidecar/counter.json").await.expect("read");
            let text = String::from_utf8_lossy(&bytes);
            let count: u32 = text[..5].parse().expect("a number");
            // The writer's mark keeps equal counts of two workers from having equal bytes.
            let next = format!("{:05} by {worker}/{done}", count + 1);
            let condition = PutCondition::Replace(meta.etag);
            match store
                .put("_sidecar/counter.json", payload(next), condition)
                .await
            {
                Ok(_) => done += 1,
                Err(Error::Changed { .. }) => {}
                Err(error) => panic!("worker {worker}: {error}"),
            }
        }
    };
    join_all((0..8).map(increase)).await;
    let text = text_of(store, "_sidecar/counter.json").await;
    assert_eq!(&text[..5], "00080");
}

/// No two versions of an object have the same tag, however quickly they follow, whether it is
/// replaced or deleted and made anew, and though all have the same size.
pub async fn versions_never_repeat(store: &dyn Store) {
    let mut tags: HashSet<ETag> = HashSet::new();
    let mut current = create(store, "a.parquet", "000").await.etag;
    tags.insert(current.clone());
    for number in 1..60 {
        let text = payload(format!("{number:03}"));
        let condition = if number % 5 == 0 {
            store.delete("a.parquet", None).await.expect("delete");
            PutCondition::Create
        } else {
            PutCondition::Replace(current)
        };
        let published = store.put("a.parquet", text, condition).await.expect("put");
        assert!(
            tags.insert(published.etag.clone()),
            "version {number} has an earlier tag"
        );
        current = published.etag;
        let head = store.head("a.parquet").await.expect("head");
        assert_eq!(head.etag, current);
    }
}

/// A delete takes effect on the version it names; deleting nothing is success.
pub async fn deletes_are_conditional(store: &dyn Store) {
    let first = create(store, "a/b.parquet", "one").await;
    let second = store
        .put(
            "a/b.parquet",
            payload("two"),
            PutCondition::Replace(first.etag.clone()),
        )
        .await
        .expect("replace");
    let stale = store.delete("a/b.parquet", Some(&first.etag)).await;
    assert!(matches!(stale, Err(Error::Changed { .. })), "{stale:?}");
    assert_eq!(text_of(store, "a/b.parquet").await, "two");
    store
        .delete("a/b.parquet", Some(&second.etag))
        .await
        .expect("delete");
    store
        .delete("a/b.parquet", Some(&second.etag))
        .await
        .expect("delete nothing");
    store
        .delete("x/y/z.parquet", None)
        .await
        .expect("delete nothing");
    let recreated = create(store, "a/b.parquet", "three").await;
    assert!(!recreated.already_there);
}

/// Keys that would leave the prefix, or mean different objects to different stores, are
/// refused before anything happens.
pub async fn bad_keys_are_refused(store: &dyn Store) {
    for key in [
        "",
        "/a",
        "a/",
        "a//b",
        "../a",
        "a/../b",
        "a/./b",
        "a.sidecar-tmp",
    ] {
        let is_invalid = |error: Error| assert!(matches!(error, Error::Invalid { .. }), "{key:?}");
        is_invalid(store.head(key).await.map(drop).expect_err(key));
        is_invalid(store.read(key).await.map(drop).expect_err(key));
        is_invalid(
            store
                .read_ranges(key, &[], None)
                .await
                .map(drop)
                .expect_err(key),
        );
        is_invalid(store.delete(key, None).await.expect_err(key));
        let put = store.put(key, payload("x"), PutCondition::Create).await;
        is_invalid(put.map(drop).expect_err(key));
    }
    for folder in ["a", "/", "a//", "../"] {
        assert!(store.list_folder(folder).await.is_err(), "{folder:?}");
    }
}

/// A sweep removes the `leftovers` that the caller has planted, and no object.
pub async fn sweep_spares_objects(store: &dyn Store, leftovers: u64) {
    create(store, "a/b.parquet", "one").await;
    create(store, "_sidecar/writer.json", "{}").await;
    let found = store.leftovers().await.expect("leftovers");
    assert_eq!(store.sweep(&found).await.expect("sweep"), leftovers);
    assert!(store.leftovers().await.expect("leftovers").is_empty());
    let keys: Vec<String> = store
        .list_folder("")
        .await
        .expect("list")
        .into_iter()
        .map(|object| object.key)
        .collect();
    assert_eq!(keys, ["_sidecar/writer.json", "a/b.parquet"]);
}

/// What a writer is told who asks for leave.
#[derive(Debug)]
struct Told {
    answers: Mutex<VecDeque<Result<(), Withheld>>>,
    asked: Mutex<Vec<bool>>,
    /// So many looks find that leave has run out.
    stale: Mutex<u32>,
}

impl Told {
    fn new(answers: impl IntoIterator<Item = Result<(), Withheld>>, stale: u32) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers.into_iter().collect()),
            asked: Mutex::default(),
            stale: Mutex::new(stale),
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Permit for Told {
    async fn ask(&self, anew: bool) -> Result<(), Withheld> {
        locked(&self.asked).push(anew);
        locked(&self.answers).pop_front().unwrap_or(Ok(()))
    }

    fn holds(&self) -> bool {
        let mut stale = locked(&self.stale);
        let holds = *stale == 0;
        *stale = stale.saturating_sub(1);
        holds
    }
}

/// Without leave nothing is written, and nothing is left; leave that has run out is asked for
/// again.
pub async fn leave_is_asked_for(store: &dyn Store) {
    let withheld = |is_final| Withheld {
        reason: "the lock is gone".to_owned(),
        is_final,
    };
    for is_final in [true, false] {
        let permit = Told::new([Err(withheld(is_final))], 0);
        let put = store.put_permitted("a/b.parquet", payload("x"), PutCondition::Create, permit);
        let refused = put.await.map(drop).expect_err("no leave");
        let is_told = matches!(&refused, Error::Withheld { uri, reason, is_final: told }
            if uri.ends_with("a/b.parquet") && reason == "the lock is gone" && *told == is_final);
        assert!(is_told, "{refused:?}");
    }
    assert!(store.list_folder("").await.expect("list").is_empty());
    assert!(store.leftovers().await.expect("leftovers").is_empty());
    for stale in [0, 3] {
        let key = format!("{stale}.parquet");
        let permit = Told::new([], stale);
        let put = store.put_permitted(&key, payload("x"), PutCondition::Create, permit.clone());
        let published = put.await.expect("leave");
        assert!(!locked(&permit.asked).is_empty());
        let condition = PutCondition::Replace(published.etag);
        let put = store.put_permitted(&key, payload("y"), condition, Told::new([], stale));
        put.await.expect("leave");
        assert_eq!(text_of(store, &key).await, "y");
    }
}
