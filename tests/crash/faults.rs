//! Networks and servers that fail, between the worker and a real server.

use harness::dataset::{Shape, path};
use harness::fault_proxy::{Fault, FaultProxy, Rule};
use serde_json::Value;

use crate::place::{Place, assert_same_bytes};

const SHAPE: Shape = Shape {
    shards: 24,
    rows: 30,
    group_rows: 16,
    image_bytes: 3000,
};

/// Runs the job through a proxy with these rules; the output must be that of a quiet run.
fn survives(rules: Vec<Rule>) -> Option<(Value, FaultProxy)> {
    let place = Place::bucket(SHAPE)?;
    let quiet = place.quiet("quiet");
    let proxy = FaultProxy::start(place.server().address(), 9);
    rules.into_iter().for_each(|rule| proxy.add(rule));
    let report = place.manifest("report.json", "");
    let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
    let worker = place.worker("run", "out").environment(&endpoint);
    let path = report.display().to_string();
    worker.argument("--report").argument(&path).run().expect(0);
    assert!(proxy.struck() > 0, "nothing was struck");
    assert_same_bytes(&place.shards("out"), &quiet);
    assert!(place.read("out", "_SUCCESS").is_some());
    place
        .worker("verify", "out")
        .arguments("--all --deep")
        .run()
        .expect(0);
    let report = serde_json::from_slice(&std::fs::read(report).expect("a report")).expect("JSON");
    Some((report, proxy))
}

fn requests(report: &Value, field: &str) -> u64 {
    report["requests"][field].as_u64().expect("a count")
}

#[test]
fn bursts_of_503_are_waited_out() {
    let slow_down = Fault::Status(503, "SlowDown");
    let rules = vec![
        Rule::once("GET", "/main/", slow_down.clone())
            .times(8)
            .after(3),
        Rule::once("PUT", "/out/source_", slow_down.clone())
            .times(8)
            .after(3),
        Rule::once("GET", "list-type", slow_down.clone()).times(2),
        Rule::once("HEAD", "/scores/", slow_down.clone()).times(4),
        Rule::once("PUT", "/out/_s", slow_down).times(3),
    ];
    let Some((report, proxy)) = survives(rules) else {
        return;
    };
    assert_eq!(requests(&report, "slow_down"), proxy.struck() as u64);
    assert!(requests(&report, "retries") >= proxy.struck() as u64);
    assert_eq!(report["shards_done"], 24);
}

#[test]
fn bodies_that_are_cut_are_read_on() {
    let rules = vec![
        Rule::once("GET", "/main/", Fault::ResetBody(700))
            .times(6)
            .after(2),
        Rule::once("GET", "/main/", Fault::ShortBody(300))
            .times(6)
            .after(5),
        Rule::once("GET", "/scores/", Fault::ShortBody(100)).times(3),
        Rule::once("GET", "/index/", Fault::ResetBody(500)).times(3),
        Rule::once("GET", "/captions/", Fault::ShortBody(200)).times(2),
    ];
    let Some((report, proxy)) = survives(rules) else {
        return;
    };
    assert!(proxy.struck() >= 15, "{}", proxy.struck());
    assert!(requests(&report, "retries") > 0);
}

#[test]
fn writes_whose_answer_is_lost_are_recognised() {
    let rules = vec![
        Rule::once("PUT", "/out/source_", Fault::LoseAnswer).times(10),
        Rule::once("PUT", "/out/source_", Fault::LoseRequest)
            .times(4)
            .after(2),
        Rule::once("PUT", "writer.json", Fault::LoseAnswer).times(2),
        Rule::once("PUT", "manifest.json", Fault::LoseAnswer),
        Rule::once("PUT", "_SUCCESS", Fault::LoseAnswer),
        Rule::once("PUT", "/chunks/", Fault::LoseAnswer).times(2),
        Rule::once("PUT", "/plan/", Fault::LoseAnswer),
    ];
    let Some((report, proxy)) = survives(rules) else {
        return;
    };
    assert!(requests(&report, "retries") >= proxy.struck() as u64);
    assert_eq!(report["shards_done"], 24);
    assert_eq!(report["failures"], serde_json::json!([]));
}

#[test]
fn one_request_in_six_failing_in_any_way_is_survived() {
    let rules = vec![
        Rule::once("PUT", "", Fault::LoseAnswer).one_in(6),
        Rule::once("GET", "", Fault::LoseRequest).one_in(12),
        Rule::once("GET", "/main/", Fault::ShortBody(50)).one_in(12),
        Rule::once("HEAD", "", Fault::Status(500, "InternalError")).one_in(6),
    ];
    let Some((report, _)) = survives(rules) else {
        return;
    };
    assert!(requests(&report, "retries") > 10);
}

