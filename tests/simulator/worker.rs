//! A worker: what it does in one step, and how it ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::bucket::{Prefix, Report};
use crate::cluster::{Exit, Pod, SimJob};
use crate::random::Random;

/// A worker does one shard, or begins, or ends.
pub fn work_a_step(
    job: &mut SimJob,
    position: usize,
    prefix: &mut Prefix,
    poison: &BTreeSet<u64>,
    deadly: &mut BTreeMap<u64, u32>,
    random: &mut Random,
) -> Option<Exit> {
    let (run, batch, attempt) = (&job.seen.run, job.seen.batch, job.seen.attempt);
    let pod = &mut job.pods[position];
    let is_mine = prefix.lock.holder.as_deref() == Some(job.owner.as_str())
        && prefix.lock.run == *run
        && prefix.lock.epoch == job.seen.epoch;
    if !is_mine {
        return Some(Exit::LockLost);
    }
    let files = prefix.runs.get_mut(run).expect("the run is there");
    let item = files.batches[&(batch, attempt)].items[pod.index];
    let report = |pod: &Pod, is_whole: bool| Report {
        item,
        batch,
        attempt,
        done: pod.done.clone(),
        failed: pod.failed.clone(),
        is_whole,
    };
    if !pod.is_running {
        pod.is_running = true;
        pod.next = item.0;
        if random.in_thousand(800) {
            files.reports.insert(item.0, report(pod, false));
        }
        return None;
    }
    if pod.next == item.1 {
        files.reports.insert(item.0, report(pod, true));
        return Some(if pod.failed.is_empty() {
            Exit::Done
        } else {
            Exit::SomeFailed
        });
    }
    let chunk = pod.next;
    let shard = files.plan.as_ref().expect("planned")[chunk as usize];
    if let Some(times) = deadly.get_mut(&shard)
        && *times > 0
    {
        *times = times.saturating_sub(u32::from(*times != u32::MAX));
        return Some(Exit::Killed);
    }
    pod.next += 1;
    if poison.contains(&shard) {
        pod.failed.insert(chunk);
    } else {
        let digest = files.digest.clone();
        // Somebody else may have had the prefix since the plan was made.
        let found = prefix.shards.entry(shard).or_insert(digest.clone());
        if *found == digest {
            pod.done.insert(chunk);
        } else {
            pod.failed.insert(chunk);
        }
    }
    if random.in_thousand(300) {
        files.reports.insert(item.0, report(pod, false));
    }
    None
}
