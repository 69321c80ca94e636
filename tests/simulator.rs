//! A simulated world around the operator's decisions: an API server, a Job controller, a queue,
//! workers, a bucket with its lock, and the operator's background work, all as plain state
//! machines in memory, driven by the real `decide`.
//!
//! From a seed comes a story: what the dataset is like, who gets in the way, and when. The operator
//! dies between any two writes, sees Jobs late and in any order, loses its lock, is suspended;
//! workers are killed, Jobs are deleted, shards vanish. Then the world is left in peace. Whatever
//! happened before:
//!
//! * every run ends, as it should;
//! * at no time two workers that may publish have the same shard;
//! * at no time two Jobs of one batch can work in the same epoch;
//! * what a status once counted of a run never becomes less;
//! * in the end every shard is there, once, and status and output agree;
//! * then nothing is written any more, not even after a restart with all Jobs gone.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

#[path = "simulator/bucket.rs"]
mod bucket;
#[path = "simulator/checks.rs"]
mod checks;
#[path = "simulator/cluster.rs"]
mod cluster;
#[path = "simulator/job_controller.rs"]
mod job_controller;
#[path = "simulator/process.rs"]
mod process;
#[path = "simulator/random.rs"]
mod random;
#[path = "simulator/runner.rs"]
mod runner;
#[path = "simulator/spoilt.rs"]
mod spoilt;
#[path = "simulator/story.rs"]
mod story;
#[path = "simulator/trouble.rs"]
mod trouble;
#[path = "simulator/worker.rs"]
mod worker;
#[path = "simulator/world.rs"]
mod world;

use std::ops::Range;

use story::{Story, Troubles};
use world::World;

/// Runs the stories of some seeds, with these troubles. `SIDECARJOB_SIMULATOR_STORIES` multiplies
/// them, for a long search.
fn tell(seeds: Range<u64>, troubles: Troubles) {
    let times = std::env::var("SIDECARJOB_SIMULATOR_STORIES");
    let times: u64 = times.map_or(1, |times| times.parse().expect("a number of times"));
    let more = (seeds.end - seeds.start) * (times - 1);
    for seed in seeds.chain(1_000_000..1_000_000 + more) {
        let mut world = World::new(Story::new(seed, troubles));
        world.run();
    }
}

#[test]
fn a_quiet_world_comes_to_its_end() {
    tell(0..40, Troubles::default());
}

#[test]
fn the_operator_may_die_at_any_time() {
    let troubles = Troubles {
        crashes: true,
        ..Troubles::default()
    };
    tell(1_000..1_060, troubles);
}

#[test]
fn workers_may_die_and_jobs_may_go() {
    let troubles = Troubles {
        kills: true,
        deletions: true,
        ..Troubles::default()
    };
    tell(2_000..2_060, troubles);
}

#[test]
fn the_lock_may_be_lost() {
    let troubles = Troubles {
        thefts: true,
        ..Troubles::default()
    };
    tell(3_000..3_060, troubles);
}

#[test]
fn people_change_their_minds() {
    let troubles = Troubles {
        people: true,
        ..Troubles::default()
    };
    tell(4_000..4_060, troubles);
}

#[test]
fn shards_may_vanish_from_the_output() {
    let troubles = Troubles {
        vanishing: true,
        crashes: true,
        ..Troubles::default()
    };
    tell(5_000..5_040, troubles);
}

#[test]
fn everything_at_once() {
    tell(6_000..6_120, Troubles::all());
}
