//! The keys and certificates of a cluster, as kubeadm would lay them out: one authority,
//! which servers and users are signed by.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::site::Site;

/// A user of the API server.
#[derive(Debug, Clone, Copy)]
pub(super) struct User {
    /// Of its certificate, key and kubeconfig.
    pub file: &'static str,
    /// By which rights are given.
    pub name: &'static str,
    pub group: &'static str,
}

/// Certificate of servers on loopback that the API server asks.
pub(super) const WEBHOOKS: &str = "webhooks";

/// The node's name in the cluster.
pub(super) const NODE: &str = "node";

pub(super) const ADMIN: User = User {
    file: "admin",
    name: "admin",
    group: "system:masters",
};
pub(super) const CONTROLLER_MANAGER: User = User {
    file: "controller-manager",
    name: "system:kube-controller-manager",
    group: "system:authenticated",
};
pub(super) const SCHEDULER: User = User {
    file: "scheduler",
    name: "system:kube-scheduler",
    group: "system:authenticated",
};
pub(super) const KUBELET: User = User {
    file: "kubelet",
    name: "system:node:node",
    group: "system:nodes",
};
pub(super) const KWOK: User = User {
    file: "kwok",
    name: "kwok",
    group: "system:masters",
};
/// The API server as the kubelet sees it.
const KUBELET_CLIENT: User = User {
    file: "kubelet-client",
    name: "kubelet-client",
    group: "system:masters",
};

/// Makes all keys, certificates and kubeconfigs; does nothing where they are made.
pub(super) fn issue_all(site: &Site) -> Result<()> {
    let finished = site.pki("finished");
    if finished.exists() {
        return Ok(());
    }
    fs::create_dir_all(site.path("pki"))?;
    let authority = Authority::new(site)?;

    let mut names = vec![
        SanType::DnsName("localhost".try_into()?),
        SanType::IpAddress(site.api_address().ip()),
    ];
    for name in [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ] {
        names.push(SanType::DnsName(name.try_into()?));
    }
    authority.issue_server("api-server", names)?;
    let node = IpAddr::from(site.number.node_address());
    authority.issue_server("kubelet-server", vec![SanType::IpAddress(node)])?;
    let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
    authority.issue_server(WEBHOOKS, vec![SanType::IpAddress(loopback)])?;

    authority.issue_client(KUBELET_CLIENT)?;
    for user in [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KUBELET, KWOK] {
        authority.issue_client(user)?;
        write_kubeconfig(site, user)?;
    }

    // Signs the tokens of service accounts.
    let tokens = KeyPair::generate()?;
    write(&site.pki("tokens.key"), &tokens.serialize_pem())?;
    write(&site.pki("tokens.pub"), &tokens.public_key_pem())?;
    write(&finished, "")
}

struct Authority<'a> {
    site: &'a Site,
    issuer: Issuer<'static, KeyPair>,
}

impl<'a> Authority<'a> {
    fn new(site: &'a Site) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        params
            .distinguished_name
            .push(DnType::CommonName, "sidecarjob test authority");
        let key = KeyPair::generate()?;
        write(&site.pki("ca.crt"), &params.self_signed(&key)?.pem())?;
        let issuer = Issuer::new(params, key);
        Ok(Self { site, issuer })
    }

    fn issue_server(&self, file: &str, names: Vec<SanType>) -> Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, file);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = names;
        self.issue(file, params)
    }

    fn issue_client(&self, user: User) -> Result<()> {
        let mut params = CertificateParams::default();
        let subject = &mut params.distinguished_name;
        subject.push(DnType::CommonName, user.name);
        subject.push(DnType::OrganizationName, user.group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(user.file, params)
    }

    fn issue(&self, file: &str, mut params: CertificateParams) -> Result<()> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .with_context(|| format!("can't sign {file}"))?;
        write(&self.site.pki(&format!("{file}.crt")), &certificate.pem())?;
        write(&self.site.pki(&format!("{file}.key")), &key.serialize_pem())
    }
}

fn write_kubeconfig(site: &Site, user: User) -> Result<()> {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sidecarjob", "cluster": {
            "server": format!("https://{}", site.api_address()),
            "certificate-authority": site.pki("ca.crt"),
        }}],
        "users": [{"name": user.name, "user": {
            "client-certificate": site.pki(&format!("{}.crt", user.file)),
            "client-key": site.pki(&format!("{}.key", user.file)),
        }}],
        "contexts": [{"name": "sidecarjob", "context": {
            "cluster": "sidecarjob",
            "user": user.name,
        }}],
        "current-context": "sidecarjob",
    });
    write(
        &kubeconfig(site, user),
        &serde_json::to_string_pretty(&config)?,
    )
}

/// The file by which a user's programs find the API server.
pub(super) fn kubeconfig(site: &Site, user: User) -> PathBuf {
    site.pki(&format!("{}.kubeconfig", user.file))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("can't write {}", path.display()))
}
