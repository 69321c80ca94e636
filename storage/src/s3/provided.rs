//! A source of credentials as the SDK wants it.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, future};
use aws_sdk_s3::config::Credentials as SdkCredentials;
use tokio::sync::Mutex;

use crate::credentials::{CredentialSource, Credentials};

/// Longest wait for credentials: a token and a role may have to be asked for.
const LOAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long before they expire credentials are asked for again.
const REFRESH_AHEAD: Duration = Duration::from_secs(60);

/// Refusals ask the source no more often: most of them are about permissions.
const RENEW_AGAIN: Duration = Duration::from_secs(10);

/// Credentials of a source, kept until shortly before they expire, or until a store refuses them.
/// Clones keep the same ones.
#[derive(Clone, Debug)]
pub(super) struct Provided {
    source: Arc<dyn CredentialSource>,
    kept: Arc<Mutex<Option<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    credentials: Credentials,
    /// When they took the place of others.
    since: Option<Instant>,
    /// When the source was asked last because a store refused.
    renewed: Option<Instant>,
}

impl Kept {
    fn is_good(&self) -> bool {
        let expiry = self.credentials.expires_at;
        expiry.is_none_or(|expiry| SystemTime::now() + REFRESH_AHEAD < expiry)
    }
}

impl Provided {
    pub(super) fn new(source: Arc<dyn CredentialSource>) -> Self {
        Self {
            source,
            kept: Arc::default(),
        }
    }

    async fn current(&self) -> Result<Credentials, String> {
        let mut kept = self.kept.lock().await;
        if let Some(kept) = kept.as_ref().filter(|kept| kept.is_good()) {
            return Ok(kept.credentials.clone());
        }
        let credentials = self.load().await?;
        *kept = Some(Kept {
            credentials: credentials.clone(),
            since: kept.as_ref().map(|_| Instant::now()),
            renewed: None,
        });
        Ok(credentials)
    }

    /// A request that was sent at `sent` was refused: a key may have been replaced before it
    /// would have been asked for again. Whether there is another one now.
    pub(super) async fn renew(&self, sent: Instant) -> bool {
        let mut kept = self.kept.lock().await;
        let Some(known) = kept.as_mut() else {
            return false;
        };
        if known.since.is_some_and(|since| since > sent) {
            return true;
        }
        if known.renewed.is_some_and(|at| at.elapsed() < RENEW_AGAIN) {
            return false;
        }
        known.renewed = Some(Instant::now());
        let Ok(credentials) = self.load().await else {
            return false;
        };
        let is_other = credentials.key != known.credentials.key
            || credentials.session_token != known.credentials.session_token;
        known.credentials = credentials;
        if is_other {
            known.since = Some(Instant::now());
        }
        is_other
    }

    async fn load(&self) -> Result<Credentials, String> {
        let loaded = tokio::time::timeout(LOAD_TIMEOUT, self.source.credentials()).await;
        loaded.unwrap_or_else(|_| {
            let seconds = LOAD_TIMEOUT.as_secs();
            Err(format!("no credentials were had within {seconds} s"))
        })
    }
}

impl ProvideCredentials for Provided {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(async {
            let given = self.current().await;
            let given = given.map_err(CredentialsError::provider_error)?;
            Ok(SdkCredentials::new(
                given.key.id,
                given.key.secret,
                given.session_token,
                given.expires_at,
                "source",
            ))
        })
    }
}
