//! As whom the operator reads and writes the prefixes of a job: with the job's own identity,
//! so that no tenant can make the operator read or write what the tenant may not.
//!
//! 1. `spec.storage.credentialsSecretRef`: a Secret in the job's namespace.
//! 2. Else the role of the job's service account, if it is annotated with one: a token of the
//!    service account is exchanged for credentials of the role.
//! 3. Else the operator's own identity, but only for prefixes that the list with which the operator
//!    was started has for the job's namespace, and only at the operator's own S3 service.
//!
//! Paths of the operator's own file system are on that list, or refused.

mod choice;
mod endpoint;
mod secret;
mod service_account;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crds::{SidecarJob, StorageAccess};
use kube::{Client, ResourceExt};
use rules::model::{Refusal, frozen};
use rules::reasons;
use storage::{ChecksumMode, CredentialSource, HttpClients, Peers, StorageConfig, Stores};

use crate::api_words::api_words;
use crate::runner::RETRY_BUDGET;
use choice::{Choice, OwnRights, choose};
use endpoint::Endpoints;
use secret::SecretKey;
use service_account::{Role, RoleCredentials, find_role};

pub use choice::OwnPrefix;
pub use endpoint::AllowedEndpoint;

/// Who the operator is, and what it may do as such.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// Its own service account, as namespace and name: no worker may run as that.
    pub service_account: Option<(String, String)>,
    /// Prefixes for which it may use its own identity.
    pub own_prefixes: Vec<OwnPrefix>,
    /// S3 services beside AWS and its own that it may talk to.
    pub endpoints: Vec<AllowedEndpoint>,
}

/// Why a job's prefixes can't be reached.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Until a person changes something.
    #[error("{}", .0.message)]
    Refused(Refusal),
    /// The API server did not answer as it should; to be tried again.
    #[error("can't find out as whom to reach the prefixes: {}", api_words(.0))]
    Api(#[source] kube::Error),
    /// Credentials could not be had; to be tried again.
    #[error("{0}")]
    Credentials(String),
}

impl IdentityError {
    fn refused(reason: &'static str, message: String) -> Self {
        Self::Refused(Refusal { reason, message })
    }
}

/// What an identity is chosen from. While it stays the same, so do the stores of a job.
#[derive(Clone, Debug, PartialEq)]
struct Question {
    namespace: String,
    storage: StorageAccess,
    service_account: String,
    prefixes: Vec<String>,
}

/// The answer to a question.
#[derive(Clone, Debug)]
struct Answer {
    stores: Arc<Stores>,
    /// Whether they are reached with an identity of the job's own.
    is_jobs_own: bool,
}

/// The stores of each job, reached with its identity.
pub struct Identities {
    client: Client,
    service_account: Option<(String, String)>,
    own_prefixes: Vec<OwnPrefix>,
    endpoints: Endpoints,
    /// Of the stores of all jobs.
    http: Arc<HttpClients>,
    known: Mutex<HashMap<String, (Question, Answer)>>,
}

impl std::fmt::Debug for Identities {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Identities")
            .field("own_prefixes", &self.own_prefixes)
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

impl Identities {
    /// None are opened before they are asked for.
    pub fn new(client: Client, rights: Rights) -> Self {
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .into_iter()
            .find_map(|name| std::env::var(name).ok().filter(|url| !url.is_empty()));
        Self {
            client,
            service_account: rights.service_account,
            own_prefixes: rights.own_prefixes,
            endpoints: Endpoints::new(endpoint, rights.endpoints),
            http: Arc::default(),
            known: Mutex::default(),
        }
    }

    /// The stores through which the main prefix of `object`, and `output` if it is known, are
    /// read and written. The same ones as long as nothing about the object's identity changes;
    /// they renew their credentials by themselves.
    ///
    /// # Errors
    /// If there is no identity, or it can't be had now.
    pub async fn stores(
        &self,
        object: &SidecarJob,
        output: Option<&str>,
    ) -> Result<Arc<Stores>, IdentityError> {
        let spec = &object.spec;
        let mut prefixes = vec![crds::prefix::normalize(frozen::main_prefix(object))];
        prefixes.extend(output.map(crds::prefix::normalize));
        let question = Question {
            namespace: object.namespace().unwrap_or_default(),
            storage: frozen::storage(object),
            service_account: spec
                .worker
                .service_account_name
                .clone()
                .unwrap_or_else(|| "default".to_owned()),
            prefixes,
        };
        let uid = object.uid().unwrap_or_default();
        if let Some(stores) = self.find(&uid, &question) {
            return Ok(stores);
        }
        let answer = self.open(&uid, &question).await?;
        let stores = Arc::clone(&answer.stores);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(uid, (question, answer));
        Ok(stores)
    }

