//! Reports from the field, each replayed through the binary; a test has the name of its report.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[path = "regression/bounds.rs"]
mod bounds;
#[path = "regression/faults.rs"]
mod faults;
#[allow(dead_code, reason = "shared with the tests of the command line")]
#[path = "cli/fixture.rs"]
mod fixture;
#[path = "cli/foreign_lock.rs"]
mod foreign_lock;
#[allow(dead_code, reason = "shared with the tests of other programs' files")]
#[path = "interop/worker.rs"]
mod interop_worker;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "shared with the tests of the filters"
)]
#[path = "filters/pictures.rs"]
mod made;
#[path = "regression/memory.rs"]
mod memory;
#[path = "regression/paths.rs"]
mod paths;
#[path = "regression/pictures.rs"]
mod pictures;
#[path = "regression/sources.rs"]
mod sources;
#[allow(dead_code, reason = "shared with the tests of other programs' files")]
#[path = "interop/surroundings.rs"]
mod surroundings;
#[path = "regression/texts.rs"]
mod texts;
#[path = "regression/types.rs"]
mod types;
#[path = "cli/worker.rs"]
mod worker;
