//! As whom the operator itself asks the API server.

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::Client;
use kube::api::{Api, PostParams};

/// Namespace and name of the service account that this process has; `None` if it is somebody
/// else, or may not know.
///
/// # Errors
/// If the API server does not answer as it should.
pub async fn own_service_account(client: &Client) -> Result<Option<(String, String)>, kube::Error> {
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let question = SelfSubjectReview::default();
    match reviews.create(&PostParams::default(), &question).await {
        Ok(answer) => {
            let user = answer.status.and_then(|status| status.user_info);
            let name = user.and_then(|user| user.username).unwrap_or_default();
            Ok(parse(&name))
        }
        Err(kube::Error::Api(status)) if status.is_forbidden() => {
            tracing::warn!(
                "the operator may not ask who it is (create selfsubjectreviews), so it can't keep \
                 workers from running with its own service account"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn parse(username: &str) -> Option<(String, String)> {
    let account = username.strip_prefix("system:serviceaccount:")?;
    let (namespace, name) = account.split_once(':')?;
    Some((namespace.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_accounts_are_told_from_people() {
        let account = parse("system:serviceaccount:sidecarjob-system:sidecarjob-operator");
        let expected = (
            "sidecarjob-system".to_owned(),
            "sidecarjob-operator".to_owned(),
        );
        assert_eq!(account, Some(expected));
        assert_eq!(parse("kubernetes-admin"), None);
    }
}
