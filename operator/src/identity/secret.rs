//! Access keys in Secrets.

use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::Api;
use rules::reasons;
use storage::{AccessKey, CredentialSource, Credentials};

use super::IdentityError;

/// After so long the Secret is read again: keys are replaced now and then.
const READ_AGAIN: Duration = Duration::from_secs(600);

const KEY_ID: &str = "AWS_ACCESS_KEY_ID";
const SECRET_KEY: &str = "AWS_SECRET_ACCESS_KEY";
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// The access key in a Secret; read from the API server each time, never from a cache.
pub(super) struct SecretKey {
    secrets: Api<Secret>,
    namespace: String,
    name: String,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SecretKey({}/{})", self.namespace, self.name)
    }
}

impl SecretKey {
    pub(super) fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            secrets: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    async fn read(&self) -> Result<Credentials, IdentityError> {
        let place = format!("{}/{}", self.namespace, self.name);
        let secret = match self.secrets.get_opt(&self.name).await {
            Ok(Some(secret)) => secret,
            Ok(None) => {
                return Err(IdentityError::refused(
                    reasons::SECRET_NOT_FOUND,
                    format!(
                        "there is no Secret {place}; create it with the keys {KEY_ID} and \
                         {SECRET_KEY}, or correct spec.storage.credentialsSecretRef"
                    ),
                ));
            }
            Err(kube::Error::Api(status)) if status.is_forbidden() => {
                return Err(IdentityError::refused(
                    reasons::SECRET_FORBIDDEN,
                    format!(
                        "the operator may not read the Secret {place}; let it, by a RoleBinding \
                         of the ClusterRole sidecarjob-operator-secrets to its service account in \
                         this namespace (docs/security.md has the command)"
                    ),
                ));
            }
            Err(error) => return Err(IdentityError::Api(error)),
        };
        key_of(&secret).map_err(|missing| {
            IdentityError::refused(
                reasons::SECRET_INCOMPLETE,
                format!("the Secret {place} has no usable {missing}; add it"),
            )
        })
    }
}

#[async_trait]
impl CredentialSource for SecretKey {
    async fn credentials(&self) -> Result<Credentials, String> {
        self.read().await.map_err(|error| error.to_string())
    }
}

/// Whether the Secret is there and complete.
pub(super) async fn check(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(), IdentityError> {
    let key = SecretKey::new(client.clone(), namespace, name);
    key.read().await.map(|_| ())
}

/// The key in a Secret, or the name of what it lacks.
fn key_of(secret: &Secret) -> Result<Credentials, &'static str> {
    let value = |name: &'static str| {
        let bytes = &secret.data.as_ref()?.get(name)?.0;
        let text = std::str::from_utf8(bytes).ok()?.trim();
        (!text.is_empty()).then(|| text.to_owned())
    };
    Ok(Credentials {
        key: AccessKey {
            id: value(KEY_ID).ok_or(KEY_ID)?,
            secret: value(SECRET_KEY).ok_or(SECRET_KEY)?,
        },
        session_token: value(SESSION_TOKEN),
        expires_at: SystemTime::now().checked_add(READ_AGAIN),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;

    use super::*;

    fn secret(entries: &[(&str, &[u8])]) -> Secret {
        let data = entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), ByteString(value.to_vec())))
            .collect::<BTreeMap<_, _>>();
        Secret {
            data: Some(data),
            ..Secret::default()
        }
    }

    #[test]
    fn keys_are_read_without_the_line_end_of_an_editor() {
        let given = key_of(&secret(&[
            (KEY_ID, b"id\n"),
            (SECRET_KEY, b"secret"),
            (SESSION_TOKEN, b""),
        ]))
        .unwrap();
        assert_eq!(
            (given.key.id.as_str(), given.key.secret.as_str()),
            ("id", "secret")
        );
        assert_eq!(given.session_token, None);
        assert!(!format!("{given:?}").contains("secret\""));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(key_of(&secret(&[])), Err(KEY_ID));
        assert_eq!(key_of(&secret(&[(KEY_ID, b"id")])), Err(SECRET_KEY));
        assert_eq!(
            key_of(&secret(&[(KEY_ID, b"\xff"), (SECRET_KEY, b"s")])),
            Err(KEY_ID)
        );
        assert_eq!(key_of(&Secret::default()), Err(KEY_ID));
    }
}
