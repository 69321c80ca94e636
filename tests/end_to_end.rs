//! SidecarJobs on a real node: the operator as `config/` installs it, its workers in pods, and
//! shards on a real S3 server. One cluster for all tests, and a namespace and a server for each.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

#[path = "end_to_end/outputs.rs"]
mod outputs;
#[path = "end_to_end/place.rs"]
mod place;
#[path = "sidecar_jobs.rs"]
mod sidecar_jobs;
#[path = "end_to_end/site.rs"]
mod site;
#[path = "worker_program.rs"]
mod worker_program;

#[path = "end_to_end/canary.rs"]
mod canary;
#[path = "end_to_end/changes.rs"]
mod changes;
#[path = "end_to_end/deletion.rs"]
mod deletion;
#[path = "end_to_end/disruption.rs"]
mod disruption;
#[path = "end_to_end/forbidden.rs"]
mod forbidden;
#[path = "end_to_end/kills.rs"]
mod kills;
#[path = "end_to_end/kueue.rs"]
mod kueue;
#[path = "end_to_end/late_worker.rs"]
mod late_worker;
#[path = "end_to_end/memory.rs"]
mod memory;
#[path = "end_to_end/mistakes.rs"]
mod mistakes;
#[path = "end_to_end/poison.rs"]
mod poison;
#[path = "end_to_end/queues.rs"]
mod queues;
#[path = "end_to_end/quota.rs"]
mod quota;
#[path = "end_to_end/refusals.rs"]
mod refusals;
#[path = "end_to_end/room.rs"]
mod room;
#[path = "end_to_end/silence.rs"]
mod silence;
#[path = "end_to_end/sizing.rs"]
mod sizing;
#[path = "end_to_end/storage_down.rs"]
mod storage_down;
#[path = "end_to_end/suspension.rs"]
mod suspension;
#[path = "end_to_end/tenants.rs"]
mod tenants;
#[path = "end_to_end/two_writers.rs"]
mod two_writers;
#[path = "end_to_end/upgrade.rs"]
mod upgrade;
#[path = "end_to_end/whole_runs.rs"]
mod whole_runs;
