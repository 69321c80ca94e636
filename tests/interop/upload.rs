//! Files on an S3 server.

use std::path::Path;

use harness::s3_server::S3Server;
use storage::{Payload, PutCondition, Stores};

use crate::bucket;

/// Copies what is in `folders` of `root` to the prefix `uri`, under the same relative paths.
pub fn upload(server: &S3Server, uri: &str, root: &Path, folders: &[&str]) {
    let mut folders: Vec<_> = folders.iter().map(|name| root.join(name)).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = Stores::new(&bucket::config(server)).open(uri).unwrap();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let key = path.strip_prefix(root).unwrap().to_str().unwrap();
                let payload = Payload::new(std::fs::read(&path).unwrap());
                store.put(key, payload, PutCondition::Create).await.unwrap();
            }
        }
    });
}
