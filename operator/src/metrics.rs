//! What the operator tells Prometheus. The list is [`CATALOGUE`]; `docs/metrics.md` has the same.
//!
//! Series about a SidecarJob are made from what is known of it at the moment of the scrape, so
//! they leave with it, and only the leader has them.

mod catalogue;
mod objects;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, Opts, Registry,
    TextEncoder,
};

pub use catalogue::{CATALOGUE, Kind, Metric};
pub use objects::ObjectNumbers;

use crate::leader::Leadership;
use crate::observe::Caches;
use crate::queue::Queue;
use crate::runner::Runners;
use crate::watch::{ObjectKey, WatchHealth};

/// Counters of the process.
#[derive(Debug)]
pub struct Metrics {
    reconciles: CounterVec,
    reconcile_errors: CounterVec,
    reconcile_duration: Histogram,
    api_writes: CounterVec,
    running: Mutex<HashMap<ObjectKey, (Instant, Timestamp)>>,
}

/// A metric of the catalogue can't be made: a fault of the catalogue.
#[derive(Debug, thiserror::Error)]
#[error("the metric {name} can't be made: {source}")]
pub struct MetricError {
    name: &'static str,
    source: prometheus::Error,
}

impl Metrics {
    /// All at zero.
    ///
    /// # Errors
    /// If the catalogue is faulty.
    pub fn new() -> Result<Self, MetricError> {
        let duration = catalogue::find("sidecarjob_reconcile_duration_seconds");
        let buckets = vec![0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];
        let options = HistogramOpts::new(duration.name, duration.help).buckets(buckets);
        let reconcile_duration = Histogram::with_opts(options).map_err(|source| MetricError {
            name: duration.name,
            source,
        })?;
        Ok(Self {
            reconciles: counters("sidecarjob_reconciles_total")?,
            reconcile_errors: counters("sidecarjob_reconcile_errors_total")?,
            reconcile_duration,
            api_writes: counters("sidecarjob_api_writes_total")?,
            running: Mutex::default(),
        })
    }

    /// A look at an object begins.
    pub fn begin_reconcile(&self, key: &ObjectKey) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.insert(key.clone(), (Instant::now(), Timestamp::now()));
    }

    /// It ended: `result` is `ok`, `again` or `error`.
    pub fn end_reconcile(&self, key: &ObjectKey, result: &str) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((began, _)) = running.remove(key) {
            self.reconcile_duration
                .observe(began.elapsed().as_secs_f64());
        }
        self.reconciles.with_label_values(&[result]).inc();
    }

    /// It failed, for a reason in a word.
    pub fn count_error(&self, reason: &str) {
        self.reconcile_errors.with_label_values(&[reason]).inc();
    }

    /// A write to the API server; `code` is `ok`, a status, or `none` if there was no answer.
    pub fn count_api_write(&self, kind: &str, verb: &str, code: &str) {
        self.api_writes.with_label_values(&[kind, verb, code]).inc();
    }

    /// For how long the longest look that is still going on has been.
    pub fn longest_running(&self) -> Duration {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let ages = running.values().map(|(began, _)| began.elapsed());
        ages.max().unwrap_or_default()
    }

    fn oldest_started(&self) -> f64 {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = running.values().map(|(_, at)| at.as_millisecond()).min();
        oldest.map_or(0.0, seconds)
    }
}

/// What a scrape looks at.
#[derive(Debug)]
pub struct Scrape {
    /// Counters of the process.
    pub metrics: Arc<Metrics>,
    /// What the watches have told.
    pub caches: Arc<Caches>,
    /// The background work.
    pub runners: Arc<Runners>,
    /// Whether this process is the leader.
    pub leadership: Leadership,
    /// The watches.
    pub watches: Vec<Arc<WatchHealth>>,
    /// Which objects have to be looked at.
    pub queue: Arc<Queue<ObjectKey>>,
    /// Shortest time between two writes of an object's numbers.
    pub live_status_seconds: i64,
}

