//! Many objects in one cluster: the operator stays within the memory that it is shipped with, and
//! asks the API server no more than its budget says. `make scale` does it at full size.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::operator::Start;
use crate::place::{Place, repository};
use crate::pods::PodRunner;
use crate::scale::{scaffold, size};
use crate::sidecar_jobs::{is_true, wait};

/// Writes a second that the operator's budget allows: numbers of objects, and a few beside.
const WRITES_PER_SECOND: f64 = 25.0;

/// The operator's memory limit as `config/` has it, in bytes.
fn shipped_limit() -> u64 {
    let path = repository().join("config/operator/deployment.yaml");
    let text = std::fs::read_to_string(path).unwrap();
    let deployment: Value = serde_yaml::from_str(&text).unwrap();
    let limits = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
    let memory = limits["memory"].as_str().unwrap();
    memory.strip_suffix("Mi").unwrap().parse::<u64>().unwrap() << 20
}

/// Most memory that a process has had, in bytes.
fn peak(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kilobytes = line.unwrap().split_ascii_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

/// The operator's requests to the API server so far: those that write, and all.
fn requests(place: &Place) -> (usize, usize) {
    let requests = place.cluster.requests().unwrap();
    let ours = requests
        .iter()
        .filter(|request| request.user.ends_with(":sidecarjob-operator"));
    ours.fold((0, 0), |(writes, all), request| {
        (writes + usize::from(request.is_write()), all + 1)
    })
}

/// A tenth as many ended objects as there are indexes in the other tests of scale, as many live
/// ones whose pods find no node, and a twentieth of that which plan many shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_stay_within_the_operators_limits() {
    let Some(place) = Place::new("objects").await else {
        return;
    };
    let (count, planning) = (size() / 10, (size() / 200).max(2));
    let limit = Duration::from_secs(180 + 2 * count as u64);
    let root = place.dataset("d", 1);
    let large = crate::scale::dataset(&place, size(), |_| false);
    let spec = scaffold(&json!({"throughput": {"maxWorkers": 1}}));

    let first = Start::new(&place).begin().await;
    let pods = PodRunner::limited(&place, 12);
    for number in 0..count {
        let object = place.job(&format!("ended-{number}"), &root, &spec);
        place.create(&object).await;
    }
    for number in 0..count {
        let name = format!("ended-{number}");
        let object = place.wait_for_end_within(limit, &name).await;
        assert!(is_true(&object, "Complete"), "{:#}", json!(object.status));
    }
    let while_they_ran = peak(first.process_id());
    drop(pods);

    // The one that is measured finds the ended ones there, and has the pace that it is shipped with.
    first.terminate();
    let operator = Start::unhurried(&place).begin().await;
    operator.wait_for("leader").await;
    for number in 0..planning {
        let object = place.job(&format!("planning-{number}"), &large, &spec);
        place.create(&object).await;
    }
    for number in 0..count {
        let object = place.job(&format!("live-{number}"), &root, &spec);
        place.create(&object).await;
    }
    let began = Instant::now();
    let names = (0..planning)
        .map(|number| format!("planning-{number}"))
        .chain((0..count).map(|number| format!("live-{number}")));
    for name in names {
        wait(&place.objects(), limit, &name, "without a node", |object| {
            is_true(object, "WorkersUnschedulable")
        })
        .await;
    }
    let until_all_wait = began.elapsed();
    let (before, seconds) = (requests(&place), 60);
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = requests(&place);
    let rate = |before: usize, after: usize| (after - before) as f64 / seconds as f64;
    let (writes, all) = (rate(before.0, after.0), rate(before.1, after.1));
    let memory = peak(operator.process_id());
    println!(
        "{count} ended, {planning} planned with {} shards each, {count} live: peak {} MiB (before \
         a restart, with the former alone: {} MiB); all wait after {:.0} s; then {writes:.1} \
         writes and {all:.1} requests a second",
        size(),
        memory >> 20,
        while_they_ran >> 20,
        until_all_wait.as_secs_f64(),
    );
    assert!(memory.max(while_they_ran) < shipped_limit(), "{memory}");
    assert!(writes < WRITES_PER_SECOND, "{writes} writes a second");
}
