//! The client that all stores of a configuration share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, Credentials, IdentityCache, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, StalledStreamProtectionConfig,
};
use aws_types::SdkConfig;
use aws_types::service_config::ServiceConfigKey;
use tokio::sync::OnceCell;

use super::http::HttpClients;
use super::pace::Pacer;
use super::provided::Provided;
use crate::credentials::CredentialSource;
use crate::open::{ChecksumMode, StorageConfig};

/// A client, made when it is first needed, and the pace of each bucket.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) config: StorageConfig,
    provided: Option<Provided>,
    http: Arc<HttpClients>,
    client: OnceCell<Client>,
    pacers: Mutex<HashMap<String, Arc<Pacer>>>,
    /// Buckets that are known to keep the conditions of writes.
    proven: Mutex<HashSet<String>>,
}

impl Connection {
    pub(crate) fn new(
        config: &StorageConfig,
        source: Option<Arc<dyn CredentialSource>>,
        http: Arc<HttpClients>,
    ) -> Self {
        Self {
            config: config.clone(),
            provided: source.map(Provided::new),
            http,
            client: OnceCell::new(),
            pacers: Mutex::new(HashMap::new()),
            proven: Mutex::default(),
        }
    }

    pub(super) fn pacer(&self, bucket: &str) -> Arc<Pacer> {
        let mut pacers = self.pacers.lock().unwrap_or_else(PoisonError::into_inner);
        let pacer = pacers
            .entry(bucket.to_string())
            .or_insert_with(|| Pacer::new(self.config.max_in_flight));
        Arc::clone(pacer)
    }

    pub(super) fn proven(&self) -> MutexGuard<'_, HashSet<String>> {
        self.proven.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn client(&self) -> &Client {
        self.client
            .get_or_init(|| make_client(&self.config, self.provided.clone(), &self.http))
            .await
    }

    /// A request that was sent at `sent` was refused: whether there are other credentials than
    /// those that it was signed with, so that it is worth sending again.
    pub(super) async fn has_other_credentials(&self, sent: Instant) -> bool {
        match &self.provided {
            Some(provided) => provided.renew(sent).await,
            None => false,
        }
    }
}

async fn make_client(
    config: &StorageConfig,
    provided: Option<Provided>,
    http: &HttpClients,
) -> Client {
    let mut loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http.own());
    if let Some(region) = &config.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(provided) = provided {
        // It keeps them itself, since only then it can let go of them.
        loader = loader
            .credentials_provider(provided)
            .identity_cache(IdentityCache::no_cache());
    } else if let Some(key) = &config.access_key {
        let credentials = Credentials::new(&key.id, &key.secret, None, None, "access key");
        loader = loader.credentials_provider(credentials);
    }
    let shared = loader.load().await;
    let mut builder = Builder::from(&shared)
        // For the store alone: credentials come from where they are configured.
        .http_client(http.of(config.peers))
        .retry_config(RetryConfig::disabled())
        // Slow transfers are ours to judge, by `stall_timeout`.
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .timeout_config(
            TimeoutConfig::builder()
                .connect_timeout(config.connect_timeout)
                .build(),
        )
        // A range of an object has no checksum of its own, and some servers send the whole
        // object's with it.
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    if shared.region().is_none() {
        builder = builder.region(Region::new("us-east-1"));
    }
    if let Some(endpoint) = config.endpoint.clone().or_else(|| endpoint_of(&shared)) {
        builder = builder.endpoint_url(with_final_slash(&endpoint));
    }
    // Servers of one's own rarely have a host name for each bucket.
    let has_endpoint = config.endpoint.is_some()
        || shared.endpoint_url().is_some()
        || std::env::var_os("AWS_ENDPOINT_URL_S3").is_some_and(|url| !url.is_empty());
    builder = builder.force_path_style(config.path_style.unwrap_or(has_endpoint));
    builder = match config.request_checksum {
        None => builder,
        Some(ChecksumMode::WhenSupported) => {
            builder.request_checksum_calculation(RequestChecksumCalculation::WhenSupported)
        }
        Some(ChecksumMode::WhenRequired) => {
            builder.request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        }
    };
    Client::from_conf(builder.build())
}

/// The endpoint that variables or the profile name for S3, or for all services.
fn endpoint_of(shared: &SdkConfig) -> Option<String> {
    let of_s3 = shared.service_config().and_then(|config| {
        let key = ServiceConfigKey::builder()
            .service_id("s3")
            .env("AWS_ENDPOINT_URL")
            .profile("endpoint_url")
            .build();
        config.load_config(key.ok()?)
    });
    of_s3.or_else(|| shared.endpoint_url().map(str::to_owned))
}

/// The SDK puts the bucket's name right behind an endpoint's path: without a slash between them
/// it would ask for another bucket.
fn with_final_slash(endpoint: &str) -> String {
    let path = endpoint
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'));
    match path {
        Some((_, path))
            if !path.is_empty() && !path.ends_with('/') && !path.contains(['?', '#']) =>
        {
            format!("{endpoint}/")
        }
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_in_a_slash() {
        for (given, expected) in [
            ("https://host", "https://host"),
            ("https://host/", "https://host/"),
            ("https://host/storage/v1/s3", "https://host/storage/v1/s3/"),
            ("https://host/storage/v1/s3/", "https://host/storage/v1/s3/"),
            ("host/path", "host/path"),
        ] {
            assert_eq!(with_final_slash(given), expected);
        }
    }
}
