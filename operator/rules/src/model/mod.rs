//! The plain values between the parts of the operator: what was observed, what a run is known to
//! have done, and what was decided. No I/O and no rules.

mod decision;
mod facts;
pub mod frozen;
mod observed;

pub use decision::{Action, Decision, EventKind, EventNote, GivenUp, JobSpec};
pub use facts::{
    AttemptFacts, BatchFacts, FailureNote, GivenUpItems, Item, LockFacts, PlanFacts, PlanTotals,
    ProgressFacts, RunFacts, SealFacts, SealTotals, Settled,
};
pub use observed::{
    Asked, JobEnd, Observed, ObservedJob, ObservedPods, PodRef, Refusal, Settings, Trouble,
};
