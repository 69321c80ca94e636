//! How tests reach a real S3 server.

#![allow(dead_code, reason = "not every test binary needs all of it")]

use harness::s3_server::S3Server;
use storage::{AccessKey, StorageConfig};

/// A server with an empty bucket called `bucket`; none where it is not installed, which it says.
pub fn start() -> Option<(S3Server, StorageConfig)> {
    let server = S3Server::start()?;
    server.create_bucket("bucket");
    let config = config(&server);
    Some((server, config))
}

/// The connection to a server.
pub fn config(server: &S3Server) -> StorageConfig {
    StorageConfig {
        endpoint: Some(server.endpoint()),
        region: Some("us-east-1".to_owned()),
        access_key: Some(AccessKey {
            id: server.access_key().to_owned(),
            secret: server.secret_key().to_owned(),
        }),
        ..StorageConfig::default()
    }
}
