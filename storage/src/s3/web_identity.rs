//! Exchanging a token of a service account for credentials of a role.

use std::time::{Duration, SystemTime};

use aws_config::BehaviorVersion;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sts::Client;
use aws_sdk_sts::config::Region;
use aws_sdk_sts::error::{DisplayErrorContext, ProvideErrorMetadata};

use crate::credentials::Credentials;
use crate::open::AccessKey;

const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// A role, and the token by which it is assumed.
#[derive(Clone, Copy)]
pub struct WebIdentity<'a> {
    /// ARN of the role.
    pub role: &'a str,
    /// Name of the session, shown in audit logs: 2 to 64 of `A-Z a-z 0-9 + = , . @ _ -`.
    pub session: &'a str,
    /// The token, issued for the audience `sts.amazonaws.com`.
    pub token: &'a str,
    /// Region of the token service. `None`: `AWS_REGION`, else `us-east-1`.
    pub region: Option<&'a str>,
}

/// Credentials of the role, for an hour or what the role allows.
///
/// # Errors
/// In words: what the token service (`AWS_ENDPOINT_URL_STS`, else that of AWS) answered.
pub async fn assume_role_with_web_identity(who: WebIdentity<'_>) -> Result<Credentials, String> {
    let timeouts = TimeoutConfig::builder().operation_timeout(CALL_TIMEOUT);
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .no_credentials()
        .timeout_config(timeouts.build());
    if let Some(region) = who.region {
        loader = loader.region(Region::new(region.to_owned()));
    }
    let mut shared = loader.load().await;
    if shared.region().is_none() {
        let region = Region::new("us-east-1");
        shared = shared.into_builder().region(region).build();
    }
    let answer = Client::new(&shared)
        .assume_role_with_web_identity()
        .role_arn(who.role)
        .role_session_name(who.session)
        .web_identity_token(who.token)
        .send()
        .await;
    let answer = answer.map_err(|error| {
        let role = who.role;
        match (error.code(), error.message()) {
            (Some(code), message) => format!(
                "the token service refuses the role {role}: {code}: {}",
                message.unwrap_or_default()
            ),
            (None, _) => format!(
                "the token service can't be asked for the role {role}: {}",
                DisplayErrorContext(&error)
            ),
        }
    })?;
    let given = answer.credentials().ok_or_else(|| {
        format!(
            "the token service answered without credentials for the role {}",
            who.role
        )
    })?;
    Ok(Credentials {
        key: AccessKey {
            id: given.access_key_id().to_owned(),
            secret: given.secret_access_key().to_owned(),
        },
        // Services that are not AWS may hand out keys that need none.
        session_token: Some(given.session_token().to_owned()).filter(|token| !token.is_empty()),
        expires_at: SystemTime::try_from(*given.expiration()).ok(),
    })
}
