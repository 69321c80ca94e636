//! Progress while a run is on: counters that anyone may read, a bar on a terminal, a line every
//! ten seconds elsewhere.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::filters::reason::Reason;
use crate::run::planning::Planned;

/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Counters of a run.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    /// Shards to make.
    pub todo: AtomicU64,
    /// Shards published.
    pub done: AtomicU64,
    /// Shards failed.
    pub failed: AtomicU64,
    /// Shards kept.
    pub kept: AtomicU64,
    /// Rows published.
    pub rows: AtomicU64,
    /// Rows matched.
    pub matched: AtomicU64,
    /// Rows that filters could not judge, by reason.
    row_errors: [AtomicU64; Reason::ALL.len()],
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            todo: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            matched: AtomicU64::new(0),
            row_errors: Default::default(),
        }
    }
}

/// A reading of the counters.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// Seconds since the start.
    pub seconds: f64,
    /// Shards to make.
    pub todo: u64,
    /// Shards published.
    pub done: u64,
    /// Shards failed.
    pub failed: u64,
    /// Rows published.
    pub rows: u64,
    /// Rows matched.
    pub matched: u64,
    /// Rows that filters could not judge, by reason, of those that occurred.
    pub row_errors: Vec<(Reason, u64)>,
}

impl Reading {
    /// Shards a second.
    pub fn shards_per_second(&self) -> f64 {
        (self.done + self.failed) as f64 / self.seconds.max(1e-3)
    }

    /// Rows a second.
    pub fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.seconds.max(1e-3)
    }

    /// Share of rows that matched, in percent.
    pub fn match_percent(&self) -> f64 {
        if self.rows == 0 {
            0.0
        } else {
            100.0 * self.matched as f64 / self.rows as f64
        }
    }

    /// Rows that filters could not judge, in words; `None` if there are none.
    pub fn describe_row_errors(&self) -> Option<String> {
        let counts: Vec<String> = self
            .row_errors
            .iter()
            .map(|(reason, rows)| format!("{reason} {rows}"))
            .collect();
        (!counts.is_empty()).then(|| counts.join(", "))
    }

    /// Seconds until the end at the rate so far.
    pub fn eta_seconds(&self) -> Option<f64> {
        let finished = self.done + self.failed;
        let left = self.todo.saturating_sub(finished);
        (finished > 0).then(|| left as f64 / self.shards_per_second())
    }
}

impl Progress {
    /// Takes over what the plan says.
    pub fn planned(&self, planned: &Planned) {
        self.begin(planned.todo, planned.kept.shards);
    }

    /// There is this much to make, and this much is kept.
    pub fn begin(&self, todo: u64, kept: u64) {
        self.todo.store(todo, Ordering::Relaxed);
        self.kept.store(kept, Ordering::Relaxed);
    }

    /// A shard was published.
    pub fn shard_done(&self, rows: u64, matched: u64) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.matched.fetch_add(matched, Ordering::Relaxed);
    }

    /// Filters could not judge rows of a shard that was published.
    pub fn rows_failed(&self, reason: Reason, rows: u64) {
        self.row_errors[reason as usize].fetch_add(rows, Ordering::Relaxed);
    }

    /// A shard failed.
    pub fn shard_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Reads the counters.
    pub fn read(&self) -> Reading {
        Reading {
            seconds: self.started.elapsed().as_secs_f64(),
            todo: self.todo.load(Ordering::Relaxed),
            done: self.done.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            matched: self.matched.load(Ordering::Relaxed),
            row_errors: Reason::ALL
                .into_iter()
                .map(|reason| {
                    (
                        reason,
                        self.row_errors[reason as usize].load(Ordering::Relaxed),
                    )
                })
                .filter(|(_, rows)| *rows > 0)
                .collect(),
        }
    }

    /// Shows progress until the returned task is aborted.
    pub fn show(self: Arc<Self>, json: bool) -> tokio::task::JoinHandle<()> {
        if std::io::stderr().is_terminal() && !json {
            tokio::spawn(self.bar())
        } else {
            tokio::spawn(self.lines())
        }
    }

    async fn bar(self: Arc<Self>) {
        let display = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{bar:32} {pos}/{len} shards  {msg}") {
            display.set_style(style);
        }
        let mut tick = tokio::time::interval(Duration::from_millis(200));
        loop {
            tick.tick().await;
            let now = self.read();
            if now.todo == 0 {
                continue;
            }
            display.set_length(now.todo);
            display.set_position(now.done + now.failed);
            let eta = now
                .eta_seconds()
                .map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.0} s"));
            let errors = now.describe_row_errors();
            let errors = errors.map_or_else(String::new, |errors| format!("  no values: {errors}"));
            display.set_message(format!(
                "{:.1} shards/s  {:.0} rows/s  match {:.1} %  failed {}{errors}  ETA {eta}",
                now.shards_per_second(),
                now.rows_per_second(),
                now.match_percent(),
                now.failed
            ));
        }
    }

    async fn lines(self: Arc<Self>) {
        let mut tick = tokio::time::interval(LINE_EVERY);
        tick.tick().await;
        loop {
            tick.tick().await;
            let now = self.read();
            if now.todo == 0 {
                continue;
            }
            tracing::info!(
                shards = now.done,
                failed = now.failed,
                todo = now.todo,
                shards_per_second = round(now.shards_per_second()),
                rows_per_second = round(now.rows_per_second()),
                match_percent = round(now.match_percent()),
                eta_seconds = now.eta_seconds().map(round),
                row_errors = now.describe_row_errors(),
                "progress"
            );
        }
    }
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
