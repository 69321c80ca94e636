//! Reports from the field, each replayed through the binary; a test has the name of its report.

#[path = "regression/bounds.rs"]
mod bounds;
#[path = "regression/paths.rs"]
mod paths;
#[path = "regression/pictures.rs"]
mod pictures;
#[path = "regression/sources.rs"]
mod sources;
#[path = "regression/types.rs"]
mod types;
