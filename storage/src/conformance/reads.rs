//! Reading.

use std::ops::Range;

use super::{create, payload};
use crate::error::Error;
use crate::store::{Payload, PutCondition, Store};

/// Ranges come back in the order asked for, each byte of them right, whatever lies between.
pub async fn ranges_are_exact(store: &dyn Store) {
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at * 31 % 251) as u8).collect();
    let published = store
        .put(
            "a.parquet",
            Payload::new(content.clone()),
            PutCondition::Create,
        )
        .await
        .expect("create");
    let size = content.len() as u64;
    let asked: Vec<Range<u64>> = vec![
        size - 8..size,
        0..4,
        100..200,
        150..250,
        0..0,
        2_000_000..2_000_001,
        700_000..1_700_000,
        0..size,
    ];
    for expected in [None, Some(&published.etag)] {
        let read = store
            .read_ranges("a.parquet", &asked, expected)
            .await
            .expect("ranges");
        assert_eq!(read.len(), asked.len());
        for (range, bytes) in asked.iter().zip(&read) {
            let wanted = &content[range.start as usize..range.end as usize];
            assert!(bytes == wanted, "{range:?}");
        }
    }
    let none = store
        .read_ranges("a.parquet", &[], None)
        .await
        .expect("none");
    assert!(none.is_empty());
    let beyond: Range<u64> = size - 1..size + 1;
    let beyond = store
        .read_ranges("a.parquet", std::slice::from_ref(&beyond), None)
        .await;
    assert!(matches!(beyond, Err(Error::Invalid { .. })), "{beyond:?}");
    let far: Range<u64> = size + 10..size + 20;
    let far = store
        .read_ranges("a.parquet", std::slice::from_ref(&far), None)
        .await;
    assert!(matches!(far, Err(Error::Invalid { .. })), "{far:?}");
}

/// A read of a version that is no more fails rather than return another's bytes.
pub async fn changed_objects_are_refused(store: &dyn Store) {
    let first = create(store, "a.parquet", "one").await;
    store
        .put(
            "a.parquet",
            payload("two"),
            PutCondition::Replace(first.etag.clone()),
        )
        .await
        .expect("replace");
    let range: Range<u64> = 0..3;
    let stale = store
        .read_ranges("a.parquet", std::slice::from_ref(&range), Some(&first.etag))
        .await;
    assert!(matches!(stale, Err(Error::Changed { .. })), "{stale:?}");
}

/// What is larger than the reader takes in is told, with what it has; what is as large is read.
pub async fn large_objects_are_left_alone(store: &dyn Store) {
    for name in ["1", "2", "3"] {
        create(store, &format!("_sidecar/{name}.json"), "four").await;
    }
    let key = "_sidecar/1.json";
    let (meta, bytes) = store.read_bounded(key, 4).await.expect("it is no larger");
    assert_eq!((meta.size, bytes.as_ref()), (4, &b"four"[..]));
    let before = store.requests().bytes_read;
    let error = store.read_bounded(key, 3).await.expect_err("it is larger");
    let is_told = matches!(&error, Error::TooLarge { uri, limit: 3, .. } if uri.ends_with(key));
    assert!(is_told && error.to_string().contains("4 bytes"), "{error}");
    assert_eq!(store.requests().bytes_read, before, "its body was read");

    let listed = store.list_bounded("_sidecar/", 3).await.expect("three");
    assert_eq!(listed.len(), 3);
    let error = store.list_bounded("_sidecar/", 2).await.expect_err("three");
    let is_told = matches!(&error, Error::TooLarge { uri, .. } if uri.ends_with("_sidecar/"));
    assert!(
        is_told && error.to_string().contains("3 objects"),
        "{error}"
    );
}

/// What is not there is `NotFound`, with the URI of what was asked for.
pub async fn missing_objects_are_told(store: &dyn Store) {
    create(store, "a/b.parquet", "one").await;
    let range: Range<u64> = 0..3;
    for key in ["none.parquet", "a/none.parquet", "x/y/z.parquet", "a"] {
        let is_told = |error: Error| {
            let told = matches!(&error, Error::NotFound { uri } if uri.ends_with(key));
            assert!(told, "{key}: {error:?}");
            assert!(error.uri().starts_with(store.uri()), "{error}");
        };
        is_told(store.head(key).await.map(drop).expect_err(key));
        is_told(store.read(key).await.map(drop).expect_err(key));
        let read = store
            .read_ranges(key, std::slice::from_ref(&range), None)
            .await;
        is_told(read.map(drop).expect_err(key));
    }
}
