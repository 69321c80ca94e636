//! Credentials that a source hands out: asked for when they are needed, used as they are, and
//! asked for again before they expire.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use storage::{AccessKey, CredentialSource, Credentials, Error, StorageConfig, Stores};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Hands out numbered keys for so long; none where there is no lifetime.
#[derive(Debug)]
struct Numbered {
    asked: AtomicU32,
    lifetime: Option<Duration>,
}

#[async_trait]
impl CredentialSource for Numbered {
    async fn credentials(&self) -> Result<Credentials, String> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let Some(lifetime) = self.lifetime else {
            return Err("the cupboard is locked; ask the porter".to_owned());
        };
        Ok(Credentials {
            key: AccessKey {
                id: format!("id{number}"),
                secret: "secret".to_owned(),
            },
            session_token: Some(format!("token{number}")),
            expires_at: Some(SystemTime::now() + lifetime),
        })
    }
}

/// A server that has no object, and the heads of the requests that it got.
async fn server() -> (StorageConfig, Arc<Mutex<Vec<String>>>) {
    server_that_refuses(&[]).await
}

/// As [`server`], but keys of these numbers are refused.
async fn server_that_refuses(keys: &'static [u32]) -> (StorageConfig, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = StorageConfig {
        endpoint: Some(format!("http://{}", listener.local_addr().unwrap())),
        region: Some("us-east-1".to_owned()),
        ..StorageConfig::default()
    };
    let heads = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&heads);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            let mut buffer = [0; 4096];
            while !text.contains("\r\n\r\n") {
                let count = connection.read(&mut buffer).await.unwrap();
                text.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            let is_refused = keys.iter().any(|key| is_signed_by(&text, *key));
            noted.lock().unwrap().push(text);
            let status = if is_refused {
                "403 Forbidden"
            } else {
                "404 Not Found"
            };
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            connection.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (config, heads)
}

/// Asks for an object that isn't there.
async fn ask(stores: &Stores) -> Result<(), Error> {
    let store = stores.open("s3://bucket/prefix/").unwrap();
    match store.head("object").await {
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => panic!("there is no object"),
    }
}

fn source(lifetime: Option<Duration>) -> Arc<Numbered> {
    Arc::new(Numbered {
        asked: AtomicU32::new(0),
        lifetime,
    })
}

fn is_signed_by(head: &str, number: u32) -> bool {
    let head = head.to_ascii_lowercase();
    head.contains(&format!("credential=id{number}/"))
        && head.contains(&format!("x-amz-security-token: token{number}\r\n"))
}

#[tokio::test]
async fn they_are_asked_for_once_while_they_last_and_the_token_goes_with_them() {
    let (config, heads) = server().await;
    let source = source(Some(Duration::from_secs(3600)));
    let stores = Stores::with_credentials(&config, Arc::clone(&source) as _);
    assert_eq!(
        source.asked.load(Ordering::SeqCst),
        0,
        "nothing was needed yet"
    );
    for _ in 0..3 {
        ask(&stores).await.unwrap();
    }
    assert_eq!(source.asked.load(Ordering::SeqCst), 1);
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 3);
    assert!(heads.iter().all(|head| is_signed_by(head, 0)), "{heads:#?}");
}

#[tokio::test]
async fn they_are_renewed_before_they_expire() {
    let (config, heads) = server().await;
    // Within the time before its end in which a key is renewed.
    let source = source(Some(Duration::from_secs(5)));
    let stores = Stores::with_credentials(&config, Arc::clone(&source) as _);
    ask(&stores).await.unwrap();
    ask(&stores).await.unwrap();
    assert_eq!(source.asked.load(Ordering::SeqCst), 2);
    let heads = heads.lock().unwrap();
    assert!(
        is_signed_by(&heads[0], 0) && is_signed_by(&heads[1], 1),
        "{heads:#?}"
    );
}

#[tokio::test]
async fn what_a_source_says_when_it_has_none_is_told() {
    let (config, heads) = server().await;
    let stores = Stores::with_credentials(&config, source(None));
    let error = ask(&stores).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("ask the porter"), "{error}");
    assert!(heads.lock().unwrap().is_empty(), "nothing is sent unsigned");
}

#[tokio::test]
async fn a_key_that_was_replaced_is_asked_for_as_soon_as_the_old_one_is_refused() {
    let (config, heads) = server_that_refuses(&[0]).await;
    let source = source(Some(Duration::from_secs(3600)));
    let stores = Stores::with_credentials(&config, Arc::clone(&source) as _);
    ask(&stores).await.unwrap();
    ask(&stores).await.unwrap();
    assert_eq!(source.asked.load(Ordering::SeqCst), 2);
    let heads = heads.lock().unwrap();
    let keys: Vec<_> = heads.iter().map(|head| is_signed_by(head, 1)).collect();
    assert_eq!(keys, [false, true, true]);
}

#[tokio::test]
async fn refusals_do_not_ask_the_source_again_and_again() {
    let (config, heads) = server_that_refuses(&[0, 1, 2, 3]).await;
    let source = source(Some(Duration::from_secs(3600)));
    let stores = Stores::with_credentials(&config, Arc::clone(&source) as _);
    for _ in 0..5 {
        let error = ask(&stores).await.unwrap_err();
        assert!(error.is_refused(), "{error}");
    }
    assert_eq!(source.asked.load(Ordering::SeqCst), 2);
    assert_eq!(heads.lock().unwrap().len(), 6, "one was sent again");
}
