//! Listing.

use super::{collect, create, text_of};
use crate::store::Store;

/// Keys that somebody somewhere has mangled.
const ODD_KEYS: [&str; 19] = [
    "a b/c d.parquet",
    "plus+plus/a+b.parquet",
    "percent%/100%25.parquet",
    "percent%20/x.parquet",
    "key=value/day=2025-06-01/x.parquet",
    "hash#/a#b.parquet",
    "question?/a?b=c&d.parquet",
    "quote'/a'b\".parquet",
    "colon:/a:b@c!$.parquet",
    "(paren)/[bracket]{brace}.parquet",
    "comma,semi;/a,b;c.parquet",
    "tilde~/~a.parquet",
    "star*/a*b.parquet",
    "accent-é/ä.parquet",
    "e\u{301}-decomposed/e\u{301}.parquet",
    "漢字/かな.parquet",
    "emoji-🦀/🦀.parquet",
    "..dots../...a...parquet.parquet",
    "<angle>/a|b^c`.parquet",
];

/// Keys mean nothing: whatever is in them comes back from listings and finds its object.
pub async fn keys_are_opaque(store: &dyn Store) {
    for key in ODD_KEYS {
        create(store, key, key).await;
    }
    let mut expected: Vec<&str> = ODD_KEYS.to_vec();
    // A name that begins with a dot is passed over.
    expected.retain(|key| !key.starts_with('.'));
    expected.sort_unstable();
    let listed = collect(store).await.expect("list");
    let keys: Vec<&str> = listed
        .shards
        .iter()
        .map(|shard| shard.key.as_str())
        .collect();
    assert_eq!(keys, expected);
    for key in ODD_KEYS {
        let head = store
            .head(key)
            .await
            .unwrap_or_else(|error| panic!("{key}: {error}"));
        assert_eq!(head.key, key);
        assert_eq!(text_of(store, key).await, key);
        let (folder, _) = key.split_once('/').expect("a folder");
        let folder = store
            .list_folder(&format!("{folder}/"))
            .await
            .expect("list");
        assert_eq!(folder, [head], "{key}");
    }
    for key in ODD_KEYS {
        store
            .delete(key, None)
            .await
            .unwrap_or_else(|error| panic!("{key}: {error}"));
    }
    assert!(store.list_folder("").await.expect("list").is_empty());
}

/// Listings are in the byte order of whole keys, which is not that of folders' names.
pub async fn listing_is_in_byte_order(store: &dyn Store) {
    let mut keys: Vec<String> = [
        "a-b/x.parquet",
        "a.parquet",
        "a/x.parquet",
        "a/x/y.parquet",
        "a/x-y.parquet",
        "a/x0.parquet",
        "a0/x.parquet",
        "B/x.parquet",
        "é/x.parquet",
        "z.parquet",
        "deep/a/b/c/d/e/f.parquet",
    ]
    .map(str::to_string)
    .to_vec();
    for folder in 0..40 {
        for shard in 0..3 {
            keys.push(format!("many/{folder}/{shard}.parquet"));
        }
    }
    for key in &keys {
        create(store, key, "x").await;
    }
    keys.sort_unstable();
    lists_exactly(store, &keys).await;
}

/// The listing has these keys, which are sorted, and no others.
pub async fn lists_exactly(store: &dyn Store, keys: &[String]) {
    let listed = collect(store).await.expect("list");
    let difference = listed
        .shards
        .iter()
        .zip(keys)
        .find(|(shard, key)| shard.key != **key);
    assert!(difference.is_none(), "listed and expected: {difference:?}");
    assert_eq!(listed.shards.len(), keys.len());
}

/// Names that readers of Parquet folders pass over are no shards, and are counted.
pub async fn listing_passes_over_what_is_no_shard(store: &dyn Store) {
    for key in [
        "a.parquet",
        "spark.parquet/part-0.parquet",
        "_hidden.parquet",
        ".hidden.parquet",
        "_sidecar/writer.json",
        "_sidecar/runs/1/x.parquet",
        "b/_temporary/x.parquet",
        "b/.cache/x.parquet",
        "b/_SUCCESS",
        "b/x.csv",
        "b/x.PARQUET",
        "b/parquet",
    ] {
        create(store, key, "x").await;
    }
    let listed = collect(store).await.expect("list");
    let keys: Vec<&str> = listed
        .shards
        .iter()
        .map(|shard| shard.key.as_str())
        .collect();
    assert_eq!(keys, ["a.parquet", "spark.parquet/part-0.parquet"]);
    assert!(listed.skipped >= 8, "{}", listed.skipped);
    assert!(listed.nested_locks.is_empty());
}

