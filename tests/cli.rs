//! The command line, through the binary: what it accepts, says, writes, and how it ends.

#[path = "cli/alignment.rs"]
mod alignment;
#[path = "cli/exits.rs"]
mod exits;
#[path = "cli/fixture.rs"]
mod fixture;
#[path = "cli/foreign_lock.rs"]
mod foreign_lock;
#[path = "cli/manifests.rs"]
mod manifests;
#[path = "cli/outputs.rs"]
mod outputs;
#[path = "cli/poison.rs"]
mod poison;
#[path = "cli/proving.rs"]
mod proving;
#[path = "cli/resuming.rs"]
mod resuming;
#[path = "cli/same_bytes.rs"]
mod same_bytes;
#[path = "cli/texts.rs"]
mod texts;
#[path = "cli/values.rs"]
mod values;
#[path = "cli/worker.rs"]
mod worker;
