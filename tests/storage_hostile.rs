//! Servers that mean harm: answers without an end, keys that are none, addresses of this machine.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use storage::{AccessKey, Error, Peers, StorageConfig, Stores};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What an endless answer would be, if somebody read it to its end.
const ENDLESS: usize = 256 << 20;

/// What a client may read of it: the largest page of a listing, and what is on its way.
const BEARABLE: usize = 32 << 20;

/// A server that sends `head` and then `piece` again and again, and how many bytes it got rid of.
async fn endless(head: &'static str, piece: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            let counter = Arc::clone(&counter);
            tokio::spawn(async move {
                read_head(&mut connection).await;
                let block = piece.repeat((64 << 10) / piece.len());
                let mut part = head.to_owned();
                // Until the client hangs up.
                while counter.load(Ordering::SeqCst) < ENDLESS
                    && connection.write_all(part.as_bytes()).await.is_ok()
                {
                    counter.fetch_add(part.len(), Ordering::SeqCst);
                    part.clone_from(&block);
                }
            });
        }
    });
    (port, sent)
}

async fn read_head(connection: &mut TcpStream) {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.contains("\r\n\r\n") {
        let count = connection.read(&mut buffer).await.unwrap();
        assert!(count > 0, "a request without an end");
        text.push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

/// A server that gives one answer.
async fn answering(body: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut connection, _) = listener.accept().await.unwrap();
            read_head(&mut connection).await;
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // The client may be gone.
            let _ = connection.write_all((head + &body).as_bytes()).await;
        }
    });
    port
}

fn stores(endpoint: String, peers: Peers) -> Stores {
    Stores::new(&StorageConfig {
        endpoint: Some(endpoint),
        region: Some("us-east-1".to_owned()),
        path_style: Some(true),
        access_key: Some(AccessKey {
            id: "id".to_owned(),
            secret: "secret".to_owned(),
        }),
        peers,
        retry_budget: Duration::from_secs(5),
        ..StorageConfig::default()
    })
}

fn at(port: u16) -> Stores {
    stores(format!("http://127.0.0.1:{port}"), Peers::Any)
}

#[tokio::test]
async fn a_listing_without_an_end_is_given_up() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n\
                <ListBucketResult>";
    let piece = "<Contents><Key>a/key</Key><Size>1</Size></Contents>";
    let (port, sent) = endless(head, piece).await;
    let store = at(port).open("s3://bucket/a/").unwrap();
    let pages: Result<Vec<_>, Error> = store.list_shards().try_collect().await;
    let error = pages.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(error.to_string().contains("longer than any"), "{error}");
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < BEARABLE, "{sent} bytes were read");
}

#[tokio::test]
async fn an_error_without_an_end_is_given_up() {
    let head = "HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n<Error><Code>";
    let (port, sent) = endless(head, "x").await;
    let store = at(port).open("s3://bucket/a/").unwrap();
    let error = store.read("object").await.unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    let sent = sent.load(Ordering::SeqCst);
    assert!(sent < BEARABLE, "{sent} bytes were read");
}

#[tokio::test]
async fn a_key_that_no_server_has_is_refused() {
    let key = "k".repeat(2000);
    let body = format!(
        "<ListBucketResult><Contents><Key>a/{key}</Key><Size>1</Size></Contents>\
         </ListBucketResult>"
    );
    let store = at(answering(body).await).open("s3://bucket/a/").unwrap();
    let pages: Result<Vec<_>, Error> = store.list_shards().try_collect().await;
    let error = pages.unwrap_err();
    assert!(error.to_string().contains("1024 at most"), "{error}");
}

/// Whoever runs the program may name any server; whoever only writes a manifest, none that is
/// reached at an address of this machine, however it is spelled and wherever its name leads.
#[tokio::test]
async fn addresses_of_this_machine_are_not_dialled_for_others() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::1]",
    ] {
        let stores = stores(format!("http://{host}:{port}"), Peers::NotThisMachine);
        let store = stores.open("s3://bucket/a/").unwrap();
        let error = store.read("object").await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{host}: {error:?}");
        assert!(error.to_string().contains("loopback"), "{host}: {error}");
    }
    let metadata = stores("http://169.254.169.254".to_owned(), Peers::NotThisMachine);
    let store = metadata.open("s3://bucket/a/").unwrap();
    let error = store.read("object").await.unwrap_err();
    assert!(error.to_string().contains("link-local"), "{error}");
    let dialled = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(dialled.is_err(), "nobody has dialled");
}