/// Writer locks of prefixes below are found; a prefix's own is not reported.
pub async fn listing_finds_nested_locks(store: &dyn Store) {
    for key in [
        "_sidecar/writer.json",
        "a/_sidecar/writer.json",
        "a/x.parquet",
        "b/c/_sidecar/writer.json",
        "b/c/_sidecar/manifest.json",
        "d/_sidecar/manifest.json",
    ] {
        create(store, key, "x").await;
    }
    let mut listed = collect(store).await.expect("list");
    listed.nested_locks.sort_unstable();
    assert_eq!(
        listed.nested_locks,
        ["a/_sidecar/writer.json", "b/c/_sidecar/writer.json"]
    );
    assert_eq!(listed.shards.len(), 1);
}

/// A folder's listing has everything below it, whatever the name, in byte order.
pub async fn folders_list_everything(store: &dyn Store) {
    for key in [
        "_sidecar/writer.json",
        "_sidecar/runs/b/chunks/1.json",
        "_sidecar/runs/a/.x",
        "_sidecar-other/x.json",
        "a.parquet",
    ] {
        create(store, key, "x").await;
    }
    let keys = async |folder: &str| -> Vec<String> {
        let objects = store.list_folder(folder).await.expect("list");
        objects.into_iter().map(|object| object.key).collect()
    };
    let state = [
        "_sidecar/runs/a/.x",
        "_sidecar/runs/b/chunks/1.json",
        "_sidecar/writer.json",
    ];
    assert_eq!(keys("_sidecar/").await, state);
    assert_eq!(keys("_sidecar/runs/a/").await, ["_sidecar/runs/a/.x"]);
    assert!(keys("none/").await.is_empty());
    assert_eq!(keys("").await.len(), 5);
}

/// Of many keys those are found that exist, whether they are neighbours or far apart, and
/// whatever lies between them.
pub async fn found_keys_are_those_that_exist(store: &dyn Store) {
    let key = |number: usize| format!("a b/{:02}/{number:04}.parquet", number / 100);
    for number in (0..600).step_by(2) {
        create(store, &key(number), "x").await;
    }
    create(store, "a b/00/0000.parque", "beside").await;
    create(store, "a b/00/0000.parquet.json", "beside").await;
    let expect = async |asked: Vec<usize>| {
        let keys: Vec<String> = asked.iter().map(|number| key(*number)).collect();
        let found = store.find(&keys).await.expect("find");
        let found: Vec<&str> = found.iter().map(|object| object.key.as_str()).collect();
        let existing = asked
            .iter()
            .filter(|number| **number < 600 && **number % 2 == 0);
        let existing: Vec<String> = existing.map(|number| key(*number)).collect();
        assert_eq!(found, existing);
    };
    expect(Vec::new()).await;
    expect(vec![0]).await;
    expect(vec![1]).await;
    expect((0..700).collect()).await;
    expect((0..700).step_by(50).collect()).await;
    expect((700..800).collect()).await;
    let one = store.find(&[key(8)]).await.expect("find");
    assert_eq!(one, [store.head(&key(8)).await.expect("head")]);
    // Keys that no object can have are those of other programs' objects: they hide no neighbour.
    let strange = ["a b//x.parquet".to_owned(), key(8)];
    let found = store.find(&strange).await.expect("find");
    assert_eq!(found, one);
}

/// A prefix where nobody has written yet lists nothing and is swept of nothing.
pub async fn nothing_is_no_error(store: &dyn Store) {
    let listed = collect(store).await.expect("list");
    assert_eq!(listed, crate::store::ListPage::default());
    assert!(store.list_folder("").await.expect("list").is_empty());
    assert!(store.leftovers().await.expect("leftovers").is_empty());
}
