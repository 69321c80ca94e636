//! The control plane: SidecarJobs are planned, sized, run as Indexed Jobs and sealed.
//!
//! `observe -> decide -> apply -> status`. [`model`] has the plain values between these;
//! the rules are pure functions of them.
#![forbid(unsafe_code)]

pub mod build;
pub mod conditions;
pub mod decide;
pub mod items;
pub mod model;
pub mod names;
pub mod reasons;
pub mod runner;
pub mod sizing;
