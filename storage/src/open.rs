//! Opening stores from URIs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::credentials::CredentialSource;
use crate::error::Result;
use crate::local::LocalStore;
use crate::s3::{Connection, HttpClients, S3Store};
use crate::store::{RequestCounts, Store};
use crate::uri::Location;

/// When requests carry checksums beside their signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChecksumMode {
    /// Always: what AWS wants.
    WhenSupported,
    /// Only where the operation demands one: for servers that refuse checksum trailers.
    WhenRequired,
}

/// An access key held by the program itself.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessKey {
    /// The key's id.
    pub id: String,
    /// The secret; never printed.
    pub secret: String,
}

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AccessKey({})", self.id)
    }
}

/// Where the servers of requests may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peers {
    /// Anywhere: who names the endpoint is who runs the program.
    Any,
    /// At no address that [`crate::address`] objects to, whatever their names resolve to at the
    /// moment of dialling: somebody else names the endpoint.
    NotThisMachine,
}

/// How to reach stores. Whatever is `None` comes from the usual AWS variables and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageConfig {
    /// URL of an S3-compatible server; default AWS, or `AWS_ENDPOINT_URL_S3` / `AWS_ENDPOINT_URL`.
    pub endpoint: Option<String>,
    /// Region; default `AWS_REGION`, the profile's, or the instance's.
    pub region: Option<String>,
    /// Bucket in the path rather than in the host name; default: where an endpoint is given.
    pub path_style: Option<bool>,
    /// Request checksums; default `AWS_REQUEST_CHECKSUM_CALCULATION`, or when supported.
    pub request_checksum: Option<ChecksumMode>,
    /// Access key; default the AWS chain (variables, profile, service account, instance), which
    /// is what manifests and the command line use. For programs that hold a key of their own.
    pub access_key: Option<AccessKey>,
    /// Where the server may be.
    pub peers: Peers,
    /// For how long one call is tried again (throttling, broken connections).
    pub retry_budget: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// Longest wait for the first byte of an answer.
    pub first_byte_timeout: Duration,
    /// Longest wait for the next bytes of a body.
    pub stall_timeout: Duration,
    /// Requests in flight to one bucket, at most; fewer when it asks to slow down.
    pub max_in_flight: usize,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            path_style: None,
            request_checksum: None,
            access_key: None,
            peers: Peers::Any,
            retry_budget: Duration::from_secs(180),
            connect_timeout: Duration::from_secs(5),
            first_byte_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(20),
            max_in_flight: 256,
        }
    }
}

/// The variable that asks for buckets in the path, or not: the usual AWS variables have none.
pub const PATH_STYLE_VARIABLE: &str = "SIDECARJOB_S3_PATH_STYLE";

impl StorageConfig {
    /// What the variables that `get` looks up say explicitly: those of the AWS tools, and
    /// [`PATH_STYLE_VARIABLE`]. Credentials are left to the AWS chain.
    ///
    /// # Errors
    /// If a variable has a value that isn't known; the text names it.
    pub fn from_variables(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let set = |name: &str| get(name).filter(|value| !value.is_empty());
        let path_style = match set(PATH_STYLE_VARIABLE).as_deref() {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(other) => {
                return Err(format!(
                    "{PATH_STYLE_VARIABLE} is {other:?}: expected true or false"
                ));
            }
        };
        let checksum_variable = "AWS_REQUEST_CHECKSUM_CALCULATION";
        let request_checksum = match set(checksum_variable)
            .map(|text| text.to_ascii_lowercase())
            .as_deref()
        {
            None => None,
            Some("when_supported") => Some(ChecksumMode::WhenSupported),
            Some("when_required") => Some(ChecksumMode::WhenRequired),
            Some(other) => {
                return Err(format!(
                    "{checksum_variable} is {other:?}: expected when_supported or when_required"
                ));
            }
        };
        Ok(Self {
            endpoint: set("AWS_ENDPOINT_URL_S3").or_else(|| set("AWS_ENDPOINT_URL")),
            region: set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")),
            path_style,
            request_checksum,
            ..Self::default()
        })
    }
}

