//! Where a test's dataset and outputs are: a folder, or a bucket of a real server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::TryStreamExt;
use harness::dataset::{Shape, full_job};
use harness::s3_server::S3Server;
use storage::{Payload, PutCondition, StorageConfig, Store, Stores};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::bucket;
use crate::worker::{Ended, Worker};

/// Shards by relative path, with their version and bytes.
pub type Shards = BTreeMap<String, (String, Vec<u8>)>;

/// A folder or a bucket with a dataset. All but the worker reaches it undisturbed.
pub struct Place {
    /// Manifests; for a folder also the data.
    folder: TempDir,
    server: Option<S3Server>,
    config: StorageConfig,
    runtime: Runtime,
}

impl Place {
    /// A dataset in a folder.
    pub fn folder(shape: Shape) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        shape.write(folder.path());
        Self {
            folder,
            server: None,
            config: StorageConfig::default(),
            runtime: runtime(),
        }
    }

    /// A dataset in a bucket; none where the server is not installed, which it says.
    pub fn bucket(shape: Shape) -> Option<Self> {
        Self::bucket_with(shape, |server| server)
    }

    /// The same on a server to which something is done first.
    #[allow(dead_code, reason = "not all binaries of tests need it")]
    pub fn bucket_with(shape: Shape, first: impl FnOnce(S3Server) -> S3Server) -> Option<Self> {
        let (server, config) = bucket::start()?;
        let server = first(server);
        let place = Self {
            folder: tempfile::tempdir().expect("a folder"),
            server: Some(server),
            config,
            runtime: runtime(),
        };
        let data = tempfile::tempdir().expect("a folder");
        shape.write(data.path());
        let store = place.store("");
        place.runtime.block_on(async {
            for file in files_below(data.path()) {
                let key = file.strip_prefix(data.path()).expect("below");
                let payload = Payload::new(std::fs::read(&file).expect("read"));
                let key = key.to_str().expect("a plain name");
                store
                    .put(key, payload, PutCondition::Create)
                    .await
                    .expect("upload");
            }
        });
        Some(place)
    }

    /// The server, for proxies.
    pub fn server(&self) -> &S3Server {
        self.server.as_ref().expect("a place on S3")
    }

    /// The place's URI, without a `/` at its end.
    pub fn root(&self) -> String {
        match &self.server {
            Some(_) => "s3://bucket".to_owned(),
            None => self.folder.path().display().to_string(),
        }
    }

    /// URI of a prefix.
    pub fn uri(&self, prefix: &str) -> String {
        format!("{}/{prefix}/", self.root())
    }

    /// What the worker needs to know of the place, and a lock that expires soon.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment = self
            .server
            .as_ref()
            .map(S3Server::environment)
            .unwrap_or_default();
        environment.push(("SIDECARJOB_LOCK_TTL_SECONDS", "4".to_owned()));
        environment
    }

    /// Writes a manifest to a file.
    pub fn manifest(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        // Not while another worker reads it.
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
            std::fs::write(&path, text).expect("write");
        }
        path
    }

    /// The file of the job with every operation, whose output is this prefix.
    pub fn full_job(&self, output: &str) -> PathBuf {
        let text = full_job(&self.root(), &self.uri(output));
        self.manifest(&format!("{}.yaml", output.replace('/', "-")), &text)
    }

    /// A command on the full job.
    pub fn worker(&self, command: &str, output: &str) -> Worker {
        Worker::on(command, &self.full_job(output)).environment(&self.environment())
    }

    /// Runs the full job, quietly, to its end, and returns the shards.
    pub fn quiet(&self, output: &str) -> Shards {
        self.run(output).expect(0);
        self.shards(output)
    }

    /// Runs the full job to its end.
    pub fn run(&self, output: &str) -> Ended {
        self.worker("run", output).run()
    }

    /// Opens a prefix, with connections of its own.
    pub fn store(&self, prefix: &str) -> Arc<dyn Store> {
        let uri = match prefix {
            "" => format!("{}/", self.root()),
            prefix => self.uri(prefix),
        };
        self.stores().open(&uri).expect("a store")
    }

    /// Stores with connections of their own.
    pub fn stores(&self) -> Stores {
        Stores::new(&self.config)
    }

    /// Waits for a future.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// The shards that are there now.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        self.block_on(names(&*self.store(prefix)))
    }

    /// The shards that are there now, whole.
    pub fn shards(&self, prefix: &str) -> Shards {
        let store = self.store(prefix);
        self.runtime.block_on(async {
            let mut shards = Shards::new();
            for name in names(&*store).await {
                let (meta, bytes) = store.read(&name).await.expect("read");
                shards.insert(name, (meta.etag.0.to_string(), bytes.to_vec()));
            }
            shards
        })
    }

    /// Every object below a prefix, whatever its name.
    pub fn objects(&self, prefix: &str) -> Vec<String> {
        match &self.server {
            Some(_) => {
                let store = self.store(prefix);
                let objects = self.runtime.block_on(store.list_folder(""));
                let objects = objects.expect("list");
                objects.into_iter().map(|object| object.key).collect()
            }
            // The file system's own view: what the store does not show counts.
            None => {
                let root = self.folder.path().join(prefix);
                let relative = |path: &PathBuf| path.strip_prefix(&root).map(Path::to_path_buf);
                let files = files_below(&root);
                let files = files.iter().map(|path| relative(path).expect("below"));
                files.map(|path| path.display().to_string()).collect()
            }
        }
    }

    /// An object's bytes, if it is there.
    pub fn read(&self, prefix: &str, key: &str) -> Option<Vec<u8>> {
        match self.runtime.block_on(self.store(prefix).read(key)) {
            Ok((_, bytes)) => Some(bytes.to_vec()),
            Err(error) if error.is_not_found() => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Deletes an object.
    pub fn delete(&self, prefix: &str, key: &str) {
        let store = self.store(prefix);
        let deleted = self.runtime.block_on(store.delete(key, None));
        deleted.expect("delete");
    }

    /// A field of the writer lock.
    pub fn lock_field(&self, prefix: &str, field: &str) -> serde_json::Value {
        let bytes = self.read(prefix, "_sidecar/writer.json");
        let lock: serde_json::Value = match bytes {
            Some(bytes) => serde_json::from_slice(&bytes).expect("JSON"),
            None => return serde_json::Value::Null,
        };
        lock[field].clone()
    }

    /// A path below the place's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Deletes everything below a prefix.
    pub fn clear(&self, prefix: &str) {
        if self.server.is_none() {
            let _ = std::fs::remove_dir_all(self.folder.path().join(prefix));
            return;
        }
        for key in self.objects(prefix) {
            self.delete(prefix, &key);
        }
    }
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn names(store: &dyn Store) -> Vec<String> {
    let pages: Vec<_> = store.list_shards().try_collect().await.expect("list");
    let shards = pages.into_iter().flat_map(|page| page.shards);
    shards.map(|shard| shard.key).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Checks that two outputs hold the same shards, without printing them.
#[track_caller]
pub fn assert_same_bytes(left: &Shards, right: &Shards) {
    let names = |shards: &Shards| shards.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right));
    let different = left
        .iter()
        .filter(|(name, (_, bytes))| right.get(*name).is_none_or(|(_, other)| other != bytes));
    let different: Vec<&String> = different.map(|(name, _)| name).collect();
    assert!(different.is_empty(), "{different:?} have other bytes");
}
