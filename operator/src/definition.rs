//! What the API server must have before anything can be done.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;

use crate::api_words::api_words;

/// The first minor version of Kubernetes 1 whose Jobs can do what is needed:
/// `backoffLimitPerIndex` and `podReplacementPolicy`.
const OLDEST_MINOR: u32 = 29;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// The API server is too old.
#[derive(Debug, thiserror::Error)]
#[error("the API server is Kubernetes {major}.{minor}; Jobs need 1.{OLDEST_MINOR} or newer")]
pub struct TooOld {
    major: String,
    minor: String,
}

/// Waits until the API server has SidecarJobs with a status.
///
/// # Errors
/// If it is too old for the Jobs that workers run in.
pub async fn wait_for_definition(client: &Client) -> Result<(), TooOld> {
    let mut last_words = String::new();
    loop {
        let words = match look(client).await {
            Ok(Look::Ready) => return Ok(()),
            Ok(Look::TooOld(error)) => return Err(error),
            Ok(Look::Missing(name)) => {
                format!(
                    "the API server has no {name} yet: apply config/crd (kubectl apply -k config/crd)"
                )
            }
            Err(error) => format!("can't ask the API server: {}", api_words(&error)),
        };
        if words != last_words {
            tracing::warn!("{words}");
            last_words = words;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

enum Look {
    Ready,
    Missing(&'static str),
    TooOld(TooOld),
}

/// By discovery, which takes no rights beyond those that everybody has.
async fn look(client: &Client) -> Result<Look, kube::Error> {
    let version = client.apiserver_version().await?;
    if is_too_old(&version) {
        return Ok(Look::TooOld(TooOld {
            major: version.major,
            minor: version.minor,
        }));
    }
    let group = format!("{}/{}", crds::GROUP, crds::VERSION);
    let resources = match client.list_api_group_resources(&group).await {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(error),
    };
    let wanted = ["sidecarjobs", "sidecarjobs/status"];
    let missing = wanted
        .into_iter()
        .find(|name| !resources.iter().any(|resource| resource.name == *name));
    Ok(match missing {
        Some(name) => Look::Missing(name),
        None => Look::Ready,
    })
}

/// Minor versions of some providers have a letter or a sign behind the number.
fn is_too_old(version: &Info) -> bool {
    let digits: String = version
        .minor
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    version.major == "1"
        && digits
            .parse::<u32>()
            .is_ok_and(|minor| minor < OLDEST_MINOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (minor, expected) in [("28", true), ("29", false), ("36+", false), ("", false)] {
            let version = Info {
                major: "1".to_owned(),
                minor: minor.to_owned(),
                ..Info::default()
            };
            assert_eq!(is_too_old(&version), expected, "{minor:?}");
        }
    }
}
