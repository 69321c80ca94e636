//! The operator's side: a planned run, its pods, and what they left.

use std::path::PathBuf;

use harness::dataset::{Shape, full_job};
use harness::run_files::{RunFiles, Wanted};
use serde_json::Value;
use storage::state::report::ChunkReport;
use storage::state::shard_lines::{ShardLine, ShardLines};

use crate::place::Place;
use crate::worker::{Ended, Worker};

/// What most tests work on.
pub const SHAPE: Shape = Shape {
    shards: 36,
    rows: 20,
    group_rows: 8,
    image_bytes: 100,
};

/// A planned run over the place's dataset, with the job of every operation.
pub struct Operator<'a> {
    pub place: &'a Place,
    pub files: RunFiles,
    output: String,
}

impl<'a> Operator<'a> {
    /// Plans a run whose output is this prefix.
    pub fn plan(place: &'a Place, output: &str) -> Self {
        Self::plan_job(
            place,
            output,
            &full_job(&place.root(), &place.uri(output)),
            Wanted::default(),
        )
    }

    /// Plans a run of another job.
    pub fn plan_job(place: &'a Place, output: &str, text: &str, wanted: Wanted) -> Self {
        let files = place.block_on(RunFiles::make(&place.stores(), text, wanted));
        Self {
            place,
            files: files.expect("a plan"),
            output: output.to_owned(),
        }
    }

    /// Writes the first attempt at batch 0.
    pub fn batch(&self, items: &[[u64; 2]]) {
        self.attempt(1, items);
    }

    /// Writes an attempt at batch 0.
    pub fn attempt(&self, attempt: u32, items: &[[u64; 2]]) {
        let written = self.place.block_on(self.files.batch(0, attempt, items));
        written.expect("a batch");
    }

    /// A pod of the first attempt at batch 0.
    pub fn pod(&self, index: u64) -> Worker {
        self.pod_of(0, 1, index)
    }

    /// A pod of an attempt at a batch.
    pub fn pod_of(&self, batch: u64, attempt: u32, index: u64) -> Worker {
        let worker = Worker::new(&["chunk"]).environment(&self.place.environment());
        let worker = self
            .files
            .arguments(batch, attempt, index)
            .iter()
            .fold(worker, |worker, argument| worker.argument(argument));
        worker
            .arguments("--threads 2 --memory 256MiB --termination-log")
            .argument(&self.termination_log().display().to_string())
    }

    fn termination_log(&self) -> PathBuf {
        self.place.path("termination-log")
    }

    /// The termination message that the last pod has left.
    pub fn message(&self) -> Value {
        let text = std::fs::read_to_string(self.termination_log()).expect("a message");
        assert!(text.len() <= 4096, "{}", text.len());
        assert!(!text.contains('\n'), "{text}");
        serde_json::from_str(&text).expect("JSON")
    }

    /// Runs a pod to its end.
    pub fn run(&self, index: u64, code: i32) -> Ended {
        self.pod(index).run().expect(code)
    }

    /// The report of the item that begins with a chunk.
    pub fn report(&self, first: u64) -> Option<ChunkReport> {
        let bytes = self
            .place
            .read(&self.output, &self.files.report_key(first))?;
        Some(serde_json::from_slice(&bytes).expect("a report"))
    }

    /// The lines of the item that begins with a chunk.
    pub fn lines(&self, first: u64) -> Vec<ShardLine> {
        let key = self.files.lines_key(first);
        let Some(bytes) = self.place.read(&self.output, &key) else {
            return Vec::new();
        };
        let (header, mut lines) = ShardLines::open(&key, bytes.into()).expect("lines");
        assert_eq!(header.run, self.files.run);
        std::iter::from_fn(|| lines.next_line().expect("a line")).collect()
    }

    /// Gives the lock up.
    pub fn release(&self) {
        let released = self.place.block_on(self.files.lock.release());
        released.expect("a release");
    }
}
