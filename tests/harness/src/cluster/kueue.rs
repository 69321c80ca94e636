//! Kueue beside a cluster: its manager as a process, its webhooks at this machine's loopback.
//!
//! It needs root. Definitions and webhooks are its own, as its release has them; of the webhooks
//! those for its own resources and for Jobs, which are all that it manages here.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::certificates::{ADMIN, WEBHOOKS, kubeconfig};
use super::number::Port;
use super::site::Site;
use crate::tool::tools_folder;

/// Name of its records and logs.
pub(super) const NAME: &str = "kueue";
/// Label of namespaces whose Jobs it manages, also those without a queue's name.
pub const MANAGED: &str = "sidecarjob.dev/managed-by-kueue";

/// The folder of its definitions.
fn definitions() -> std::path::PathBuf {
    tools_folder().join("kueue-config/crd/bases")
}

/// What has to be known to the API server before the manager starts.
pub(super) fn definitions_to_apply() -> String {
    definitions().display().to_string()
}

/// The command that runs the manager, which reads files that are written here.
pub(super) fn command(program: &Path, site: &Site) -> Result<Command> {
    let folder = site.path("kueue");
    // Its metrics want a certificate in a fixed place, also where nobody asks for them.
    let etc = folder.join("etc");
    let certificates = etc.join("kueue/metrics/certs");
    fs::create_dir_all(&certificates)?;
    for (from, to) in [("crt", "tls.crt"), ("key", "tls.key")] {
        let from = site.pki(&format!("{WEBHOOKS}.{from}"));
        fs::copy(&from, certificates.join(to))
            .with_context(|| format!("can't copy {}", from.display()))?;
    }
    let address = site.number.loopback(Port::Webhooks);
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": "0"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": address.ip().to_string(),
            "port": address.port(),
            "certDir": certificates,
        },
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {"enable": false},
        "integrations": {"frameworks": ["batch/job"]},
        "manageJobsWithoutQueueName": true,
        "managedJobsNamespaceSelector": {"matchLabels": {MANAGED: "yes"}},
    });
    let file = folder.join("configuration.json");
    fs::write(&file, configuration.to_string())
        .with_context(|| format!("can't write {}", file.display()))?;
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "sh",
            "-c",
            "mount --bind \"$0\" /etc && exec \"$@\"",
        ])
        .args([etc.as_path(), program])
        .arg(format!("--config={}", file.display()))
        .arg(format!(
            "--kubeconfig={}",
            kubeconfig(site, ADMIN).display()
        ))
        // An API server of its own, which it would need a certificate for.
        .arg("--feature-gates=VisibilityOnDemand=false")
        .arg("--zap-log-level=3");
    Ok(command)
}

/// Its webhooks, to be applied while it runs, as a `List`.
pub(super) fn webhooks(site: &Site) -> Result<Value> {
    let file = tools_folder().join("kueue-config/webhook/manifests.yaml");
    let text =
        fs::read_to_string(&file).with_context(|| format!("can't read {}", file.display()))?;
    let authority = fs::read(site.pki("ca.crt"))?;
    let authority = k8s_openapi::ByteString(authority);
    let address = site.number.loopback(Port::Webhooks);
    let mut configurations = Vec::new();
    for document in serde_yaml::Deserializer::from_str(&text) {
        let mut configuration = Value::deserialize(document)?;
        let name = configuration["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        configuration["metadata"]["name"] = format!("kueue-{name}").into();
        let webhooks = configuration["webhooks"].as_array_mut();
        let webhooks = webhooks.context("a configuration without webhooks")?;
        webhooks.retain_mut(|webhook| {
            let service = &webhook["clientConfig"]["service"];
            let path = service["path"].as_str().unwrap_or_default();
            let is_wanted = path.contains("-kueue-x-k8s-io-") || path.contains("-batch-v1-job");
            webhook["clientConfig"] = json!({
                "url": format!("https://{address}{path}"),
                "caBundle": authority,
            });
            is_wanted
        });
        ensure!(
            !webhooks.is_empty(),
            "no webhook for Jobs in {}",
            file.display()
        );
        configurations.push(configuration);
    }
    Ok(json!({"apiVersion": "v1", "kind": "List", "items": configurations}))
}
