//! Credentials that somebody hands out anew when they run out.

use std::fmt::{self, Debug, Formatter};
use std::time::SystemTime;

use async_trait::async_trait;

use crate::open::AccessKey;

/// An access key for some time.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The key.
    pub key: AccessKey,
    /// The token that goes with a temporary key; never printed.
    pub session_token: Option<String>,
    /// From when on the source is asked again. `None`: never.
    pub expires_at: Option<SystemTime>,
}

impl Debug for Credentials {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Credentials")
            .field("key", &self.key)
            .field("is_temporary", &self.session_token.is_some())
            .field("expires_at", &self.expires_at)
            .finish()
    }
}

/// Hands out credentials: at the first request, and again shortly before they expire.
#[async_trait]
pub trait CredentialSource: Debug + Send + Sync {
    /// Credentials that are valid now.
    ///
    /// # Errors
    /// In words, with the way out. Every request of the stores then fails with them.
    async fn credentials(&self) -> Result<Credentials, String>;
}
