//! Ways into a cluster: kubeconfigs and clients, of the administrator and of service accounts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig, NamedAuthInfo};
use kube::{Client, Config};

/// How long a service account's token is good for.
const TOKEN_SECONDS: i64 = 4 * 3600;

/// A client with what a kubeconfig file says.
pub(super) async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("can't read {}", kubeconfig.display()))?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}

/// Writes a kubeconfig for a service account, beside nothing else that it can do, and
/// returns its path in `folder`.
pub(super) async fn service_account_kubeconfig(
    administrator: &Path,
    folder: &Path,
    namespace: &str,
    name: &str,
) -> Result<PathBuf> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client(administrator).await?, namespace);
    let request = TokenRequest {
        spec: Some(TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        }),
        ..TokenRequest::default()
    };
    let token = accounts
        .create_token_request(name, &PostParams::default(), &request)
        .await
        .with_context(|| format!("no token for service account {namespace}/{name}"))?
        .status
        .and_then(|status| status.token)
        .context("a token request without an answer")?;

    let mut config = Kubeconfig::read_from(administrator)?;
    let context = config
        .contexts
        .iter_mut()
        .find(|context| Some(&context.name) == config.current_context.as_ref())
        .and_then(|context| context.context.as_mut())
        .with_context(|| format!("{} has no current context", administrator.display()))?;
    context.user = Some(name.to_owned());
    context.namespace = Some(namespace.to_owned());
    config.auth_infos = vec![NamedAuthInfo {
        name: name.to_owned(),
        auth_info: Some(AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        }),
        ..NamedAuthInfo::default()
    }];
    let path = folder.join(format!("{namespace}-{name}.kubeconfig"));
    fs::write(&path, serde_json::to_string_pretty(&config)?)
        .with_context(|| format!("can't write {}", path.display()))?;
    Ok(path)
}
