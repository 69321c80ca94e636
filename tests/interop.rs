//! Sidecars between programs: inputs by pyarrow, Polars, DuckDB and fastparquet, malformed
//! inputs, and outputs read back by all of them. Everything goes through the binary.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "interop/baseline.rs"]
mod baseline;
#[path = "bucket.rs"]
mod bucket;
#[path = "interop/corpus.rs"]
mod corpus;
#[path = "interop/half_written.rs"]
mod half_written;
#[path = "interop/names.rs"]
mod names;
#[path = "interop/nulls.rs"]
mod nulls;
#[path = "interop/shapes.rs"]
mod shapes;
#[path = "interop/surroundings.rs"]
mod surroundings;
#[path = "interop/times.rs"]
mod times;
#[path = "interop/upload.rs"]
mod upload;
#[path = "interop/worker.rs"]
mod worker;
#[path = "interop/writers.rs"]
mod writers;
