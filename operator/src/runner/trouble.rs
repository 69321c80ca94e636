//! What an error of a store means to work that never gives up, and how long to wait.

use std::time::Duration;

use storage::Error;
use storage::state::StateError;
use storage::state::fence::FenceError;
use storage::state::writer::AcquireError;

use rules::reasons;

/// What to do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Ask again soon.
    Again,
    /// Access was refused: a person has to act; ask again now and then.
    Access,
    /// Something is wrong that time doesn't mend.
    Never,
}

/// Why a piece of work did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// A store, or a state file.
    #[error(transparent)]
    State(#[from] StateError),
    /// The lock can't be told to be held; its loss ends the work by itself.
    #[error(transparent)]
    Fence(#[from] FenceError),
    /// The lock isn't there.
    #[error("the writer lock is not held")]
    NotHeld,
    /// For good, with the reason word of the facts.
    #[error("{message}")]
    Refused {
        /// Reason word.
        reason: &'static str,
        /// In words.
        message: String,
    },
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::State(error.into())
    }
}

impl Failed {
    pub(super) fn remedy(&self) -> Remedy {
        match self {
            Self::State(error) => of_state(error),
            Self::Fence(_) | Self::NotHeld => Remedy::Again,
            Self::Refused { .. } => Remedy::Never,
        }
    }
}

/// The reason word of an error that a person has to act on ([`Remedy::Access`]).
pub(super) fn access(error: &StateError) -> &'static str {
    match error {
        StateError::Storage(Error::NoBucket { .. }) => reasons::BUCKET_NOT_FOUND,
        StateError::Storage(Error::Invalid { .. }) => reasons::STORE_UNUSABLE,
        _ => reasons::ACCESS_DENIED,
    }
}

/// What to do about an error that acquiring a lock has met, other than a holder.
pub(super) fn of_acquire(error: &AcquireError) -> Remedy {
    match error {
        AcquireError::Storage(error) => of_state(error),
        _ => Remedy::Again,
    }
}

fn of_state(error: &StateError) -> Remedy {
    match error {
        StateError::Storage(error) => of_storage(error),
        StateError::Damaged { .. } => Remedy::Again,
        _ => Remedy::Never,
    }
}

fn of_storage(error: &Error) -> Remedy {
    match error {
        Error::Refused { .. } => Remedy::Access,
        // Somebody makes the bucket, or corrects the object.
        Error::NoBucket { .. } | Error::Invalid { .. } => Remedy::Access,
        Error::TooLarge { .. } => Remedy::Never,
        _ => Remedy::Again,
    }
}

/// How long to wait after so many failures in a row, given a random number from 0 to 1: twice
/// as long each time, and never less than half of that.
pub(super) fn pause(first: Duration, longest: Duration, failures: u32, random: f64) -> Duration {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled
        .min(longest)
        .mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use storage::Scope;

    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let seconds = Duration::from_secs;
        let longest = |failures| pause(seconds(1), seconds(30), failures, 1.0);
        let pauses: Vec<_> = [0, 1, 2, 3, 6, 100].map(longest).into();
        assert_eq!(pauses, [1, 1, 2, 4, 30, 30].map(seconds));
        assert_eq!(pause(seconds(1), seconds(30), 2, 0.0), seconds(1));
    }

    #[test]
    fn only_access_and_trouble_of_the_moment_are_asked_for_again() {
        let uri = || "s3://bucket/out/".to_owned();
        let refused = Error::Refused {
            uri: uri(),
            scope: Scope::Store,
            reason: "AccessDenied".to_owned(),
            source: None,
        };
        let away = Error::Unavailable {
            uri: uri(),
            reason: "connection refused".to_owned(),
            attempts: 9,
            seconds: 20.0,
            source: None,
        };
        let newer = StateError::Version {
            file: "manifest.json".to_owned(),
            found: 2,
            known: 1,
        };
        assert_eq!(Failed::from(refused).remedy(), Remedy::Access);
        assert_eq!(Failed::from(away).remedy(), Remedy::Again);
        assert_eq!(Failed::from(newer).remedy(), Remedy::Never);
        let too_large = StateError::TooLarge {
            file: "writer.json".to_owned(),
            what: "writer lock",
            detail: "2147483648 bytes".to_owned(),
        };
        assert_eq!(Failed::from(too_large).remedy(), Remedy::Never);
    }

    #[test]
    fn a_missing_bucket_is_no_refusal() {
        let uri = || "s3://bucket/out/".to_owned();
        let reason = |error: Error| access(&StateError::from(error));
        assert_eq!(reason(Error::NoBucket { uri: uri() }), "BucketNotFound");
        let words = "the server says: status 400".to_owned();
        let invalid = Error::Invalid {
            uri: uri(),
            reason: words,
        };
        assert_eq!(reason(invalid), "StoreUnusable");
        let refused = Error::Refused {
            uri: uri(),
            scope: Scope::Store,
            reason: "AccessDenied".to_owned(),
            source: None,
        };
        assert_eq!(reason(refused), "AccessDenied");
    }
}
