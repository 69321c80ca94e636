//! All metrics, in the order of `docs/metrics.md`.

/// What a metric is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

impl Kind {
    /// The kind in a word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Its labels. Never a shard, a pod or a run: their number has no limit.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

const OBJECT: &[&str] = &["namespace", "name"];
const OBJECT_STATE: &[&str] = &["namespace", "name", "state"];

/// All metrics. Those of a SidecarJob have the labels `namespace` and `name`.
pub const CATALOGUE: &[Metric] = &[
    metric(
        "sidecarjob_shards",
        Kind::Gauge,
        OBJECT_STATE,
        "Shards by state: done (kept ones included), kept, failed, remaining",
    ),
    metric(
        "sidecarjob_shards_completed_total",
        Kind::Counter,
        OBJECT,
        "Shards that this run has finished well or found in place",
    ),
    metric(
        "sidecarjob_observed_shards_per_second",
        Kind::Gauge,
        OBJECT,
        "Shards finished in a second, over the last few minutes",
    ),
    metric(
        "sidecarjob_target_shards_per_second",
        Kind::Gauge,
        OBJECT,
        "Shards a second that the target in the spec asks for",
    ),
    metric(
        "sidecarjob_rows_total",
        Kind::Counter,
        OBJECT,
        "Rows of the shards that this run has finished",
    ),
    metric(
        "sidecarjob_row_errors_total",
        Kind::Counter,
        &["namespace", "name", "reason"],
        "Rows without a value for a fault of their own (undecodable, truncated, too_large, …); fewer if workers were replaced",
    ),
    metric(
        "sidecarjob_match_ratio",
        Kind::Gauge,
        OBJECT,
        "Share of looked-up rows whose key was found, from 0 to 1",
    ),
    metric(
        "sidecarjob_workers",
        Kind::Gauge,
        OBJECT_STATE,
        "Workers: desired, ready, pending",
    ),
    metric(
        "sidecarjob_last_progress_timestamp_seconds",
        Kind::Gauge,
        OBJECT,
        "When a shard was last finished",
    ),
    metric(
        "sidecarjob_condition",
        Kind::Gauge,
        &["namespace", "name", "type", "status"],
        "1 for the status that a condition has",
    ),
    metric(
        "sidecarjob_reconciles_total",
        Kind::Counter,
        &["result"],
        "Looks at objects: ok, again (what was seen was old), error",
    ),
    metric(
        "sidecarjob_reconcile_errors_total",
        Kind::Counter,
        &["reason"],
        "Looks at objects that failed, by reason",
    ),
    metric(
        "sidecarjob_reconcile_duration_seconds",
        Kind::Histogram,
        &[],
        "Time that a look at an object took",
    ),
    metric(
        "sidecarjob_reconcile_started_timestamp_seconds",
        Kind::Gauge,
        &[],
        "When the oldest look that is still going on began; 0 if none is",
    ),
    metric(
        "sidecarjob_queue_length",
        Kind::Gauge,
        &[],
        "Objects that wait to be looked at, most of them for their time",
    ),
    metric(
        "sidecarjob_api_writes_total",
        Kind::Counter,
        &["kind", "verb", "code"],
        "Writes to the API server; code is ok, an HTTP status, or none",
    ),
    metric(
        "sidecarjob_watch_last_event_timestamp_seconds",
        Kind::Gauge,
        &["kind", "namespace"],
        "When a watch last got an event or a bookmark",
    ),
    metric(
        "sidecarjob_watch_restarts_total",
        Kind::Counter,
        &["kind", "namespace"],
        "Watches that were begun again after an error or silence",
    ),
    metric(
        "sidecarjob_invalid_objects",
        Kind::Gauge,
        &["kind"],
        "Objects that can't be read and are passed over",
    ),
    metric(
        "sidecarjob_s3_requests_total",
        Kind::Counter,
        &["operation"],
        "Requests of the operator (not its workers) to object stores",
    ),
    metric(
        "sidecarjob_s3_bytes_total",
        Kind::Counter,
        &["direction"],
        "Bytes that the operator has read and written in object stores",
    ),
    metric(
        "sidecarjob_s3_retries_total",
        Kind::Counter,
        &[],
        "Requests to object stores that were sent again",
    ),
    metric(
        "sidecarjob_s3_slow_downs_total",
        Kind::Counter,
        &[],
        "Answers of object stores that asked to slow down",
    ),
    metric(
        "sidecarjob_runs",
        Kind::Gauge,
        &["state"],
        "Runs by state: live ones are worked on, of ended ones a summary is kept",
    ),
    metric(
        "sidecarjob_interval_seconds",
        Kind::Gauge,
        &["of"],
        "How often each live run has its reports read, its lock renewed and its numbers written; longer with many runs",
    ),
    metric(
        "sidecarjob_work_waiting",
        Kind::Gauge,
        &[],
        "Plans and seals that wait for others to end, so that memory stays bounded",
    ),
    metric(
        "sidecarjob_leader",
        Kind::Gauge,
        &[],
        "1 if this replica is the leader, 0 if it stands by",
    ),
    metric(
        "sidecarjob_operator_info",
        Kind::Gauge,
        &["version"],
        "1, for the version of the operator",
    ),
    metric(
        "process_resident_memory_bytes",
        Kind::Gauge,
        &[],
        "Memory of the process",
    ),
];

/// A metric by its name.
pub(super) fn find(name: &str) -> &'static Metric {
    let found = CATALOGUE.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| unreachable!("{name} is not in the catalogue"))
}
