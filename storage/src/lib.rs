//! Object stores, and what a run keeps beside its output.
//!
//! [`Store`] is the one trait; [`Stores`] opens a store from a URI: a folder on disk or a
//! prefix in a bucket. Both keep the same promises, which [`conformance`] checks:
//!
//! * a write is atomic and conditional, so two writers can race and one of them wins;
//! * a write whose answer was lost is recognised by its content, not reported as a conflict;
//! * a read of a version is that version or an error, never a mix of two;
//! * a listing is in byte order and is held a few pages at a time, whatever its length.

pub mod address;
pub mod conformance;
mod content;
mod counting;
mod credentials;
mod error;
mod key;
mod listing;
mod local;
mod open;
pub mod ranges;
mod s3;
pub mod state;
mod store;
mod uri;
mod watched;

pub use credentials::{CredentialSource, Credentials};
pub use error::{Cause, Error, Result, Scope};
pub use open::{AccessKey, ChecksumMode, Peers, StorageConfig, Stores};
pub use s3::{HttpClients, WebIdentity, assume_role_with_web_identity};
pub use store::{
    ETag, Leftover, ListPage, ObjectMeta, Payload, Permit, Published, PutCondition, RequestCounts,
    Store, Withheld,
};
pub use uri::Location;
pub use watched::{Failure, Watched};
