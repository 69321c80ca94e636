//! Real servers, faults and data for the tests.
//!
//! Nothing here is skipped silently: what needs a program that is not installed says
//! `SKIPPED` and, in CI (`SIDECARJOB_STRICT=1`), fails.

#[cfg(feature = "cluster")]
pub mod cluster;
pub mod dataset;
pub mod fault_proxy;
#[cfg(feature = "cluster")]
pub mod image;
pub mod run_files;
pub mod s3_server;
pub mod scripted_s3;
pub mod tool;
