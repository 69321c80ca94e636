//! Exit codes. Documented in the README; the operator's pod failure policy rests on them.

use std::process::ExitCode;

use crate::error::Error;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Everything was done.
    Done,
    /// The run finished, but some shards failed.
    SomeFailed,
    /// The command line or the manifest is wrong, or asks for something that is refused.
    Usage,
    /// The output does not hold what it should.
    NotVerified,
    /// Another writer holds the prefix, or the lock was lost.
    Locked,
    /// The store refused access, or could not be reached.
    Storage,
    /// Stopped by a signal; what was finished is published.
    Terminated,
}

impl Exit {
    /// The code.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::SomeFailed => 1,
            Self::Usage => 2,
            Self::NotVerified => 3,
            Self::Locked => 4,
            Self::Storage => 5,
            Self::Terminated => 143,
        }
    }

    /// The exit that an error leads to.
    pub fn of(error: &Error) -> Self {
        match error {
            error if error.is_permanent() => Self::Usage,
            Error::Lock(_) => Self::Locked,
            _ => Self::Storage,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
