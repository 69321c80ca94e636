//! An image as a tar in the OCI layout (image-spec, image-layout.md). Nothing in it depends
//! on when and where it was made.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::{Image, Layer};

/// Returns the archive and the digest of the image's manifest.
pub(super) fn write(image: &Image) -> Result<(Vec<u8>, String)> {
    let mut blobs = Blobs::default();
    let kind = |name: &str| format!("application/vnd.oci.image.{name}");
    let layers = [&image.base, &image.top]
        .into_iter()
        .map(|layer| Ok(blobs.add(layer_tar(layer)?, &kind("layer.v1.tar"))))
        .collect::<Result<Vec<Value>>>()?;
    let differences: Vec<&Value> = layers.iter().map(|layer| &layer["digest"]).collect();
    let config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "User": image.user,
            "WorkingDir": "/",
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Labels": image.labels,
        },
        "rootfs": {"type": "layers", "diff_ids": differences},
    });
    let config = blobs.add(config.to_string().into_bytes(), &kind("config.v1+json"));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": kind("manifest.v1+json"),
        "config": config,
        "layers": layers,
    });
    let mut manifest = blobs.add(manifest.to_string().into_bytes(), &kind("manifest.v1+json"));
    let digest = manifest["digest"].as_str().unwrap_or_default().to_owned();
    manifest["annotations"] = json!({"io.containerd.image.name": image.reference()});
    manifest["platform"] = json!({"architecture": architecture(), "os": "linux"});
    let index = json!({
        "schemaVersion": 2,
        "mediaType": kind("index.v1+json"),
        "manifests": [manifest],
    });

    let mut archive = Builder::new(Vec::new());
    let layout = json!({"imageLayoutVersion": "1.0.0"}).to_string();
    append(&mut archive, "oci-layout", 0o644, layout.as_bytes())?;
    append(
        &mut archive,
        "index.json",
        0o644,
        index.to_string().as_bytes(),
    )?;
    for (digest, bytes) in &blobs.0 {
        append(
            &mut archive,
            &format!("blobs/sha256/{digest}"),
            0o644,
            bytes,
        )?;
    }
    Ok((archive.into_inner()?, digest))
}

/// What manifests refer to, by the digest.
#[derive(Default)]
struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    fn add(&mut self, bytes: Vec<u8>, media_type: &str) -> Value {
        let digest: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let descriptor = json!({
            "mediaType": media_type,
            "digest": format!("sha256:{digest}"),
            "size": bytes.len(),
        });
        self.0.insert(digest, bytes);
        descriptor
    }
}

fn layer_tar(layer: &Layer) -> Result<Vec<u8>> {
    let mut folders = BTreeSet::from(["tmp"]);
    for path in layer.keys() {
        folders.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    let mut archive = Builder::new(Vec::new());
    // A folder comes before what is in it.
    for folder in folders {
        let mut header = header(if folder == "tmp" { 0o1777 } else { 0o755 }, 0);
        header.set_entry_type(EntryType::Directory);
        archive.append_data(&mut header, format!("{folder}/"), std::io::empty())?;
    }
    for (path, file) in layer {
        append(&mut archive, path, file.mode, &file.bytes)?;
    }
    Ok(archive.into_inner()?)
}

fn append(archive: &mut Builder<Vec<u8>>, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let size = bytes.len().try_into()?;
    archive
        .append_data(&mut header(mode, size), path, bytes)
        .with_context(|| format!("can't put {path} into an archive"))
}

/// Of a file that belongs to root and is as old as the clock goes.
fn header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// This machine's, in the words of Go.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
