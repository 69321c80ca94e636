//! Credentials of the role of a service account.

use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use storage::{CredentialSource, Credentials, WebIdentity, assume_role_with_web_identity};

use super::IdentityError;
use crate::api_words::api_words;

/// The annotation that names the role.
const ROLE: &str = "eks.amazonaws.com/role-arn";

/// The only audience that tokens are asked for: they are worth nothing at the API server.
const AUDIENCE: &str = "sts.amazonaws.com";

/// Seconds that a token lives; it is used once, at once.
const TOKEN_SECONDS: i64 = 600;

/// The role that a service account is annotated with. `None` if it has none, or the operator
/// was installed without the right to look.
pub(super) async fn find_role(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, IdentityError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    match accounts.get_opt(name).await {
        Ok(account) => Ok(account.and_then(|account| account.annotations().get(ROLE).cloned())),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(IdentityError::Api(error)),
    }
}

/// A role, and who assumes it.
#[derive(Clone, Debug)]
pub(super) struct Role {
    pub(super) namespace: String,
    pub(super) service_account: String,
    pub(super) arn: String,
    pub(super) region: Option<String>,
    pub(super) session: String,
}

/// Credentials of a role, renewed with a new token each time.
pub(super) struct RoleCredentials {
    accounts: Api<ServiceAccount>,
    role: Role,
}

impl std::fmt::Debug for RoleCredentials {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "RoleCredentials({:?})", self.role)
    }
}

impl RoleCredentials {
    pub(super) fn new(client: Client, role: Role) -> Self {
        Self {
            accounts: Api::namespaced(client, &role.namespace),
            role,
        }
    }

    async fn token(&self) -> Result<String, String> {
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: Some(vec![AUDIENCE.to_owned()]),
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let name = &self.role.service_account;
        let answer = self
            .accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(|error| {
                format!(
                    "can't have a token of the service account {}/{name}: {}; let the \
                     operator's role create serviceaccounts/token",
                    self.role.namespace,
                    api_words(&error)
                )
            })?;
        match answer.status.and_then(|status| status.token) {
            Some(token) => Ok(token),
            None => Err(format!(
                "the API server answered without a token of the service account {}/{name}",
                self.role.namespace
            )),
        }
    }
}

#[async_trait]
impl CredentialSource for RoleCredentials {
    async fn credentials(&self) -> Result<Credentials, String> {
        let token = self.token().await?;
        let who = WebIdentity {
            role: &self.role.arn,
            session: &self.role.session,
            token: &token,
            region: self.role.region.as_deref(),
        };
        assume_role_with_web_identity(who).await
    }
}
