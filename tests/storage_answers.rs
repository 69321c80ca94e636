//! Answers that no real server gives on demand, and what the S3 store makes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use harness::scripted_s3::{Answer, Request, ScriptedS3};
use storage::{AccessKey, Error, Payload, PutCondition, StorageConfig, Store, Stores, conformance};

fn store(server: &ScriptedS3) -> Arc<dyn Store> {
    let config = StorageConfig {
        endpoint: Some(server.endpoint()),
        region: Some("us-east-1".to_owned()),
        access_key: Some(AccessKey {
            id: "key".to_owned(),
            secret: "secret".to_owned(),
        }),
        retry_budget: Duration::from_secs(3),
        stall_timeout: Duration::from_millis(400),
        ..StorageConfig::default()
    };
    Stores::new(&config).open("s3://bucket/").expect("a store")
}

fn is_listing(request: &Request) -> bool {
    request.parameter("list-type").is_some()
}

fn page(keys: &str, next: &str) -> Answer {
    Answer::new(
        200,
        format!(
            "<ListBucketResult><IsTruncated>true</IsTruncated>\
             <NextContinuationToken>{next}</NextContinuationToken>{keys}</ListBucketResult>"
        ),
    )
}

/// Nothing but other objects on each page, so that no order is broken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_that_repeats_a_token_comes_to_an_end() {
    let object = "<Contents><Key>x.txt</Key><Size>1</Size></Contents>";
    for tokens in [&["a"][..], &["a", "b"], &["a", "b", "c", "d", "e"]] {
        let server = ScriptedS3::start(move |request| {
            let token = request.parameter("continuation-token");
            let at = tokens
                .iter()
                .position(|known| Some(*known) == token.as_deref());
            let next = at.map_or(0, |at| (at + 1) % tokens.len());
            is_listing(request).then(|| page(object, tokens[next]))
        });
        let store = store(&server);
        let errors = [
            conformance::collect(&*store).await.map(drop),
            store.list_folder("_sidecar/").await.map(drop),
        ];
        for listed in errors {
            let error = listed.expect_err("no end");
            assert!(matches!(error, Error::BadAnswer { .. }), "{error:?}");
            assert!(error.to_string().contains("again and again"), "{error}");
        }
        assert!(server.seen().len() < 100, "{}", server.seen().len());
    }
}

/// A byte now and then never stands still, and never comes to an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_drips_is_given_up() {
    let server = ScriptedS3::start(|request| {
        let range = request.headers.get("range");
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let start: usize = range.map_or(0, |(start, _)| start.parse().expect("a number"));
        let mut answer = Answer::new(206, vec![7; 100_000 - start]);
        answer.headers.push(("ETag", "\"1\"".to_owned()));
        let whole = format!("bytes {start}-99999/100000");
        answer.headers.push(("Content-Range", whole));
        answer.drip = Some((1, Duration::from_millis(20)));
        (request.method == "GET").then_some(answer)
    });
    let error = store(&server).read("a").await.expect_err("it drips");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("the body stalled"), "{error}");
    // A body that is merely slow is read.
    let server = ScriptedS3::start(|request| {
        let mut answer = Answer::new(200, vec![7; 1_000_000]);
        answer.headers.push(("ETag", "\"1\"".to_owned()));
        answer.drip = Some((100_000, Duration::from_millis(10)));
        (request.method == "GET").then_some(answer)
    });
    let (_, bytes) = store(&server).read("a").await.expect("a slow body");
    assert_eq!(bytes.len(), 1_000_000);
}

/// The status is sent before the parts are joined: an error comes as the body of a success.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_completion_that_fails_with_status_200_is_judged_by_its_error() {
    let upload = |codes: &'static [&'static str]| {
        let asked = AtomicU32::new(0);
        ScriptedS3::start(move |request| {
            let is_complete = request.method == "POST" && request.parameter("uploadId").is_some();
            if is_complete {
                let number = asked.fetch_add(1, Ordering::SeqCst) as usize;
                return Some(match codes.get(number) {
                    Some(code) => Answer::error(200, code),
                    None => Answer::new(
                        200,
                        "<CompleteMultipartUploadResult><ETag>\"joined\"</ETag></CompleteMultipartUploadResult>",
                    ),
                });
            }
            (request.method == "POST").then(|| {
                let begun = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>";
                Answer::new(200, begun)
            })
        })
    };
    let put = async |server: &ScriptedS3, condition: PutCondition| {
        let payload = Payload::new(vec![1; 65 << 20]);
        store(server).put("large", payload, condition).await
    };
    let server = upload(&["InternalError", "SlowDown"]);
    let published = put(&server, PutCondition::Create)
        .await
        .expect("at the third try");
    assert_eq!(&*published.etag.0, "joined");
    let replace = PutCondition::Replace(storage::ETag::from("other".to_owned()));
    let server = upload(&["PreconditionFailed"]);
    let error = put(&server, replace).await.expect_err("a broken condition");
    assert!(matches!(error, Error::Changed { .. }), "{error:?}");
    let server = upload(&["AccessDenied"]);
    let error = put(&server, PutCondition::Create)
        .await
        .expect_err("a refusal");
    assert!(error.is_refused(), "{error:?}");
}
