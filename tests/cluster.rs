//! The harness's own clusters: what the end-to-end tests build on.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

#[path = "cluster/jobs.rs"]
mod jobs;

#[path = "cluster/control_plane.rs"]
mod control_plane;
#[path = "cluster/existing.rs"]
mod existing;
#[path = "cluster/node.rs"]
mod node;
#[path = "cluster/people.rs"]
mod people;
#[path = "cluster/remains.rs"]
mod remains;