/// Opens stores, one for each prefix, and counts what all of them request.
#[derive(Debug)]
pub struct Stores {
    config: StorageConfig,
    connection: Arc<Connection>,
    opened: Mutex<HashMap<String, Arc<dyn Store>>>,
}

impl Stores {
    /// Nothing is read or connected before a store is used.
    pub fn new(config: &StorageConfig) -> Self {
        Self::connected(config, None, Arc::default())
    }

    /// Stores that are reached with the credentials of `source`; `config.access_key` and the
    /// AWS chain are not looked at.
    pub fn with_credentials(config: &StorageConfig, source: Arc<dyn CredentialSource>) -> Self {
        Self::connected(config, Some(source), Arc::default())
    }

    /// Stores that share HTTP clients with others; without a source as [`Stores::new`].
    pub fn sharing(
        config: &StorageConfig,
        source: Option<Arc<dyn CredentialSource>>,
        http: &Arc<HttpClients>,
    ) -> Self {
        Self::connected(config, source, Arc::clone(http))
    }

    fn connected(
        config: &StorageConfig,
        source: Option<Arc<dyn CredentialSource>>,
        http: Arc<HttpClients>,
    ) -> Self {
        Self {
            config: config.clone(),
            connection: Arc::new(Connection::new(config, source, http)),
            opened: Mutex::new(HashMap::new()),
        }
    }

    /// How stores are reached.
    pub fn config(&self) -> &StorageConfig {
        &self.config
    }

    /// The store rooted at the prefix `uri`; the same one each time.
    ///
    /// # Errors
    /// `Error::Invalid` if the URI is malformed. Whether the prefix can be reached shows at the
    /// first request.
    pub fn open(&self, uri: &str) -> Result<Arc<dyn Store>> {
        self.open_location(&Location::parse(uri)?)
    }

    /// The store and the key of the one object at `uri`.
    ///
    /// # Errors
    /// `Error::Invalid` if the URI is malformed or names a folder.
    pub fn open_parent(&self, uri: &str) -> Result<(Arc<dyn Store>, String)> {
        let (parent, key) = Location::parse_object(uri)?;
        Ok((self.open_location(&parent)?, key))
    }

    /// Requests of all stores opened so far.
    pub fn requests(&self) -> RequestCounts {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.values().map(|store| store.requests()).sum()
    }

    fn open_location(&self, location: &Location) -> Result<Arc<dyn Store>> {
        let uri = location.to_prefix_uri();
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(&uri) {
            return Ok(Arc::clone(store));
        }
        let store: Arc<dyn Store> = match location {
            Location::Local { path } => Arc::new(LocalStore::new(&uri, path)),
            Location::S3 { bucket, key } => {
                let connection = Arc::clone(&self.connection);
                Arc::new(S3Store::new(&uri, bucket, key, connection))
            }
        };
        opened.insert(uri, Arc::clone(&store));
        Ok(store)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)]) -> Result<StorageConfig, String> {
        StorageConfig::from_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_say_how_stores_are_reached() {
        assert_eq!(from(&[]), Ok(StorageConfig::default()));
        assert_eq!(from(&[("AWS_REGION", "")]), Ok(StorageConfig::default()));
        let config = from(&[
            ("AWS_ENDPOINT_URL_S3", "http://s3:7070"),
            ("AWS_ENDPOINT_URL", "http://other"),
            ("AWS_REGION", "eu-west-1"),
            ("SIDECARJOB_S3_PATH_STYLE", "false"),
            ("AWS_REQUEST_CHECKSUM_CALCULATION", "WHEN_REQUIRED"),
        ]);
        let expected = StorageConfig {
            endpoint: Some("http://s3:7070".to_owned()),
            region: Some("eu-west-1".to_owned()),
            path_style: Some(false),
            request_checksum: Some(ChecksumMode::WhenRequired),
            ..StorageConfig::default()
        };
        assert_eq!(config, Ok(expected));
        for (name, value) in [
            ("SIDECARJOB_S3_PATH_STYLE", "yes"),
            ("AWS_REQUEST_CHECKSUM_CALCULATION", "sometimes"),
        ] {
            let error = from(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