/// The text of a scrape.
///
/// # Errors
/// If a metric can't be made or written.
pub fn render(scrape: &Scrape) -> Result<String, MetricError> {
    let registry = Registry::new();
    let metrics = &scrape.metrics;
    register(&registry, "reconciles", metrics.reconciles.clone())?;
    register(
        &registry,
        "reconcile errors",
        metrics.reconcile_errors.clone(),
    )?;
    register(
        &registry,
        "reconcile duration",
        metrics.reconcile_duration.clone(),
    )?;
    register(&registry, "API writes", metrics.api_writes.clone())?;
    let is_leader = scrape.leadership.is_leader();
    let started = metrics.oldest_started();
    gauge(
        &registry,
        "sidecarjob_reconcile_started_timestamp_seconds",
        started,
    )?;
    gauge(
        &registry,
        "sidecarjob_leader",
        f64::from(u8::from(is_leader)),
    )?;
    let waiting = scrape.queue.len();
    gauge(&registry, "sidecarjob_queue_length", waiting as f64)?;
    let info = gauges(&registry, "sidecarjob_operator_info")?;
    info.with_label_values(&[env!("CARGO_PKG_VERSION")])
        .set(1.0);
    if let Some(bytes) = resident_bytes() {
        gauge(&registry, "process_resident_memory_bytes", bytes as f64)?;
    }
    watches(&registry, &scrape.watches)?;
    invalid_objects(&registry, &scrape.caches)?;
    store_requests(&registry, &scrape.runners)?;
    budget(&registry, scrape)?;
    if is_leader {
        let known = scrape.caches.sidecar_jobs.all();
        let numbers = known.iter().map(|(key, object)| {
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            ObjectNumbers::new(key.clone(), object, scrape.runners.facts(uid).as_deref())
        });
        objects::export(&registry, numbers)?;
    }
    let mut text = Vec::new();
    let encoded = TextEncoder::new().encode(&registry.gather(), &mut text);
    encoded.map_err(|source| MetricError {
        name: "all",
        source,
    })?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn watches(registry: &Registry, watches: &[Arc<WatchHealth>]) -> Result<(), MetricError> {
    let last = gauges(registry, "sidecarjob_watch_last_event_timestamp_seconds")?;
    let restarts = register_counters(registry, "sidecarjob_watch_restarts_total")?;
    for watch in watches {
        let labels = [watch.kind, watch.namespace.as_deref().unwrap_or_default()];
        last.with_label_values(&labels)
            .set(seconds(watch.last_event_ms()));
        restarts
            .with_label_values(&labels)
            .inc_by(watch.restarts() as f64);
    }
    Ok(())
}

fn invalid_objects(registry: &Registry, caches: &Caches) -> Result<(), MetricError> {
    let invalid = gauges(registry, "sidecarjob_invalid_objects")?;
    for kind in ["SidecarJob", "Job", "Pod"] {
        invalid.with_label_values(&[kind]).set(0.0);
    }
    let known = caches
        .invalid
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    for (kind, _) in known.keys() {
        invalid.with_label_values(&[kind]).inc();
    }
    Ok(())
}

fn store_requests(registry: &Registry, runners: &Runners) -> Result<(), MetricError> {
    let counts = runners.requests();
    let requests = register_counters(registry, "sidecarjob_s3_requests_total")?;
    for (operation, count) in [
        ("list", counts.list),
        ("head", counts.head),
        ("get", counts.get),
        ("put", counts.put),
        ("delete", counts.delete),
    ] {
        requests
            .with_label_values(&[operation])
            .inc_by(count as f64);
    }
    let bytes = register_counters(registry, "sidecarjob_s3_bytes_total")?;
    bytes
        .with_label_values(&["read"])
        .inc_by(counts.bytes_read as f64);
    bytes
        .with_label_values(&["written"])
        .inc_by(counts.bytes_written as f64);
    for (name, count) in [
        ("sidecarjob_s3_retries_total", counts.retries),
        ("sidecarjob_s3_slow_downs_total", counts.slow_down),
    ] {
        let metric = catalogue::find(name);
        let counter = made(metric, Counter::new(metric.name, metric.help))?;
        counter.inc_by(count as f64);
        register(registry, metric.name, counter)?;
    }
    Ok(())
}

fn budget(registry: &Registry, scrape: &Scrape) -> Result<(), MetricError> {
    let runners = &scrape.runners;
    let budget = runners.budget();
    let runs = gauges(registry, "sidecarjob_runs")?;
    for (state, count) in [("live", budget.live()), ("ended", runners.ended())] {
        runs.with_label_values(&[state]).set(count as f64);
    }
    let (reports, lock_ttl) = runners.intervals();
    let status = budget.status_seconds(scrape.live_status_seconds) as f64;
    let intervals = gauges(registry, "sidecarjob_interval_seconds")?;
    for (of, seconds) in [
        ("reports", reports.as_secs_f64()),
        ("lock", lock_ttl.as_secs_f64() / 3.0),
        ("status", status),
    ] {
        intervals.with_label_values(&[of]).set(seconds);
    }
    gauge(registry, "sidecarjob_work_waiting", budget.waiting() as f64)
}

fn counters(name: &str) -> Result<CounterVec, MetricError> {
    let metric = catalogue::find(name);
    let options = Opts::new(metric.name, metric.help);
    made(metric, CounterVec::new(options, metric.labels))
}

fn register_counters(registry: &Registry, name: &str) -> Result<CounterVec, MetricError> {
    let counters = counters(name)?;
    register(registry, catalogue::find(name).name, counters.clone())?;
    Ok(counters)
}

fn gauges(registry: &Registry, name: &str) -> Result<GaugeVec, MetricError> {
    let metric = catalogue::find(name);
    let options = Opts::new(metric.name, metric.help);
    let gauges = made(metric, GaugeVec::new(options, metric.labels))?;
    register(registry, metric.name, gauges.clone())?;
    Ok(gauges)
}

fn gauge(registry: &Registry, name: &str, value: f64) -> Result<(), MetricError> {
    let metric = catalogue::find(name);
    let gauge = made(metric, Gauge::new(metric.name, metric.help))?;
    gauge.set(value);
    register(registry, metric.name, gauge)
}

fn made<T>(metric: &'static Metric, made: prometheus::Result<T>) -> Result<T, MetricError> {
    made.map_err(|source| MetricError {
        name: metric.name,
        source,
    })
}

fn register(
    registry: &Registry,
    name: &'static str,
    collector: impl Collector + 'static,
) -> Result<(), MetricError> {
    registry
        .register(Box::new(collector))
        .map_err(|source| MetricError { name, source })
}

fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}

/// Memory of this process, from `/proc/self/status` (see proc(5)), which counts in kibibytes.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}
