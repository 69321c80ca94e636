//! The operator's rules: what was observed in, what is to be done and what is to be said out.
//!
//! Pure functions of plain values. This crate has neither a clock nor a runtime nor a client, so
//! that nothing in it can wait, ask or write.
//!
//! * [`model`]: the plain values between observing, deciding and applying.
//! * [`decide`]: the rules of one SidecarJob; a rule a file.
//! * [`sizing`], [`items`]: how many workers, and which shards each of them gets.
//! * [`build`]: the Kubernetes objects of a decision.
//! * [`conditions`], [`reasons`]: what is said, and in which words.
//! * [`names`]: names of objects, within their limits.
#![forbid(unsafe_code)]

pub mod build;
pub mod conditions;
pub mod decide;
pub mod items;
pub mod model;
pub mod names;
pub mod reasons;
pub mod sizing;
