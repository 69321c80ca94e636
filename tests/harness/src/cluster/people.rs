//! The cluster that a person starts by hand and that runs on: with an S3 server beside it,
//! this project's resources known and its images there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::certificates::{ADMIN, kubeconfig};
use super::component::{Component, Programs};
use super::own::{NAME_SERVER, OwnCluster};
use super::process::Processes;
use super::site::{Site, Size};
use super::{keeper, kubectl};
use crate::image::Image;
use crate::s3_server;
use crate::tool::find_tool;

/// Name of the S3 server's records and logs.
const S3: &str = "s3";
const S3_PORT: u16 = 9000;
/// The bucket that is there from the start.
const BUCKET: &str = "datasets";
/// The Secret in namespace `default` with the keys to the S3 server.
const SECRET: &str = "s3-credentials";

/// The cluster that people start by hand.
#[derive(Debug)]
pub struct PeoplesCluster {
    site: Site,
}

/// What [`PeoplesCluster::up`] has made.
#[derive(Debug)]
pub struct Up {
    /// Names of the images that are there, made of programs built here.
    pub images: Vec<String>,
    /// Programs that are not built, so that their images are not there.
    pub missing: Vec<String>,
}

impl PeoplesCluster {
    /// Starts what is missing of it; none, and a line that says `SKIPPED`, where a program is
    /// not installed. `repository` is where this project's files are, and `name_server` a
    /// program that serves names when it is called with the word `name-server` and two
    /// addresses, for [`super::Names::new`].
    ///
    /// # Errors
    /// If something does not start.
    ///
    /// # Panics
    /// With `SIDECARJOB_STRICT=1` if a program is not installed.
    pub fn up(repository: &Path, name_server: PathBuf) -> Result<Option<(Self, Up)>> {
        let (Some(programs), Some(s3)) = (Programs::find(Size::Node), find_tool("versitygw"))
        else {
            return Ok(None);
        };
        let site = Site::for_people()?;
        let _lock = site.lock_for_command()?;
        let cluster = OwnCluster::begin_for_machine(site.clone(), programs, name_server)?;
        let this = Self { site };
        this.start_s3(&cluster.processes, &s3)?;

        let mut up = Up {
            images: Vec::new(),
            missing: Vec::new(),
        };
        for (binary, image_of) in [
            ("shard-worker", Image::of_worker as fn(&Path) -> _),
            ("sidecarjob-operator", Image::of_operator),
        ] {
            match newest_build(repository, binary) {
                Some(program) => {
                    let image = image_of(&program)?;
                    cluster.import(&image)?;
                    up.images.push(image.name().to_owned());
                }
                None => up.missing.push(binary.to_owned()),
            }
        }
        this.apply_definition(&repository.join("crds/sidecarjobs.yaml"))?;
        this.apply_secret()?;
        Ok(Some((this, up)))
    }

    /// Ends it and removes all of it. False if there is none.
    ///
    /// # Errors
    /// If something is left.
    pub fn down() -> Result<bool> {
        let site = Site::for_people()?;
        if !site.exists() {
            return Ok(false);
        }
        let _lock = site.lock_for_command()?;
        keeper::remove(&site)?;
        Ok(true)
    }

    /// The cluster, if there is one.
    ///
    /// # Errors
    /// If `SIDECARJOB_CLUSTER_NUMBER` is no number of a cluster.
    pub fn find() -> Result<Option<Self>> {
        let site = Site::for_people()?;
        Ok(site.exists().then_some(Self { site }))
    }

    /// Each part of it and whether it runs.
    ///
    /// # Errors
    /// If its folder can't be used.
    pub fn parts(&self) -> Result<Vec<(&'static str, bool)>> {
        let processes = Processes::in_folder(&self.site.folder)?;
        let components = Component::all(self.site.size).iter();
        let names = components
            .map(|component| component.name())
            .chain([S3, NAME_SERVER]);
        Ok(names
            .map(|name| (name, processes.find(name).is_some()))
            .collect())
    }

    /// A file for `KUBECONFIG`, with the rights of an administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        kubeconfig(&self.site, ADMIN)
    }

    /// Where its parts write what they have to say.
    pub fn logs(&self) -> PathBuf {
        self.site.path("logs")
    }

    /// Environment for a program, here or in a pod, that is to use the S3 server.
    pub fn s3_environment(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL_S3", self.s3_endpoint()),
            ("AWS_REGION", s3_server::REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", s3_server::ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", s3_server::SECRET_KEY.to_owned()),
        ]
    }

    /// URL of the S3 server, the same here and in pods.
    pub fn s3_endpoint(&self) -> String {
        format!("http://{}", self.s3_address())
    }

    /// URL of the bucket that is there from the start.
    pub fn bucket(&self) -> String {
        format!("s3://{BUCKET}/")
    }

    /// The Secret in namespace `default` with the keys to the S3 server.
    pub fn secret(&self) -> &'static str {
        SECRET
    }

    fn s3_address(&self) -> SocketAddr {
        (self.site.gateway(), S3_PORT).into()
    }

    fn start_s3(&self, processes: &Processes, binary: &Path) -> Result<()> {
        if processes.find(S3).is_none() {
            let folder = self.site.path(S3);
            let command = s3_server::command(binary, self.s3_address(), &folder)?;
            std::fs::create_dir_all(folder.join("data").join(BUCKET))?;
            processes.start(S3, command)?;
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while !s3_server::is_healthy(self.s3_address()) {
            ensure!(
                processes.find(S3).is_some() && Instant::now() < deadline,
                "the S3 server does not start: {}",
                processes.log_tail(S3)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn apply_definition(&self, file: &Path) -> Result<()> {
        let Some(file) = file.to_str() else {
            bail!("{} is no text", file.display());
        };
        let config = self.kubeconfig();
        kubectl(
            &config,
            &["apply", "--server-side", "--force-conflicts", "-f", file],
        )?;
        kubectl(
            &config,
            &[
                "wait",
                "--for=condition=Established",
                "--timeout=60s",
                "-f",
                file,
            ],
        )?;
        Ok(())
    }

    fn apply_secret(&self) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SECRET, "namespace": "default"},
            "stringData": {
                "AWS_ACCESS_KEY_ID": s3_server::ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": s3_server::SECRET_KEY,
            },
        });
        let path = self.site.path("s3-credentials.json");
        std::fs::write(&path, secret.to_string())?;
        let path = path.to_str().context("the cluster's folder is no text")?;
        kubectl(&self.kubeconfig(), &["apply", "--server-side", "-f", path])?;
        Ok(())
    }
}

/// The last that was built of a binary, in whatever profile.
fn newest_build(repository: &Path, binary: &str) -> Option<PathBuf> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(target) => PathBuf::from(target),
        None => repository.join("target"),
    };
    ["release", "demo", "debug"]
        .map(|profile| target.join(profile).join(binary))
        .into_iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
}
