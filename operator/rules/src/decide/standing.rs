//! How a job stands, and its conditions by kstatus.

use crate::conditions::{Conditions, Status};
use crate::reasons::{self, types};

/// The phase, for people.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Phase {
    Pending,
    Planning,
    Canary,
    Running,
    Verifying,
    Succeeded,
    Failed,
    Suspended,
    Stalled,
}

impl Phase {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Planning => "Planning",
            Self::Canary => "Canary",
            Self::Running => "Running",
            Self::Verifying => "Verifying",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Suspended => "Suspended",
            Self::Stalled => "Stalled",
        }
    }
}

/// What kstatus is to make of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Course {
    /// It goes on by itself: `Reconciling`.
    Moving,
    /// It waits for a person who asked for that: neither `Reconciling` nor `Stalled`.
    Resting,
    /// It waits for a person who doesn't know yet: `Stalled`, until what is in its way goes.
    Stuck,
    /// It ended well: `Complete`.
    Complete,
    /// It was given up: `Failed` and `Stalled`.
    Failed,
}

/// How a job stands.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    pub(super) phase: Phase,
    pub(super) course: Course,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Standing {
    pub(super) fn new(phase: Phase, course: Course, reason: &str, message: String) -> Self {
        Self {
            phase,
            course,
            reason: reason.to_owned(),
            message,
        }
    }

    /// Going on as it should.
    pub(super) fn moving(phase: Phase, message: impl Into<String>) -> Self {
        Self::new(phase, Course::Moving, reasons::PROGRESSING, message.into())
    }
}

/// Ready, Reconciling, Stalled, Complete and Failed of a standing.
pub(super) fn apply(standing: &Standing, conditions: &mut Conditions) {
    let (reason, message) = (standing.reason.as_str(), standing.message.as_str());
    let ready = match standing.course {
        Course::Moving => Status::Unknown,
        Course::Resting | Course::Stuck | Course::Failed => Status::False,
        Course::Complete => Status::True,
    };
    conditions.set(types::READY, ready, reason, message);
    let mut only_while = |kind: &str, holds: bool| {
        if holds {
            conditions.set(kind, Status::True, reason, message);
        } else {
            conditions.remove(kind);
        }
    };
    let course = standing.course;
    only_while(types::RECONCILING, course == Course::Moving);
    only_while(
        types::STALLED,
        matches!(course, Course::Stuck | Course::Failed),
    );
    only_while(types::COMPLETE, course == Course::Complete);
    only_while(types::FAILED, course == Course::Failed);
}

/// A change of the spec that isn't followed: what the spec asks for is not what there is, or will
/// be.
pub(super) fn apply_objection(
    reason: &str,
    message: &str,
    is_moving: bool,
    conditions: &mut Conditions,
) {
    conditions.set(types::STALLED, Status::True, reason, message);
    if !is_moving {
        conditions.set(types::READY, Status::False, reason, message);
    }
}
