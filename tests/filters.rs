//! Filters of images: against a plain reference, against other programs, over whatever files
//! there are, and through the binary.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "bucket.rs"]
mod bucket;
#[path = "filters/hostile.rs"]
mod hostile;
#[path = "filters/kernels.rs"]
mod kernels;
#[path = "filters/layouts.rs"]
mod layouts;
#[path = "filters/limits.rs"]
mod limits;
#[path = "filters/oracle.rs"]
mod oracle;
#[path = "filters/pictures.rs"]
mod pictures;
#[path = "filters/reference.rs"]
mod reference;
#[path = "filters/same_bytes.rs"]
mod same_bytes;
#[path = "filters/seeds.rs"]
mod seeds;
#[path = "interop/surroundings.rs"]
mod surroundings;
#[path = "interop/upload.rs"]
mod upload;
#[path = "interop/worker.rs"]
mod worker;