#[test]
fn refused_access_ends_the_run_and_says_what_to_check() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    for (name, value) in [
        ("AWS_SECRET_ACCESS_KEY", "wrong"),
        ("AWS_ACCESS_KEY_ID", "nobody"),
    ] {
        for command in ["run", "verify", "audit"] {
            let wrong = [(name, value.to_owned())];
            let ended = place.worker(command, "out").environment(&wrong).run();
            ended
                .expect(5)
                .says(&["s3://bucket/", "access refused", "check"]);
        }
    }
    // Refused halfway, whatever is asked for: what is published stays, and no other is tried.
    for (method, target) in [
        ("PUT", format!("/out/{}", path(5))),
        ("GET", format!("/main/{}", path(5))),
        ("GET", "/index/".to_owned()),
    ] {
        let proxy = FaultProxy::start(place.server().address(), 9);
        let expired = Fault::Status(400, "ExpiredToken");
        proxy.add(Rule::once(method, &target, expired).one_in(1));
        let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
        let ended = place.worker("run", "out").environment(&endpoint).run();
        ended
            .expect(5)
            .says(&[&target[1..], "access refused", "renew"]);
        assert!(place.read("out", "_SUCCESS").is_none());
        assert!(place.lock_field("out", "state") != "held");
    }
    assert_eq!(place.run("out").expect(0).code, Some(0));
}

/// An archived object, or one that a policy closes, is its shard's affair.
#[test]
fn refused_access_to_one_object_costs_one_shard() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let quiet = place.quiet("quiet");
    let refusals = [
        (
            "GET",
            format!("/main/{}", path(3)),
            "InvalidObjectState",
            "archived",
        ),
        (
            "GET",
            format!("/scores/{}", path(4)),
            "AccessDenied",
            "check",
        ),
        (
            "HEAD",
            format!("/scores/{}", path(6)),
            "AccessDenied",
            "check",
        ),
        ("PUT", format!("/out/{}", path(5)), "AccessDenied", "check"),
    ];
    let proxy = FaultProxy::start(place.server().address(), 9);
    for (method, target, code, _) in &refusals {
        proxy.add(Rule::once(method, target, Fault::Status(403, code)).one_in(1));
    }
    let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
    let ended = place.worker("run", "out").environment(&endpoint).run();
    let ended = ended.expect(1);
    for (_, target, _, advice) in &refusals {
        let line = ended.stdout.lines().find(|line| line.contains(target));
        let line = line.unwrap_or_else(|| panic!("{target} is not in {}", ended.stdout));
        assert!(line.contains("access refused"), "{line}");
        assert!(line.contains(advice), "{line}");
    }
    assert_eq!(place.names("out").len(), 8);
    assert_eq!(place.lock_field("out", "state"), "released");
    // The commands that look at the output go on as well.
    for (command, code) in [("verify", 3), ("audit", 0)] {
        let ended = place.worker(command, "out").environment(&endpoint).run();
        ended.expect(code);
    }
    place.run("out").expect(0);
    assert_same_bytes(&place.shards("out"), &quiet);

    // Without records, what is in a shard's place and can't be looked at is not overwritten.
    for key in place.objects("out") {
        if key.starts_with("_s") {
            place.delete("out", &key);
        }
    }
    let proxy = FaultProxy::start(place.server().address(), 9);
    let denied = Fault::Status(403, "AccessDenied");
    for target in [format!("/out/{}", path(1)), format!("/main/{}", path(2))] {
        proxy.add(Rule::once("GET", &target, denied.clone()).one_in(1));
    }
    let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
    let ended = place.worker("run", "out").environment(&endpoint).run();
    let ended = ended.expect(1);
    assert!(
        ended.stdout.contains("1 made, 10 there already, 1 failed"),
        "{}",
        ended.stdout
    );
    assert_same_bytes(&place.shards("out"), &quiet);
}

/// A store that fails while a side input passes by is no mistake of the manifest.
#[test]
fn a_side_input_that_the_store_refuses_ends_the_run_as_the_stores_failure() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let denied = Fault::Status(403, "AccessDenied");
    // Footers and listings when the job is opened, and what is read in the pass.
    for (target, skip) in [
        ("prefix=scores", 0),
        ("prefix=index", 0),
        ("prefix=captions", 0),
        ("/index/source_a", 0),
        ("/index/source_a", 1),
        ("/captions/part-1", 0),
    ] {
        let proxy = FaultProxy::start(place.server().address(), 9);
        proxy.add(
            Rule::once("GET", target, denied.clone())
                .one_in(1)
                .after(skip),
        );
        let endpoint = [("AWS_ENDPOINT_URL_S3", proxy.endpoint())];
        let ended = place.worker("run", "out").environment(&endpoint).run();
        assert!(proxy.struck() > 0, "nothing was struck at {target}");
        ended.expect(5).says(&["access refused", "check"]);
        assert!(place.names("out").is_empty());
    }
    place.run("out").expect(0);
}

#[test]
fn a_bucket_that_is_not_there_is_a_mistake_of_the_manifest() {
    let Some(place) = Place::bucket(Shape::default()) else {
        return;
    };
    let text = harness::dataset::join_job("s3://no-such-bucket", "s3://bucket/out/");
    let manifest = place.manifest("elsewhere.yaml", &text);
    let ended = crate::worker::Worker::on("run", &manifest)
        .environment(&place.environment())
        .run();
    ended
        .expect(2)
        .says(&["s3://no-such-bucket/", "no such bucket", "check"]);
}
