//! Live numbers change all the time: they are written now and then only, and never because only
//! time has passed. Everything else is written at once.

use std::time::Duration;

use crds::SidecarJobStatus;
use k8s_openapi::jiff::Timestamp;

use crate::model::Observed;

/// The status that is to be written, if it differs.
pub(super) struct Throttled {
    pub(super) status: SidecarJobStatus,
    pub(super) only_live_numbers: bool,
    /// When the numbers that were held back may be written.
    pub(super) wait: Option<Duration>,
}

pub(super) fn apply(
    observed: &Observed,
    now: Timestamp,
    before: &SidecarJobStatus,
    after: SidecarJobStatus,
) -> Throttled {
    let as_before = |wait| Throttled {
        status: before.clone(),
        only_live_numbers: false,
        wait,
    };
    if without_estimate(before) == without_estimate(&after) {
        return as_before(None);
    }
    if without_live_numbers(before) != without_live_numbers(&after) {
        return Throttled {
            status: after,
            only_live_numbers: false,
            wait: None,
        };
    }
    let interval = observed.settings.live_status_seconds.saturating_mul(1000);
    let next = observed
        .live_written_ms
        .map_or(i64::MIN, |written| written.saturating_add(interval));
    let left = next.saturating_sub(now.as_millisecond());
    if left > 0 {
        let wait = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        return as_before(Some(wait));
    }
    Throttled {
        status: after,
        only_live_numbers: true,
        wait: None,
    }
}

/// The estimate moves with the clock alone.
fn without_estimate(status: &SidecarJobStatus) -> SidecarJobStatus {
    let mut rest = status.clone();
    if let Some(rates) = &mut rest.rates {
        rates.estimated_end = None;
    }
    rest
}

fn without_live_numbers(status: &SidecarJobStatus) -> SidecarJobStatus {
    let mut rest = status.clone();
    rest.shards = None;
    rest.rows = None;
    rest.workers = None;
    rest.rates = None;
    rest.failures.clear();
    rest.message = None;
    for condition in &mut rest.conditions {
        condition.message.clear();
    }
    for batch in &mut rest.batches {
        batch.done = 0;
    }
    if let Some(sizing) = &mut rest.sizing {
        sizing.rows_per_shard = None;
        sizing.target_shards_per_second = None;
        sizing.observed_shards_per_second = None;
        sizing.observed_workers = None;
        sizing.wanted_workers = None;
        sizing.limited_by = None;
    }
    rest
}
