//! The policies of docs/permissions.md are enough, and no more than is needed.

use harness::dataset::Shape;
use harness::s3_server::S3Server;
use serde_json::Value;

use crate::place::Place;

const DOCUMENT: &str = include_str!("../../docs/permissions.md");
const SECRET: &str = "another-secret-1234";

/// The policy below a heading, for this test's bucket and prefixes.
fn policy(heading: &str) -> Value {
    let (_, section) = DOCUMENT
        .split_once(&format!("## {heading}\n"))
        .expect("a section");
    let (_, text) = section.split_once("```json").expect("a policy");
    let (text, _) = text.split_once("```").expect("its end");
    let text = text
        .replace("my-bucket", "bucket")
        .replace("photos_metrics/", "out/")
        .replace("photos/", "main/")
        .replace("metrics/", "index/");
    serde_json::from_str(&text).expect("JSON")
}

fn all(headings: &[&str], without: &str) -> Value {
    let mut statements = Vec::new();
    for heading in headings {
        let policy = policy(heading);
        let found = policy["Statement"].as_array().expect("statements").clone();
        statements.extend(found.into_iter().filter(|statement| {
            without.is_empty() || !statement["Action"].to_string().contains(without)
        }));
    }
    serde_json::json!({"Version": "2012-10-17", "Statement": statements})
}

#[test]
fn a_run_needs_what_the_document_says() {
    let shape = Shape {
        shards: 12,
        ..Shape::default()
    };
    let with_user = |server: S3Server| server.with_user("someone", SECRET);
    let Some(place) = Place::bucket_with(shape, with_user) else {
        return;
    };
    let text = harness::dataset::join_job(&place.root(), &place.uri("out"));
    let job = place.manifest("join.yaml", &text);
    let as_someone = |command: &str, policy: Value| {
        place.server().allow("bucket", &[("someone", policy)]);
        let environment = place.server().environment_of("someone", SECRET);
        crate::worker::Worker::on(command, &job).environment(&environment)
    };
    let reader = || all(&["Reader"], "");
    let operator = || all(&["Reader", "Worker", "Operator"], "");
    as_someone("run", reader())
        .argument("--dry-run")
        .run()
        .expect(0);
    as_someone("run", reader())
        .run()
        .expect(5)
        .says(&["access refused"]);
    assert!(place.names("out").is_empty());

    let unswept = all(
        &["Reader", "Worker", "Operator"],
        "ListBucketMultipartUploads",
    );
    let ended = as_someone("run", unswept).run().expect(0);
    ended.says(&["what killed writers left can't be removed"]);
    assert_eq!(place.names("out").len(), 12);
    place.delete("out", &harness::dataset::path(3));
    let ended = as_someone("run", operator()).run().expect(0);
    assert!(
        !ended.stderr.contains("can't be removed"),
        "{}",
        ended.stderr
    );
    for command in ["verify", "audit"] {
        as_someone(command, reader()).run().expect(0);
    }
    place.delete("out", &harness::dataset::path(3));
    let undeleted = all(&["Reader", "Worker", "Operator"], "DeleteObject");
    as_someone("run", undeleted)
        .run()
        .expect(5)
        .says(&["access refused"]);
}
