//! Which of several replicas is at work: whoever holds the Lease.
//!
//! The holder renews it well before it expires, and ends its process if it can't: whatever was
//! under way ends with it. What a process that was paused for long may still send is refused by
//! the versions that every write carries.

mod election;
mod lease;

pub use election::{Election, ElectionError, Leadership};
pub use lease::{LeaseRecord, Seen, Standing, evaluate_lease};
