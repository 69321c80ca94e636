//! A source of credentials as the SDK wants it.

use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_s3::config::{Credentials, IdentityCache, SharedIdentityCache};

use crate::credentials::CredentialSource;

/// Longest wait for credentials: a token and a role may have to be asked for.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long before they expire credentials are asked for again.
const REFRESH_AHEAD: Duration = Duration::from_secs(60);

/// Credentials of a source; the SDK keeps them until shortly before they expire.
#[derive(Debug)]
pub(super) struct Provided(pub(super) Arc<dyn CredentialSource>);

impl ProvideCredentials for Provided {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let given = self.0.credentials().await;
            let given = given.map_err(CredentialsError::provider_error)?;
            Ok(Credentials::new(
                given.key.id,
                given.key.secret,
                given.session_token,
                given.expires_at,
                "source",
            ))
        })
    }
}

pub(super) fn identity_cache() -> SharedIdentityCache {
    IdentityCache::lazy()
        .load_timeout(LOAD_TIMEOUT)
        .buffer_time(REFRESH_AHEAD)
        .build()
}
