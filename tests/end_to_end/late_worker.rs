//! A worker that sleeps while another does its item, and then wakes up.

use std::process::Command;

use k8s_openapi::api::core::v1::Pod;
use rustix::process::{Pid, Signal, kill_process};

use crate::outputs::Witness;
use crate::place::{Place, eventually};
use crate::site::shared;
use crate::worker_program::worker;

/// The first process of a pod's container, as this machine sees it.
pub fn process_of(pod: &Pod) -> Option<Pid> {
    let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
    let id = containers.first()?.container_id.as_ref()?;
    let id = id.strip_prefix("containerd://")?;
    let processes = std::fs::read_dir("/proc").ok()?;
    let mut numbers: Vec<i32> = processes
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let number = numbers.into_iter().find(|number| {
        let groups = std::fs::read_to_string(format!("/proc/{number}/cgroup"));
        groups.is_ok_and(|groups| groups.contains(id))
    })?;
    Pid::from_raw(number)
}

/// The same command as a pod's, as a process of this machine: its replacement on another node.
fn replacement(place: &Place, pod: &Pod) -> Command {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    let index = &pod.metadata.labels.as_ref().unwrap()["batch.kubernetes.io/job-completion-index"];
    let mut command = Command::new(worker());
    let mut arguments = container.args.clone().unwrap();
    // Where a container says how it ended.
    let told = arguments
        .iter()
        .position(|word| word == "--termination-log");
    arguments.truncate(told.unwrap());
    command
        .args(arguments)
        .args(["--index", index])
        .envs(place.server.environment());
    command
}

#[tokio::test]
async fn a_worker_that_wakes_up_after_its_replacement_did_all_does_no_harm() {
    let _node = shared().await;
    let Some(place) = Place::new("late", Place::SMALL).await else {
        return;
    };
    if !place.cluster.is_own() {
        return harness::tool::skip("only processes of this machine can be stopped");
    }
    let job = place.join_job("photos", &Place::slow());
    let witness = Witness::of(place.output("photos"));
    place.create(&job).await;
    let (pod, process) = eventually("a worker in the middle of its item", async || {
        if place.shards("photos").len() < 4 {
            return None;
        }
        let pod = place.running().await.pop()?;
        let process = process_of(&pod)?;
        kill_process(process, Signal::STOP).ok()?;
        Some((pod, process))
    })
    .await;
    let name = pod.metadata.name.clone().unwrap();

    let output = replacement(&place, &pod).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}");
    kill_process(process, Signal::CONT).unwrap();

    let ending = eventually("the late worker has ended", async || {
        let pod = place.pods().get_opt(&name).await.unwrap()?;
        let containers = pod.status?.container_statuses?;
        containers.first()?.state.as_ref()?.terminated.clone()
    })
    .await;
    assert_eq!(ending.exit_code, 0, "{ending:?}");
    place.wait_until_whole(&job, witness).await;
}
