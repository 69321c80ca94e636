//! The operator's own little web server: `/healthz`, `/readyz` and `/metrics`.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use k8s_openapi::jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::metrics::{Scrape, render};

/// A watch that is silent for so long, or a look that takes so long, is not going to recover.
const STUCK_AFTER: Duration = Duration::from_secs(600);

/// Longest wait for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Connections at one time.
const CONNECTIONS: usize = 64;

/// What the server answers from.
#[derive(Debug)]
pub struct Probe {
    /// What a scrape looks at.
    pub scrape: Scrape,
    has_definition: AtomicBool,
}

impl Probe {
    /// The API server is not yet known to have SidecarJobs.
    pub fn new(scrape: Scrape) -> Self {
        Self {
            scrape,
            has_definition: AtomicBool::new(false),
        }
    }

    /// The API server has SidecarJobs.
    pub fn note_definition(&self) {
        self.has_definition.store(true, Ordering::Release);
    }

    /// Why the process should be ended and begun again; `Ok` if it lives.
    ///
    /// # Errors
    /// In words.
    pub fn health(&self) -> Result<String, String> {
        let now = Timestamp::now().as_millisecond();
        let limit = i64::try_from(STUCK_AFTER.as_millis()).unwrap_or(i64::MAX);
        for watch in &self.scrape.watches {
            let silent = now.saturating_sub(watch.last_event_ms());
            if watch.is_synced() && silent > limit {
                return Err(format!(
                    "the watch of {} has been silent for {} s",
                    watch.kind,
                    silent / 1000
                ));
            }
        }
        let longest = self.scrape.metrics.longest_running();
        if longest > STUCK_AFTER {
            return Err(format!(
                "a look at an object has been going on for {} s",
                longest.as_secs()
            ));
        }
        Ok("ok".to_owned())
    }

    /// Whether the process can do its work, as the leader or standing by.
    ///
    /// # Errors
    /// What is missing, in words.
    pub fn readiness(&self) -> Result<String, String> {
        if !self.has_definition.load(Ordering::Acquire) {
            return Err("the API server has no SidecarJobs yet: install the CRD".to_owned());
        }
        if let Some(watch) = self.scrape.watches.iter().find(|watch| !watch.is_synced()) {
            return Err(format!("{} are not listed yet", watch.kind));
        }
        let part = match self.scrape.leadership.is_leader() {
            true => "leader",
            false => "standing by",
        };
        Ok(part.to_owned())
    }
}

/// Serves until the process ends.
///
/// # Errors
/// If nothing can listen at `address`.
pub async fn serve(address: SocketAddr, probe: Arc<Probe>) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    tracing::info!(address = %listener.local_addr()?, "serving /healthz, /readyz and /metrics");
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&free).acquire_owned().await else {
            return Ok(());
        };
        let (connection, _) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "can't accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let probe = Arc::clone(&probe);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let probe = Arc::clone(&probe);
                async move { Ok::<_, Infallible>(answer(&request, &probe)) }
            });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .keep_alive(false)
                .serve_connection(TokioIo::new(connection), service)
                .await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection broke");
            }
            drop(permit);
        });
    }
}

fn answer(request: &Request<Incoming>, probe: &Probe) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "only GET");
    }
    match request.uri().path() {
        "/healthz" => verdict(probe.health()),
        "/readyz" => verdict(probe.readiness()),
        "/metrics" => match render(&probe.scrape) {
            Ok(text) => plain(StatusCode::OK, &text),
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        _ => plain(
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz and /metrics",
        ),
    }
}

fn verdict(verdict: Result<String, String>) -> Response<Full<Bytes>> {
    match verdict {
        Ok(words) => plain(StatusCode::OK, &words),
        Err(words) => plain(StatusCode::SERVICE_UNAVAILABLE, &words),
    }
}

fn plain(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(format!("{}\n", text.trim_end()))));
    *response.status_mut() = status;
    let text_type = hyper::header::HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, text_type);
    response
}
