//! The data plane: adds columns to a dataset of Parquet shards as row-aligned sidecar shards.
//!
//! A run goes shard by shard. [`shard::fetch`] opens footers and plans the sidecar's columns
//! ([`column_plan`], built up by [`ops`]); [`lookup`]s stream their side inputs past the keys
//! of as many shards as the memory budget holds; [`filters`] measure the images; [`encode`] encodes
//! what is new, and [`sidecar`] copies the columns that pass unchanged. [`run`] schedules that, publishes, and reports;
//! [`verify`] proves the result from the files alone. [`chunk`] is what a pod does: one work item
//! of a run that somebody else has planned.

pub mod arrow_types;
pub mod audit;
pub mod chunk;
pub mod cli;
pub mod column_plan;
pub mod decode;
pub mod encode;
pub mod encrypted;
pub mod error;
pub mod evaluate;
pub mod filters;
pub mod job;
pub mod keys;
pub mod leaf;
pub mod levels;
pub mod lookup;
pub mod one_column;
pub mod ops;
pub mod pages;
pub mod panics;
pub mod parquet_file;
pub mod provenance;
pub mod recode;
pub mod records;
pub mod resources;
pub mod run;
pub mod shard;
pub mod sidecar;
pub mod sources;
pub mod spelling;
pub mod splice;
pub mod thrift;
pub mod unfit;
pub mod verify;
pub mod workers;
