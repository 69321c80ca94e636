//! `shard-worker chunk` through the binary, as pods run it: the test is the operator.

#[path = "bucket.rs"]
mod bucket;
#[path = "chunk/exits.rs"]
mod exits;
#[path = "chunk/items.rs"]
mod items;
#[path = "chunk/operator.rs"]
mod operator;
#[path = "crash/place.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod place;
#[path = "chunk/races.rs"]
mod races;
#[path = "chunk/resuming.rs"]
mod resuming;
#[path = "cli/worker.rs"]
mod worker;
