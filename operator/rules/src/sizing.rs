//! How many workers, and how many shards a work item. All of it is arithmetic on plain numbers.
//!
//! ```text
//! target shards/s = target rows/h / rows of a shard / 3600
//! workers         = ceil(target shards/s / observed shards/s x observed workers)
//! ```
//!
//! `observed workers` are those that were at work at a time within the window, on average: each
//! item of a Job is another worker's, so that their names say nothing of how many there were. What
//! is wanted is compared with what was *asked for*: workers that are still on their way, or have
//! just begun, must make the next step neither larger nor smaller.

mod items;

pub use items::{
    Cost, FIRST_SHARDS_OF_AN_ITEM, ItemCosts, MOST_SHARDS_OF_AN_ITEM, least_shards_per_item,
    shards_per_item,
};

/// Most pods of all Jobs of an object at a time, which is also the most that a spec may ask for.
pub const MOST_WORKERS: u32 = 10_000;

/// Most items of a Job: finished pods stay until their Job goes, and its lists of indexes grow.
pub const MOST_ITEMS_OF_A_JOB: u32 = 5_000;

/// Changes within this share of the present number are not worth a step.
pub const DEAD_BAND: f64 = 0.15;

/// Shards that must have been finished in the window before its speed counts.
pub const LEAST_SAMPLES: u64 = 8;

/// Workers before any speed is known, where a target says that not all are needed.
pub const FIRST_WORKERS: u32 = 8;

/// Shards a second that a target asks for; `None` if the number of rows of a shard isn't known.
pub fn target_shards_per_second(target_rows_per_hour: u64, rows_per_shard: f64) -> Option<f64> {
    let shards = target_rows_per_hour as f64 / rows_per_shard / 3600.0;
    (rows_per_shard > 0.0 && shards.is_finite()).then_some(shards)
}

/// Workers that the formula asks for; `None` if nothing was measured.
pub fn wanted_workers(target: f64, observed: f64, observed_workers: f64) -> Option<u32> {
    let wanted = target / observed * observed_workers;
    let is_measured = observed > 0.0 && observed_workers > 0.0 && observed.is_finite();
    // A float that is too large becomes the largest integer.
    (is_measured && !wanted.is_nan()).then(|| (wanted.ceil() as u32).max(1))
}

/// What the number of workers is found from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inputs {
    /// Rows to finish in an hour; `None`: as many workers as there may be.
    pub target_rows_per_hour: Option<u64>,
    /// The same when the present number was found.
    pub target_before: Option<u64>,
    /// Rows of a shard, on average; 0 if not known.
    pub rows_per_shard: f64,
    /// Shards finished within the window.
    pub window_shards: u64,
    /// Length of the window in seconds; 0 if there is none.
    pub window_seconds: f64,
    /// Workers that were at work at a time within the window, on average.
    pub window_workers: f64,
    /// Shards a second of one worker, from the canary; `None` if not known.
    pub speed: Option<f64>,
    /// Workers asked for so far; `None` before the first.
    pub current: Option<u32>,
    /// `spec.throughput.maxWorkers`.
    pub max_workers: u32,
    /// Items that have not ended, and as many as the shards left make at most.
    pub items_left: u64,
    /// Workers that are not running yet.
    pub pending: u32,
    /// Whether the last change is so long ago that the window knows only what came after it.
    pub is_settled: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sizing {
    /// Shards a second that the target asks for.
    pub target_shards_per_second: Option<f64>,
    /// Shards a second that were measured.
    pub observed_shards_per_second: Option<f64>,
    /// Workers at that speed.
    pub observed_workers: Option<f64>,
    /// What the formula asks for.
    pub wanted: Option<u32>,
    /// Workers, after all limits.
    pub workers: u32,
    /// Which limit decided.
    pub limit: Option<Limit>,
}

