//! What can go wrong while a decision is carried out, and in which words people hear of it.

use kube::core::Status;
use rules::model::Trouble;
use rules::reasons;

use crate::api_words::api_words;
use crate::events::cut;
use crate::identity::IdentityError;
use crate::runner::RunnerError;

/// A message that goes into a status is cut after so many bytes.
const LONGEST_MESSAGE: usize = 1000;

/// Why a decision was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Somebody else was quicker, or what was seen is old: look again.
    #[error("what was seen of {what} is old")]
    Outdated {
        /// What.
        what: String,
    },
    /// The API server refused, or could not be asked.
    #[error("can't {verb} {what}: {}", api_words(source))]
    Api {
        /// What was tried.
        verb: &'static str,
        /// With what.
        what: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// A Job of the name that was to be created belongs to somebody else.
    #[error("there is a Job {name} that another object controls; delete or rename it")]
    ForeignJob {
        /// Its name.
        name: String,
    },
    /// The prefixes can't be reached.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The background work refused.
    #[error(transparent)]
    Runner(RunnerError),
    /// A status that has no form in JSON.
    #[error("the status can't be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// This process is no longer the leader; it ends.
    #[error("this replica is not the leader any more")]
    NotLeader,
}

impl From<RunnerError> for ApplyError {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::NoSuchRun { .. }
            | RunnerError::NotHeld { .. }
            | RunnerError::OtherItems { .. } => Self::Outdated {
                what: format!("the run ({error})"),
            },
            RunnerError::State(_) => Self::Runner(error),
        }
    }
}

impl ApplyError {
    /// Whether it is enough to look again soon.
    pub fn is_outdated(&self) -> bool {
        matches!(self, Self::Outdated { .. } | Self::NotLeader)
    }

    /// What to tell people. The same words for the same trouble.
    pub fn trouble(&self) -> Trouble {
        let reason = match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => reason_of(status),
                _ => "ApiUnavailable",
            },
            Self::ForeignJob { .. } => reasons::FOREIGN_JOB,
            Self::Identity(IdentityError::Refused(refusal)) => refusal.reason,
            Self::Identity(IdentityError::Api(_)) => "ApiUnavailable",
            Self::Identity(IdentityError::Credentials(_)) => "NoCredentials",
            Self::Runner(_) => "StoreTrouble",
            Self::Json(_) | Self::Outdated { .. } | Self::NotLeader => "Internal",
        };
        Trouble {
            reason,
            message: cut(&self.to_string(), LONGEST_MESSAGE),
        }
    }
}

fn reason_of(status: &Status) -> &'static str {
    let is_terminating = status.details.as_ref().is_some_and(|details| {
        let mut causes = details.causes.iter();
        causes.any(|cause| cause.reason == "NamespaceTerminating")
    });
    match status.code {
        403 if is_terminating => "NamespaceTerminating",
        403 if status.message.contains("exceeded quota") => "QuotaExceeded",
        403 => reasons::FORBIDDEN,
        400 | 422 => reasons::JOB_REFUSED,
        _ => "ApiError",
    }
}
