//! An operator that has nothing to do does nothing.

use std::time::{Duration, Instant};

use crds::SidecarJob;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use crate::operator::{Operator, Start};
use crate::place::{LIMIT, Place};
use crate::pods::PodRunner;
use crate::sidecar_jobs::is_true;

/// Seconds of idleness: a minute, or what `make soak` asks for.
fn idle_seconds() -> u64 {
    let asked = std::env::var("SIDECARJOB_SOAK_SECONDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// Writes of the operator to anything but its Lease, so far.
fn writes(place: &Place) -> Vec<String> {
    let requests = place.cluster.requests().unwrap();
    let ours = requests.iter().filter(|request| {
        request.user.ends_with(":sidecarjob-operator")
            && request.is_write()
            && request.resource != "leases"
    });
    ours.map(|request| format!("{} {} {}", request.verb, request.resource, request.name))
        .collect()
}

async fn versions(place: &Place) -> Vec<(String, String)> {
    let objects = place.objects().list(&ListParams::default()).await.unwrap();
    let version = |object: &SidecarJob| (object.name_any(), object.resource_version().unwrap());
    objects.iter().map(version).collect()
}

/// CPU that a process has used, in clock ticks (see proc(5)).
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test]
async fn fifty_idle_objects_cause_no_writes() {
    let Some(place) = Place::new("idle").await else {
        return;
    };
    let root = place.dataset("d", 2);
    let poisoned = place.dataset("poisoned", 2);
    let main = poisoned.join("main");
    for (path, _) in crate::place::shards(&main) {
        std::fs::write(main.join(path), b"no parquet at all").unwrap();
    }
    let operator = Operator::begin(&place).await;
    let pods = PodRunner::begin(&place);
    let count = 10;
    for number in 0..count {
        let no_canary = json!({"canary": {"shards": 0}});
        place
            .create(&place.job(&format!("complete-{number}"), &root, &no_canary))
            .await;
        place
            .create(&place.job(&format!("failed-{number}"), &poisoned, &no_canary))
            .await;
        let suspended = json!({"suspend": true});
        place
            .create(&place.job(&format!("suspended-{number}"), &root, &suspended))
            .await;
    }
    for number in 0..count {
        let object = place.wait_for_end(&format!("complete-{number}")).await;
        assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
        let object = place.wait_for_end(&format!("failed-{number}")).await;
        assert!(is_true(&object, "Failed"), "{:#}", json!(object.status));
        place
            .wait(&format!("suspended-{number}"), "suspended", |object| {
                is_true(object, "Suspended")
            })
            .await;
    }
    // From now on no pod runs: ten jobs wait for nodes, ten for the first of these.
    drop(pods);
    for number in 0..count {
        place
            .create(&place.job(&format!("waiting-{number}"), &root, &json!({})))
            .await;
    }
    for number in 0..count {
        place
            .wait(&format!("waiting-{number}"), "without a node", |object| {
                is_true(object, "WorkersUnschedulable")
            })
            .await;
        let output = format!("{}/", place.output(&format!("waiting-{number}")).display());
        let same = json!({"output": {"prefix": output}});
        place
            .create(&place.job(&format!("conflicting-{number}"), &root, &same))
            .await;
    }
    for number in 0..count {
        place
            .wait(&format!("conflicting-{number}"), "locked out", |object| {
                is_true(object, "OutputLocked")
            })
            .await;
    }
    // From now on with the pace that it is shipped with; a restart is no reason to write either.
    operator.terminate();
    let operator = Start::unhurried(&place).begin().await;
    operator.wait_for("leader").await;
    // What was under way comes to its end: two looks with the same versions.
    let mut former = versions(&place).await;
    let deadline = Instant::now() + LIMIT;
    loop {
        tokio::time::sleep(Duration::from_secs(15)).await;
        let now = versions(&place).await;
        if now == former {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "still written: {:#?}",
            writes(&place)
        );
        former = now;
    }
    assert_eq!(former.len(), 50);

    let (before, used) = (writes(&place).len(), ticks(operator.process_id()));
    let seconds = idle_seconds();
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let written = writes(&place);
    assert_eq!(&written[before..], &[] as &[String]);
    assert_eq!(versions(&place).await, former);
    let cpu = ticks(operator.process_id()) - used;
    // A tick is a hundredth of a second on every Linux that runs this.
    let share = cpu as f64 / 100.0 / seconds as f64;
    println!(
        "{seconds} s with 50 idle objects: {:.2} % of a core",
        100.0 * share
    );

    // Somebody's label is no reason to write either.
    place
        .patch(
            "complete-0",
            &json!({"metadata": {"labels": {"team": "a"}}}),
        )
        .await;
    place
        .patch("waiting-0", &json!({"metadata": {"labels": {"team": "a"}}}))
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let written = writes(&place);
    assert_eq!(&written[before..], &[] as &[String]);
}