/// Why the number of workers isn't what the formula says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Limit {
    /// `spec.throughput.maxWorkers`.
    MaxWorkers,
    /// There are no more items.
    ItemsLeft,
    /// What Jobs may have.
    JobApi,
    /// Too little was measured yet.
    WarmingUp,
    /// Workers are still on their way.
    PodsPending,
    /// The last step is too recent.
    OneStepAWindow,
    /// The difference is too small.
    DeadBand,
    /// No footer of a main shard could be read.
    RowsPerShardUnknown,
}

impl Limit {
    /// As the status has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::MaxWorkers => "maxWorkers",
            Self::ItemsLeft => "chunks left",
            Self::JobApi => "Job API",
            Self::WarmingUp => "warming up",
            Self::PodsPending => "pods pending",
            Self::OneStepAWindow => "one step a window",
            Self::DeadBand => "dead band",
            Self::RowsPerShardUnknown => "rows of a shard unknown",
        }
    }
}

/// The number of workers.
pub fn size(inputs: &Inputs) -> Sizing {
    let target = inputs
        .target_rows_per_hour
        .map(|rows| target_shards_per_second(rows, inputs.rows_per_shard));
    let mut sizing = Sizing {
        target_shards_per_second: target.flatten(),
        ..Sizing::default()
    };
    let is_measured = inputs.window_shards >= LEAST_SAMPLES
        && inputs.window_workers > 0.0
        && inputs.window_workers.is_finite()
        && inputs.window_seconds > 0.0;
    if is_measured {
        let observed = inputs.window_shards as f64 / inputs.window_seconds;
        sizing.observed_shards_per_second = observed.is_finite().then_some(observed);
        sizing.observed_workers = Some(inputs.window_workers);
    }
    let (workers, held) = match target {
        // All that there may be: the limits below decide.
        None => (MOST_WORKERS, None),
        Some(None) => (
            inputs.current.unwrap_or(FIRST_WORKERS),
            Some(Limit::RowsPerShardUnknown),
        ),
        Some(Some(target)) => {
            let measured = sizing
                .observed_shards_per_second
                .and_then(|observed| wanted_workers(target, observed, inputs.window_workers));
            sizing.wanted = measured;
            match inputs.current {
                None => {
                    let first = inputs
                        .speed
                        .and_then(|speed| wanted_workers(target, speed, 1.0));
                    sizing.wanted = first.or(measured);
                    match sizing.wanted {
                        Some(wanted) => (wanted, None),
                        None => (FIRST_WORKERS, Some(Limit::WarmingUp)),
                    }
                }
                Some(current) => step(inputs, current, measured),
            }
        }
    };
    let (limited, limit) = limit(inputs, workers);
    sizing.workers = limited;
    sizing.limit = limit.or(held);
    sizing
}

/// One step from the present number to the wanted one, or none.
fn step(inputs: &Inputs, current: u32, wanted: Option<u32>) -> (u32, Option<Limit>) {
    let Some(wanted) = wanted else {
        return (current, Some(Limit::WarmingUp));
    };
    if wanted == current {
        return (current, None);
    }
    // Where some find no place yet, more would find none either; fewer need none.
    if inputs.pending > 0 && wanted > current {
        return (current, Some(Limit::PodsPending));
    }
    if !inputs.is_settled && inputs.target_before == inputs.target_rows_per_hour {
        return (current, Some(Limit::OneStepAWindow));
    }
    let difference = f64::from(wanted) - f64::from(current);
    if difference.abs() <= DEAD_BAND * f64::from(current) {
        return (current, Some(Limit::DeadBand));
    }
    (wanted, None)
}

fn limit(inputs: &Inputs, workers: u32) -> (u32, Option<Limit>) {
    let items = u32::try_from(inputs.items_left).unwrap_or(u32::MAX);
    let limits = [
        (items, Limit::ItemsLeft),
        (inputs.max_workers, Limit::MaxWorkers),
        (MOST_WORKERS, Limit::JobApi),
    ];
    let (least, limit) = limits
        .into_iter()
        .min_by_key(|(most, _)| *most)
        .unwrap_or((workers, Limit::JobApi));
    if workers > least {
        (least, Some(limit))
    } else {
        (workers, None)
    }
}
