//! SidecarJobs on a real node: the operator as `config/` installs it, its workers in pods, and
//! shards on a real S3 server. One cluster for all tests, and a namespace and a server for each.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

#[path = "end_to_end/outputs.rs"]
mod outputs;
#[path = "end_to_end/place.rs"]
mod place;
#[path = "end_to_end/site.rs"]
mod site;
#[path = "end_to_end/standing.rs"]
mod standing;

#[path = "end_to_end/whole_runs.rs"]
mod whole_runs;
