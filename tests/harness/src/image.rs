//! Container images made of programs that are built here, without a registry: the same
//! layers that the Dockerfile describes. The same program gives the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::tool::find_program;

mod archive;
mod libraries;

/// A file of an image.
#[derive(Debug, Clone)]
struct ImageFile {
    mode: u32,
    bytes: Vec<u8>,
}

/// Files by their path without the first slash.
type Layer = BTreeMap<String, ImageFile>;

/// An image that a program is run from.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    /// Libraries, certificates and users: the same for programs with the same libraries.
    base: Layer,
    /// The program.
    top: Layer,
    entrypoint: Vec<String>,
    user: &'static str,
    labels: BTreeMap<&'static str, String>,
}

impl Image {
    /// What keeps a pod's namespaces: a program that waits.
    pub(crate) const PAUSE: &'static str = "localhost/pause:local";

    /// An image of that name (`NAME:TAG`, better not `latest`) that runs `program`, as a user without
    /// rights and at `path` inside, with the libraries that it is linked with, the
    /// machine's certificate authorities, and an empty `/tmp`.
    ///
    /// # Errors
    /// If the program or one of its libraries can't be read.
    pub fn of_program(name: &str, program: &Path, path: &str) -> Result<Self> {
        let mut base = libraries::of(program)?;
        base.insert("etc/passwd".to_owned(), ImageFile::text(PASSWD));
        base.insert("etc/group".to_owned(), ImageFile::text(GROUP));
        base.insert(
            "etc/nsswitch.conf".to_owned(),
            ImageFile::text("hosts: files dns\n"),
        );
        for file in [
            "/etc/ssl/certs/ca-certificates.crt",
            "/etc/pki/tls/certs/ca-bundle.crt",
        ] {
            if let Ok(bytes) = fs::read(file) {
                let file = ImageFile { mode: 0o644, bytes };
                base.insert("etc/ssl/certs/ca-certificates.crt".to_owned(), file);
                break;
            }
        }
        let top = Layer::from([(inside(path), ImageFile::program(program)?)]);
        Ok(Self {
            name: name.to_owned(),
            base,
            top,
            entrypoint: vec![path.to_owned()],
            user: "65532:65532",
            labels: BTreeMap::from([
                (
                    "org.opencontainers.image.title",
                    path.trim_start_matches('/').to_owned(),
                ),
                ("org.opencontainers.image.licenses", "Apache-2.0".to_owned()),
            ]),
        })
    }

    /// The worker's image, as the Dockerfile makes it and the shipped configuration names it.
    ///
    /// # Errors
    /// As [`Self::of_program`].
    pub fn of_worker(program: &Path) -> Result<Self> {
        let name = concat!("sidecarjob-worker:", env!("CARGO_PKG_VERSION"));
        Self::of_program(name, program, "/shard-worker")
    }

    /// The operator's image, as the Dockerfile makes it and the shipped configuration names
    /// it.
    ///
    /// # Errors
    /// As [`Self::of_program`].
    pub fn of_operator(program: &Path) -> Result<Self> {
        let name = concat!("sidecarjob-operator:", env!("CARGO_PKG_VERSION"));
        Self::of_program(name, program, "/sidecarjob-operator")
    }

    /// The image for [`Self::PAUSE`], made of the machine's own `sleep`.
    pub(crate) fn pause() -> Result<Self> {
        let sleep = find_program("sleep", "coreutils").context("sleep is not there")?;
        let mut image = Self::of_program(Self::PAUSE, &sleep, "/sleep")?;
        image.entrypoint.push("infinity".to_owned());
        Ok(image)
    }

    /// Adds a program at `path`, with the libraries that it is linked with.
    ///
    /// # Errors
    /// If the program or one of its libraries can't be read.
    pub fn with_program(mut self, program: &Path, path: &str) -> Result<Self> {
        self.base.extend(libraries::of(program)?);
        self.top.insert(inside(path), ImageFile::program(program)?);
        Ok(self)
    }

    /// By which name pods ask for it. Their `imagePullPolicy` has to be `IfNotPresent` or
    /// `Never`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name with the registry that is meant where it names none.
    pub(crate) fn reference(&self) -> String {
        let first = self.name.split('/').next().unwrap_or_default();
        let names_registry =
            first != self.name && (first == "localhost" || first.contains(['.', ':']));
        let library = if self.name.contains('/') {
            ""
        } else {
            "library/"
        };
        if names_registry {
            self.name.clone()
        } else {
            format!("docker.io/{library}{}", self.name)
        }
    }

    /// The image as a tar in the OCI layout, and the digest by which it is known.
    ///
    /// # Errors
    /// If an archive can't be made of it.
    pub(crate) fn archive(&self) -> Result<(Vec<u8>, String)> {
        archive::write(self)
    }
}

const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\n\
                      nonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";

impl ImageFile {
    fn text(text: &str) -> Self {
        Self {
            mode: 0o644,
            bytes: text.as_bytes().to_vec(),
        }
    }

    fn program(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
        Ok(Self { mode: 0o755, bytes })
    }
}

/// A path as it is written in a layer.
fn inside(path: impl Into<PathBuf>) -> String {
    let path = path.into().display().to_string();
    path.trim_start_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_program() -> PathBuf {
        std::env::current_exe().unwrap()
    }

    #[test]
    fn the_same_program_gives_the_same_bytes() {
        let image = |name| Image::of_program(name, &own_program(), "/program").unwrap();
        let (bytes, digest) = image("localhost/one:dev").archive().unwrap();
        let (again, digest_again) = image("localhost/one:dev").archive().unwrap();
        assert!(bytes == again);
        assert_eq!(digest, digest_again);
        // The name is beside the image, not in it.
        let (other, other_digest) = image("localhost/two:dev").archive().unwrap();
        assert!(bytes != other);
        assert_eq!(digest, other_digest);
    }

    #[test]
    fn names_mean_what_they_mean_elsewhere() {
        let reference = |name| {
            let image = Image::of_program(name, &own_program(), "/program").unwrap();
            image.reference()
        };
        assert_eq!(reference("localhost/one:dev"), "localhost/one:dev");
        assert_eq!(reference("one:0.1.0"), "docker.io/library/one:0.1.0");
        assert_eq!(reference("me/one:0.1.0"), "docker.io/me/one:0.1.0");
        assert_eq!(reference("quay.io/me/one:1"), "quay.io/me/one:1");
    }

    #[test]
    fn an_image_has_what_a_program_needs() {
        let image = Image::of_program("localhost/one:dev", &own_program(), "/program").unwrap();
        assert_eq!(image.top["program"].mode, 0o755);
        assert!(image.base.keys().any(|path| path.contains("libc.so")));
        assert!(image.base.contains_key("etc/passwd"));
    }
}
