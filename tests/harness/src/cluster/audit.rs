//! What was asked of the API server, and by whom: its audit log.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::site::Site;

/// A request that the API server has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRequest {
    /// Who asked, as in `system:serviceaccount:NAMESPACE:NAME`.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
    /// As in `jobs` or `sidecarjobs/status`; empty for what is no resource, as `/version`.
    pub resource: String,
    /// Empty if the resource has none.
    pub namespace: String,
    /// Empty for a list.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
}

impl ApiRequest {
    /// Whether it asked for a change.
    pub fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    fn from_event(event: &Value) -> Self {
        let text = |path: &str| {
            let value = event.pointer(path).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let mut resource = text("/objectRef/resource");
        let subresource = text("/objectRef/subresource");
        if !subresource.is_empty() {
            resource = format!("{resource}/{subresource}");
        }
        let code = event
            .pointer("/responseStatus/code")
            .and_then(Value::as_u64);
        Self {
            user: text("/user/username"),
            verb: text("/verb"),
            resource,
            namespace: text("/objectRef/namespace"),
            name: text("/objectRef/name"),
            code: code.and_then(|code| code.try_into().ok()).unwrap_or(0),
        }
    }
}

/// Flags of the API server. What Kubernetes' own components ask is not written down: with
/// ten thousand pods it is much, and nobody tests it here.
pub(super) fn arguments(site: &Site) -> Result<[String; 2]> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "users": [
                "system:apiserver",
                "system:kube-controller-manager",
                "system:kube-scheduler",
                "kwok",
            ]},
            {"level": "None", "userGroups": [
                "system:nodes",
                "system:serviceaccounts:kube-system",
            ]},
            {"level": "Metadata"},
        ],
    });
    let path = site.path("audit-policy.json");
    fs::write(&path, policy.to_string())
        .with_context(|| format!("can't write {}", path.display()))?;
    Ok([
        format!("--audit-policy-file={}", path.display()),
        format!("--audit-log-path={}", log(site).display()),
    ])
}

fn log(site: &Site) -> std::path::PathBuf {
    site.path("logs/audit.jsonl")
}

/// All requests since the cluster was started, in the order of their answers. A watch is
/// there twice: when it begins and when it ends.
pub(super) fn requests(site: &Site) -> Result<Vec<ApiRequest>> {
    let path = log(site);
    let file = File::open(&path).with_context(|| format!("can't open {}", path.display()))?;
    let mut requests = Vec::new();
    for line in BufReader::new(file).lines() {
        // The last line may not be whole yet.
        if let Ok(event) = serde_json::from_str::<Value>(&line?) {
            requests.push(ApiRequest::from_event(&event));
        }
    }
    Ok(requests)
}
