//! Kubernetes objects, and the frozen manifest, from a SidecarJob. Pure.

mod environment;
mod expansion;
mod job;
pub mod labels;
mod manifest;
mod pod;

pub use job::{job, template_digest};
pub use manifest::frozen_manifest;
pub use pod::CONTAINER;
