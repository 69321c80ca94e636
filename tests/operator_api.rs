//! The operator as a process against a real API server and real controllers, with the rights
//! that `config/` gives it. There is no node: pods are run as processes of this machine.

#![allow(clippy::unwrap_used)] // helpers of tests may fail loudly, as tests do

#[path = "operator_api/expansion.rs"]
mod expansion;
#[path = "operator_api/operator.rs"]
mod operator;
#[path = "operator_api/place.rs"]
mod place;
#[path = "operator_api/pods.rs"]
mod pods;
#[path = "sidecar_jobs.rs"]
mod sidecar_jobs;
#[path = "operator_api/standing.rs"]
mod standing;
#[path = "worker_program.rs"]
mod worker_program;

#[path = "operator_api/crashes.rs"]
mod crashes;
#[path = "operator_api/definition.rs"]
mod definition;
#[path = "operator_api/documents.rs"]
mod documents;
#[path = "operator_api/events.rs"]
mod events;
#[path = "operator_api/identities.rs"]
mod identities;
#[path = "operator_api/idle.rs"]
mod idle;
#[path = "operator_api/leaders.rs"]
mod leaders;
#[path = "operator_api/lifecycle.rs"]
mod lifecycle;
#[path = "operator_api/rights.rs"]
mod rights;
#[path = "operator_api/scale.rs"]
mod scale;
#[path = "operator_api/scale_objects.rs"]
mod scale_objects;
#[path = "operator_api/silence.rs"]
mod silence;
#[path = "operator_api/tenants.rs"]
mod tenants;
