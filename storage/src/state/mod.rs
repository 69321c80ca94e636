//! What a run keeps beside its output, and the decisions that rest on it.
//!
//! Every file is a documented format (`docs/state-files.md`) that other tools may read: JSON,
//! or JSON lines compressed with zstd whose first line is a header. All of them carry a
//! `version`. A reader ignores fields that it doesn't know and refuses a version that it
//! doesn't know. It takes in no more of a file than [`limits`] says.
//!
//! | module | file |
//! |---|---|
//! | [`lock`], [`writer`], [`fence`], [`abandon`] | `_sidecar/writer.json` |
//! | [`frozen_job`] | `_sidecar/runs/<run>/job.json` |
//! | [`plan`] | `_sidecar/runs/<run>/plan/…` |
//! | [`batch`] | `_sidecar/runs/<run>/batches/<batch>-<attempt>.json` |
//! | [`report`]; [`shard_lines`], [`item_lines`] | `_sidecar/runs/<run>/chunks/<n>.json`, `….jsonl.zst` |
//! | [`manifest`], [`merge`] | `_sidecar/manifest.json` |
//! | [`sentinel`] | `_SUCCESS` |
//! | [`retention`] | all files of runs that are over for long |
//! | [`side_inputs`] | none: what `plan.json`, lines and footers say of them |
//! | [`diff`], [`join`], [`replaced`] | none: what is left to do, from the listings and the manifest |
//!
//! Decisions ([`lock`], [`diff`]) are pure functions of plain values; the time is handed in.

pub mod abandon;
pub mod ancestors;
pub mod batch;
mod claim;
pub mod clock;
pub mod diff;
mod document;
mod error;
pub mod fence;
pub mod frozen_job;
pub mod identity;
pub mod item_lines;
pub mod join;
pub mod layout;
pub mod leftovers;
pub mod limits;
mod lines;
pub mod lock;
pub mod manifest;
pub mod merge;
pub mod plan;
pub mod replaced;
pub mod report;
mod report_writer;
pub mod retention;
pub mod sentinel;
pub mod shard_lines;
pub mod side_inputs;
pub mod writer;

pub use crds::RunId;
pub use document::FORMAT_VERSION;
pub use error::{Result, StateError};
