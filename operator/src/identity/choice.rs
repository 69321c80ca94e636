//! Which identity is used. Pure.

use crds::StorageAccess;
use crds::prefix::{is_s3, normalize};

use crate::model::Refusal;
use crate::reasons;

/// An identity.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Choice {
    /// The access key in the Secret of this name.
    Secret(String),
    /// The role of the service account.
    Role(String),
    /// That of the operator.
    Own,
}

/// Where the operator may use its own identity.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnRights {
    /// Prefixes in their normal form.
    prefixes: Vec<String>,
    /// The S3 service that the operator itself uses; `None`: AWS.
    endpoint: Option<String>,
}

impl OwnRights {
    pub(super) fn new(prefixes: &[String], endpoint: Option<String>) -> Self {
        Self {
            prefixes: prefixes.iter().map(|prefix| normalize(prefix)).collect(),
            endpoint,
        }
    }

    fn cover(&self, prefix: &str) -> bool {
        let is_plain = !prefix.split('/').any(|part| part == "..");
        let mut all = self.prefixes.iter();
        is_plain && all.any(|allowed| prefix.starts_with(allowed.as_str()))
    }

    /// Whether requests to `endpoint` go where the operator's own go. Signed with its own
    /// identity they may go nowhere else: a tenant names the endpoint.
    fn reach(&self, endpoint: Option<&str>) -> bool {
        let trim = |url: &str| url.trim_end_matches('/').to_owned();
        endpoint.is_none_or(|endpoint| self.endpoint.as_deref().map(trim) == Some(trim(endpoint)))
    }
}

/// The identity for `prefixes` (in their normal form), or why there is none.
pub(super) fn choose(
    storage: &StorageAccess,
    role: Option<String>,
    prefixes: &[String],
    service_account: &str,
    own: &OwnRights,
) -> Result<Choice, Refusal> {
    let local = prefixes
        .iter()
        .find(|prefix| !is_s3(prefix) && !own.cover(prefix));
    if let Some(prefix) = local {
        return Err(Refusal {
            reason: reasons::PREFIX_NOT_ALLOWED,
            message: format!(
                "{prefix} is a path of the operator's own file system; use a prefix that begins \
                 with s3://"
            ),
        });
    }
    if let Some(reference) = &storage.credentials_secret_ref {
        return Ok(Choice::Secret(reference.name.clone()));
    }
    if let Some(arn) = role {
        return Ok(Choice::Role(arn));
    }
    let advice = format!(
        "set spec.storage.credentialsSecretRef, annotate the service account {service_account} \
         with eks.amazonaws.com/role-arn, or have the prefix added to the operator's \
         --own-identity-prefix"
    );
    if let Some(prefix) = prefixes.iter().find(|prefix| !own.cover(prefix)) {
        return Err(Refusal {
            reason: reasons::NO_IDENTITY,
            message: format!(
                "the job has no identity towards {prefix}, and the operator may not use its own \
                 there; {advice}"
            ),
        });
    }
    if !own.reach(storage.endpoint.as_deref()) {
        let endpoint = storage.endpoint.as_deref().unwrap_or_default();
        return Err(Refusal {
            reason: reasons::NO_IDENTITY,
            message: format!(
                "the job has no identity towards {endpoint}, and the operator uses its own only \
                 at its own S3 service; leave spec.storage.endpoint out, or set \
                 spec.storage.credentialsSecretRef"
            ),
        });
    }
    Ok(Choice::Own)
}

#[cfg(test)]
mod tests {
    use crds::SecretReference;

    use super::*;

    const ENDPOINT: &str = "http://s3.example.com:9000";

    fn own() -> OwnRights {
        let prefixes = ["s3://shared/team-a".to_owned(), "/data/".to_owned()];
        OwnRights::new(&prefixes, Some(ENDPOINT.to_owned()))
    }

    fn ask(
        storage: &StorageAccess,
        role: Option<&str>,
        prefixes: &[&str],
    ) -> Result<Choice, &'static str> {
        let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
        let role = role.map(str::to_owned);
        choose(storage, role, &prefixes, "default", &own()).map_err(|refusal| refusal.reason)
    }

    #[test]
    fn a_jobs_own_identity_goes_first() {
        let secret = StorageAccess {
            credentials_secret_ref: Some(SecretReference {
                name: "keys".to_owned(),
            }),
            ..StorageAccess::default()
        };
        let prefixes = ["s3://shared/team-a/main/", "s3://shared/team-a/out/"];
        let secret_choice = Ok(Choice::Secret("keys".to_owned()));
        assert_eq!(ask(&secret, Some("arn"), &prefixes), secret_choice);
        let none = StorageAccess::default();
        let role_choice = Ok(Choice::Role("arn".to_owned()));
        assert_eq!(ask(&none, Some("arn"), &prefixes), role_choice);
        assert_eq!(ask(&none, None, &prefixes), Ok(Choice::Own));
    }

    #[test]
    fn the_operators_own_identity_is_for_listed_prefixes_only() {
        let none = StorageAccess::default();
        for (prefixes, expected) in [
            (
                ["s3://shared/team-a/x/", "s3://shared/team-a/"],
                Ok(Choice::Own),
            ),
            (
                ["s3://shared/team-a/x/", "s3://shared/team-ab/"],
                Err("NoIdentity"),
            ),
            (
                ["s3://shared/team-b/", "s3://shared/team-a/x/"],
                Err("NoIdentity"),
            ),
            (["/data/main/", "/data/out/"], Ok(Choice::Own)),
            (["/data/main/", "/database/"], Err("PrefixNotAllowed")),
            (["/data/../etc/", "/data/out/"], Err("PrefixNotAllowed")),
            (["data/main/", "/data/out/"], Err("PrefixNotAllowed")),
        ] {
            assert_eq!(ask(&none, None, &prefixes), expected, "{prefixes:?}");
        }
    }

    #[test]
    fn it_is_used_at_the_operators_own_service_only() {
        let prefixes = ["s3://shared/team-a/x/"];
        for (endpoint, expected) in [
            (ENDPOINT, Ok(Choice::Own)),
            ("http://s3.example.com:9000/", Ok(Choice::Own)),
            ("http://tenant.example.com", Err("NoIdentity")),
        ] {
            let storage = StorageAccess {
                endpoint: Some(endpoint.to_owned()),
                ..StorageAccess::default()
            };
            assert_eq!(ask(&storage, None, &prefixes), expected, "{endpoint}");
        }
    }

    #[test]
    fn local_paths_are_refused_whatever_the_identity() {
        let none = StorageAccess::default();
        let prefixes = ["/etc/", "s3://shared/team-a/"];
        assert_eq!(ask(&none, Some("arn"), &prefixes), Err("PrefixNotAllowed"));
    }
}