    /// Whether a job was last found to have an identity of its own.
    pub fn is_jobs_own(&self, uid: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(uid).is_some_and(|(_, answer)| answer.is_jobs_own)
    }

    /// Forgets the stores of a job: it needs them no more.
    pub fn forget(&self, uid: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(uid);
    }

    fn find(&self, uid: &str, question: &Question) -> Option<Arc<Stores>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (asked, answer) = known.get(uid)?;
        (asked == question).then(|| Arc::clone(&answer.stores))
    }

    async fn open(&self, uid: &str, question: &Question) -> Result<Answer, IdentityError> {
        let Question {
            namespace,
            storage,
            service_account,
            prefixes,
        } = question;
        self.check_account(namespace, service_account)?;
        let peers = self.endpoints.judge(storage.endpoint.as_deref());
        let config = storage_config(storage, peers.map_err(IdentityError::Refused)?);
        let role = match &storage.credentials_secret_ref {
            Some(_) => None,
            None => find_role(&self.client, namespace, service_account).await?,
        };
        let own = OwnRights {
            namespace,
            prefixes: &self.own_prefixes,
            endpoints: &self.endpoints,
        };
        let source: Arc<dyn CredentialSource> =
            match choose(storage, role, prefixes, service_account, &own) {
                Ok(Choice::Secret(name)) => {
                    Arc::new(SecretKey::new(self.client.clone(), namespace, &name))
                }
                Ok(Choice::Role(arn)) => Arc::new(RoleCredentials::new(
                    self.client.clone(),
                    Role {
                        namespace: namespace.clone(),
                        service_account: service_account.clone(),
                        arn,
                        region: storage.region.clone(),
                        session: format!("sidecarjob-{uid}"),
                    },
                )),
                Ok(Choice::Own) => {
                    return Ok(Answer {
                        stores: Arc::new(Stores::sharing(&config, None, &self.http)),
                        is_jobs_own: false,
                    });
                }
                Err(refusal) => return Err(IdentityError::Refused(refusal)),
            };
        self.check(storage, namespace, source.as_ref()).await?;
        Ok(Answer {
            stores: Arc::new(Stores::sharing(&config, Some(source), &self.http)),
            is_jobs_own: true,
        })
    }

    /// A worker that runs as the operator could be given the operator's role by the cloud.
    fn check_account(&self, namespace: &str, name: &str) -> Result<(), IdentityError> {
        let is_own = self
            .service_account
            .as_ref()
            .is_some_and(|(own_namespace, own)| own_namespace == namespace && own == name);
        if !is_own {
            return Ok(());
        }
        Err(IdentityError::refused(
            reasons::SERVICE_ACCOUNT_NOT_ALLOWED,
            format!(
                "the service account {namespace}/{name} is the operator's own, and no worker may \
                 run as that; set spec.worker.serviceAccountName to another, better in a namespace \
                 of its own"
            ),
        ))
    }

    /// What can be known to be wrong before anything is asked of the store.
    async fn check(
        &self,
        storage: &StorageAccess,
        namespace: &str,
        source: &dyn CredentialSource,
    ) -> Result<(), IdentityError> {
        if let Some(reference) = &storage.credentials_secret_ref {
            secret::check(&self.client, namespace, &reference.name).await
        } else {
            let given = source.credentials().await;
            given.map(|_| ()).map_err(IdentityError::Credentials)
        }
    }
}

/// How a job's stores are reached.
fn storage_config(storage: &StorageAccess, peers: Peers) -> StorageConfig {
    StorageConfig {
        endpoint: storage.endpoint.clone(),
        region: storage.region.clone(),
        path_style: storage.path_style,
        request_checksum: storage.request_checksums.map(|mode| match mode {
            crds::ChecksumMode::WhenSupported => ChecksumMode::WhenSupported,
            crds::ChecksumMode::WhenRequired => ChecksumMode::WhenRequired,
        }),
        peers,
        retry_budget: RETRY_BUDGET,
        ..StorageConfig::default()
    }
}
