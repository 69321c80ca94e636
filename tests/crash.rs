//! What survives: killed and stopped processes, writers that meet, networks that fail.

#[path = "bucket.rs"]
mod bucket;
#[path = "crash/faults.rs"]
mod faults;
#[path = "crash/kills.rs"]
mod kills;
#[path = "crash/locks.rs"]
mod locks;
#[path = "crash/permissions.rs"]
mod permissions;
#[path = "crash/place.rs"]
mod place;
#[path = "crash/reader.rs"]
mod reader;
#[path = "crash/requests.rs"]
mod requests;
#[path = "crash/stops.rs"]
mod stops;
#[path = "crash/takeover.rs"]
mod takeover;
#[path = "cli/worker.rs"]
mod worker;
