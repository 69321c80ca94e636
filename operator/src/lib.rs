//! The control plane: SidecarJobs are planned, sized, run as Indexed Jobs and sealed.
//!
//! `observe -> decide -> apply -> status`. [`rules::model`] has the plain values between these;
//! [`rules::decide`] is pure functions of them.
#![forbid(unsafe_code)]

pub mod account;
pub mod api_words;
pub mod apply;
pub mod arguments;
pub mod backoff;
pub mod controller;
pub mod definition;
pub mod events;
pub mod identity;
pub mod inquiry;
pub mod intake;
pub mod leader;
pub mod memory;
pub mod metrics;
pub mod namespaces;
pub mod observe;
pub mod process;
pub mod queue;
pub mod runner;
pub mod server;
pub mod status_writer;
pub mod telemetry;
pub mod watch;
