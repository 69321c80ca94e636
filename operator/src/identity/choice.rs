//! Which identity is used. Pure.

use std::str::FromStr;

use crds::StorageAccess;
use crds::prefix::{is_s3, normalize};
use rules::model::Refusal;
use rules::reasons;

use super::endpoint::Endpoints;

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

/// A prefix for which the operator may use its own identity, in one namespace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnPrefix {
    namespace: String,
    /// In its normal form.
    prefix: String,
}

impl FromStr for OwnPrefix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_label = |name: &str| {
            let is_inside = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
            let bytes = name.as_bytes();
            bytes.len() <= 63
                && bytes
                    .iter()
                    .all(|&letter| is_inside(letter) || letter == b'-')
                && bytes.first().is_some_and(|&first| is_inside(first))
                && bytes.last().is_some_and(|&last| is_inside(last))
        };
        match text.split_once('=') {
            Some((namespace, prefix)) if is_label(namespace) && !prefix.is_empty() => Ok(Self {
                namespace: namespace.to_owned(),
                prefix: normalize(prefix),
            }),
            _ => Err(format!(
                "{text:?}: expected NAMESPACE=PREFIX, such as team-a=s3://bucket/team-a/; without \
                 the namespace everybody who may create a SidecarJob would have the operator's \
                 rights there"
            )),
        }
    }
}

/// Where the operator may use its own identity for a job of `namespace`.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnRights<'a> {
    pub(super) namespace: &'a str,
    pub(super) prefixes: &'a [OwnPrefix],
    /// Signed with its own identity requests may go to its own service only: a tenant names the
    /// endpoint.
    pub(super) endpoints: &'a Endpoints,
}

impl OwnRights<'_> {
    fn cover(&self, prefix: &str) -> bool {
        let is_plain = !prefix.split('/').any(|part| part == "..");
        let mut all = self.prefixes.iter();
        is_plain
            && all.any(|own| {
                own.namespace == self.namespace && prefix.starts_with(own.prefix.as_str())
            })
    }
}

/// The identity for `prefixes` (in their normal form), or why there is none.
pub(super) fn choose(
    storage: &StorageAccess,
    role: Option<String>,
    prefixes: &[String],
    service_account: &str,
    own: &OwnRights<'_>,
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
         with eks.amazonaws.com/role-arn, or have {}=PREFIX added to the operator's \
         --own-identity-prefix",
        own.namespace
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
    if !own.endpoints.is_own(storage.endpoint.as_deref()) {
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

    fn ask(
        storage: &StorageAccess,
        role: Option<&str>,
        prefixes: &[&str],
    ) -> Result<Choice, &'static str> {
        ask_in("team-a", storage, role, prefixes)
    }

    fn ask_in(
        namespace: &str,
        storage: &StorageAccess,
        role: Option<&str>,
        prefixes: &[&str],
    ) -> Result<Choice, &'static str> {
        let own = [
            "team-a=s3://shared/team-a",
            "team-a=/data/",
            "team-b=s3://shared/team-b/",
        ];
        let own = OwnRights {
            namespace,
            prefixes: &own.map(|text| text.parse().unwrap()),
            endpoints: &Endpoints::new(Some(ENDPOINT.to_owned()), Vec::new()),
        };
        let prefixes: Vec<String> = prefixes.iter().map(|&prefix| prefix.to_owned()).collect();
        let role = role.map(str::to_owned);
        choose(storage, role, &prefixes, "default", &own).map_err(|refusal| refusal.reason)
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
    fn what_is_one_namespaces_is_not_anothers() {
        let none = StorageAccess::default();
        let theirs = ["s3://shared/team-b/x/"];
        assert_eq!(ask_in("team-b", &none, None, &theirs), Ok(Choice::Own));
        for namespace in ["team-a", "team", "team-bb", ""] {
            let asked = ask_in(namespace, &none, None, &theirs);
            assert_eq!(asked, Err("NoIdentity"), "{namespace}");
        }
        let local = ["/data/main/"];
        assert_eq!(
            ask_in("team-b", &none, None, &local),
            Err("PrefixNotAllowed")
        );
    }

    #[test]
    fn a_prefix_without_a_namespace_is_refused() {
        for text in [
            "s3://shared/",
            "=s3://shared/",
            "team=",
            "Team=s3://a/",
            "*=s3://a/",
            "",
        ] {
            let error = text.parse::<OwnPrefix>().unwrap_err();
            assert!(error.contains("NAMESPACE=PREFIX"), "{text}: {error}");
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
