//! The writer lock on a real S3 server.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod bucket;
#[path = "state_racers.rs"]
mod racers;

use std::time::{Duration, Instant};

use bucket::start;
use racers::{identity_of, race, request, somebody};
use storage::Stores;
use storage::state::fence::FenceError;
use storage::state::writer::{AcquireError, LockRequest, WriterLock};

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn one_of_sixteen_wins() {
    let Some((_server, config)) = start() else {
        return;
    };
    for epoch in 1..=5 {
        let requests = (0..16)
            .map(|_| request(&Stores::new(&config), "s3://bucket/a b/out/", somebody()))
            .collect();
        let (winners, losers) = race(requests).await;
        assert_eq!((winners.len(), losers.len()), (1, 15), "{losers:?}");
        for error in losers {
            assert!(matches!(error, AcquireError::HeldBy { .. }), "{error:?}");
        }
        assert_eq!(winners[0].epoch(), epoch);
        winners[0].check().await.unwrap();
        winners[0].release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_nested_prefixes_wins() {
    let Some((_server, config)) = start() else {
        return;
    };
    for _ in 0..5 {
        let requests = ["a/", "a/b/", "a/b/c/", "", "a/b/", "a/b/c/"].map(|prefix| {
            request(
                &Stores::new(&config),
                &format!("s3://bucket/{prefix}"),
                somebody(),
            )
        });
        let (winners, losers) = race(requests.into()).await;
        assert_eq!(winners.len(), 1, "{losers:?}");
        winners[0].release().await.unwrap();
    }
}

/// A process that is stopped is a runtime that isn't driven.
#[test]
fn a_paused_holder_is_taken_over_and_notices_before_it_publishes() {
    let Some((_server, config)) = start() else {
        return;
    };
    let [first, second] = [(); 2].map(|()| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    });
    let request = |identity| LockRequest {
        ttl: Duration::from_secs(1),
        max_look_age: Duration::from_secs(3600),
        ..request(&Stores::new(&config), "s3://bucket/out/", identity)
    };
    let paused = first
        .block_on(WriterLock::acquire(request(somebody())))
        .unwrap();
    let mut elsewhere = somebody();
    elsewhere.holder.host = "elsewhere".to_owned();
    let newcomer = identity_of(elsewhere.holder);
    let start = Instant::now();
    let next = loop {
        match second.block_on(WriterLock::acquire(request(newcomer.clone()))) {
            Ok(lock) => break lock,
            Err(error) => assert!(start.elapsed() < DEADLINE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(next.epoch(), 2);
    let error = first.block_on(paused.check()).unwrap_err();
    assert!(matches!(error, FenceError::Lost(_)), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("taken over by test on elsewhere"),
        "{error}"
    );
}
