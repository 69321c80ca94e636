//! The HTTP client below the SDK. The server may be anybody's: what it answers ends, and it is not
//! at an address that [`crate::address`] objects to.

use std::sync::OnceLock;

use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::dns::{DnsFuture, ResolveDns, ResolveDnsError};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use http_body_util::Limited;

use crate::address::{literal, objection};
use crate::open::Peers;

/// Bytes of an answer that is read as a whole. A page of a listing, the largest of them, has a
/// thousand keys of 1,024 bytes, each of which may take three letters.
const LONGEST_ANSWER: usize = 16 << 20;

/// Bytes of an answer that says what went wrong.
const LONGEST_ERROR: usize = 256 << 10;

/// Words by which an address is refused, and known again among others'.
pub(super) const REFUSED_ADDRESS: &str = "no server that a SidecarJob names may be there";

/// HTTP clients, each with its connections and the certificates that it trusts, some mebibytes of
/// memory: who opens stores for many shares them. Each is made when it is first needed.
#[derive(Debug, Default)]
pub struct HttpClients {
    /// For whatever leads to credentials and a region.
    own: OnceLock<SharedHttpClient>,
    any: OnceLock<SharedHttpClient>,
    guarded: OnceLock<SharedHttpClient>,
}

impl HttpClients {
    /// The client for what the program's own environment names.
    pub(super) fn own(&self) -> SharedHttpClient {
        self.own.get_or_init(|| unbounded(Peers::Any)).clone()
    }

    /// The client for servers at the addresses of `peers`.
    pub(super) fn of(&self, peers: Peers) -> SharedHttpClient {
        let made = match peers {
            Peers::Any => &self.any,
            Peers::NotThisMachine => &self.guarded,
        };
        made.get_or_init(|| bounded(peers)).clone()
    }
}

/// A client for servers at the addresses of `peers`, whatever they answer.
fn unbounded(peers: Peers) -> SharedHttpClient {
    let builder =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::AwsLc));
    match peers {
        Peers::Any => builder.build_https(),
        Peers::NotThisMachine => builder.build_with_resolver(Guarded),
    }
}

fn bounded(peers: Peers) -> SharedHttpClient {
    let inner = unbounded(peers);
    SharedHttpClient::new(Bounded { inner, peers })
}

/// Gives out connectors whose answers end.
#[derive(Debug)]
struct Bounded {
    inner: SharedHttpClient,
    peers: Peers,
}

impl HttpClient for Bounded {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(BoundedConnector {
            inner: self.inner.http_connector(settings, components),
            peers: self.peers,
        })
    }
}

#[derive(Debug)]
struct BoundedConnector {
    inner: SharedHttpConnector,
    peers: Peers,
}

impl HttpConnector for BoundedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        // A host that is an address is dialled without a resolver.
        if self.peers == Peers::NotThisMachine
            && let Err(words) = check_host(request.uri())
        {
            return HttpConnectorFuture::ready(Err(ConnectorError::user(words.into())));
        }
        // The one sort of answer that is read piece by piece.
        let is_object = request.method() == "GET" && request.uri().contains("x-id=GetObject");
        let answer = self.inner.call(request);
        HttpConnectorFuture::new(async move {
            let answer = answer.await?;
            let limit = match answer.status().is_success() {
                true if is_object => return Ok(answer),
                true => LONGEST_ANSWER,
                false => LONGEST_ERROR,
            };
            Ok(answer.map(|body| SdkBody::from_body_1_x(Limited::new(body, limit))))
        })
    }
}

fn check_host(uri: &str) -> Result<(), String> {
    let uri: http::Uri = uri.parse().map_err(|error| format!("{uri}: {error}"))?;
    let host = uri.host().unwrap_or_default();
    match literal(host) {
        Some(address) => check(host, address),
        None => Ok(()),
    }
}

fn check(host: &str, address: std::net::IpAddr) -> Result<(), String> {
    match objection(address) {
        None => Ok(()),
        Some(kind) => Err(format!(
            "{host} is at {address}, which is {kind}: {REFUSED_ADDRESS}"
        )),
    }
}

/// Resolves names as the system does. It is asked each time a connection is made, so that a name
/// which leads elsewhere a moment later gains nothing.
#[derive(Clone, Debug)]
struct Guarded;

impl ResolveDns for Guarded {
    fn resolve_dns<'a>(&'a self, name: &'a str) -> DnsFuture<'a> {
        DnsFuture::new(async move {
            let found = tokio::net::lookup_host((name, 0)).await;
            let found = found.map_err(ResolveDnsError::new)?;
            let addresses = found.map(|address| {
                let address = address.ip();
                check(name, address).map(|()| address)
            });
            addresses
                .collect::<Result<_, _>>()
                .map_err(ResolveDnsError::new)
        })
    }
}
