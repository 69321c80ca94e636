//! All images of a shard, judged: batch after batch on the run's threads, while the next ranges
//! of the file are read.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::concat;
use crds::{ComputeFilters, FilterName};
use futures::StreamExt;
use tokio::sync::Semaphore;

use crate::error::ShardError;
use crate::evaluate::take_present;
use crate::filters::column::{self, Batch, ByteBudget, ImageColumn, NO_IMAGE};
use crate::filters::judge::{Judge, Judged, Scratch};
use crate::filters::reason::Reason;
use crate::filters::table;
use crate::job::Job;
use crate::parquet_file::ParquetFile;
use crate::run::finisher::Task;
use crate::workers::CpuClock;

/// Rows that are named for each reason.
pub const EXAMPLES: usize = 10;
/// Share of the memory for images that is for encoded ones.
const ENCODED_SHARE: u64 = 8;

/// Rows without values, by reason: how many, and the first of them.
pub type RowErrors = BTreeMap<Reason, (u64, Vec<u64>)>;

/// Columns of a shard.
#[derive(Debug, Default)]
pub struct Computed {
    /// For each step, the columns of its filters in their order, then that of reasons.
    pub columns: Vec<Vec<ArrayRef>>,
    /// Rows that a filter could not judge.
    pub errors: RowErrors,
}

/// Judges images for all shards of a run.
#[derive(Debug)]
pub struct ImageStage {
    steps: Vec<Step>,
    budget: ByteBudget,
    clock: Arc<CpuClock>,
    /// Shards whose images are read at once.
    places: Semaphore,
    in_flight: usize,
    scratches: Arc<Mutex<Vec<Scratch>>>,
}

#[derive(Debug, Clone)]
struct Step {
    filters: Vec<FilterName>,
    judge: Arc<Judge>,
}

/// A batch's columns and reasons.
type Judgement = Result<(Vec<ArrayRef>, Vec<Option<Reason>>), ShardError>;

impl ImageStage {
    /// For `threads` threads that may hold `memory` bytes for images; the time of reading them
    /// is added to `clock`.
    pub fn new(
        specs: &[ComputeFilters],
        memory: u64,
        threads: usize,
        clock: Arc<CpuClock>,
    ) -> Self {
        let encoded = memory / ENCODED_SHARE;
        let decoded = memory - encoded;
        let steps = specs.iter().map(|spec| Step {
            filters: spec.filters.clone(),
            judge: Arc::new(Judge::new(spec, decoded, encoded, threads)),
        });
        Self {
            steps: steps.collect(),
            budget: ByteBudget::new(encoded),
            clock,
            places: Semaphore::new(threads + 1),
            in_flight: 2 * threads,
            scratches: Arc::default(),
        }
    }

    /// Megapixels of the largest JPEG, baseline and in three colours, that there is memory for,
    /// if that is less than the manifest allows.
    pub fn narrowed_megapixels(&self) -> Option<f64> {
        let narrowed = self.steps.iter().filter_map(|step| {
            let limits = step.judge.limits();
            let room = limits.memory / BASELINE_BYTES_PER_PIXEL;
            (room < limits.pixels).then_some(room as f64 / 1e6)
        });
        narrowed.reduce(f64::min)
    }

    /// Judges the images of a shard. `on_cpu` runs work on one of the run's threads.
    pub async fn compute<F>(
        &self,
        job: &Job,
        main: &ParquetFile,
        on_cpu: impl Fn(Box<dyn FnOnce() -> Judgement + Send>) -> F,
    ) -> Result<Computed, ShardError>
    where
        F: Future<Output = Judgement>,
    {
        let mut computed = Computed::default();
        if self.steps.is_empty() {
            return Ok(computed);
        }
        let Ok(_place) = self.places.acquire().await else {
            return Err(ShardError::Stopped);
        };
        let name = job.image.as_deref().unwrap_or_default();
        for step in &self.steps {
            // One byte more tells that an image is larger than it may be.
            let keep = usize::try_from(step.judge.limits().bytes).unwrap_or(usize::MAX);
            let found = ImageColumn::find(main, name, keep.saturating_add(1))?;
            let (mut batches, reading) = column::open(
                found,
                job.main.clone(),
                self.budget.clone(),
                self.clock.clone(),
            );
            let reading = Task::spawn(reading);
            let batches = futures::stream::poll_fn(move |context| batches.poll_recv(context));
            let mut judged = batches
                .map(|batch| on_cpu(Box::new(self.work(step, batch, &main.uri))))
                .buffered(self.in_flight);
            let mut pieces: Vec<Vec<ArrayRef>> = vec![Vec::new(); step.filters.len() + 1];
            let mut reasons = Vec::new();
            while let Some(judgement) = judged.next().await {
                let (columns, of_batch) = judgement?;
                for (pieces, column) in pieces.iter_mut().zip(columns) {
                    pieces.push(column);
                }
                reasons.extend(of_batch);
            }
            let rows = reading.await?;
            count(&rows, &reasons, &mut computed.errors);
            let columns = assemble(step, &pieces, &rows);
            computed
                .columns
                .push(columns.map_err(|error| ShardError::malformed(&main.uri, error))?);
        }
        Ok(computed)
    }

    fn work(
        &self,
        step: &Step,
        batch: Batch,
        uri: &str,
    ) -> impl FnOnce() -> Judgement + Send + use<> {
        let (step, scratches, uri) = (step.clone(), self.scratches.clone(), uri.to_owned());
        move || {
            let pool = || scratches.lock().unwrap_or_else(PoisonError::into_inner);
            let mut scratch = pool().pop().unwrap_or_default();
            let images = batch.images.iter();
            let judged: Vec<Judged> = images
                .map(|image| step.judge.judge(Some(image), &mut scratch))
                .collect();
            pool().push(scratch);
            drop(batch);
            let columns = columns(&step.filters, &judged);
            let columns = columns.map_err(|error| ShardError::malformed(&uri, error))?;
            Ok((columns, judged.iter().map(|judged| judged.reason).collect()))
        }
    }
}

/// Bytes that a pixel of a baseline JPEG takes.
const BASELINE_BYTES_PER_PIXEL: u64 = 10;

fn columns(
    filters: &[FilterName],
    judged: &[Judged],
) -> Result<Vec<ArrayRef>, arrow::error::ArrowError> {
    let mut columns = filters
        .iter()
        .map(|filter| table::column(*filter, judged))
        .collect::<Result<Vec<_>, _>>()?;
    columns.push(table::errors(judged));
    Ok(columns)
}

/// Brings what was said of images into the order of rows.
fn assemble(step: &Step, pieces: &[Vec<ArrayRef>], rows: &[u32]) -> Result<Vec<ArrayRef>, String> {
    let images = rows
        .iter()
        .map(|image| (*image != NO_IMAGE).then_some(*image));
    let images = UInt32Array::from_iter(images);
    // A row without an image says why, too.
    let nothing = Judged {
        reason: Some(Reason::Empty),
        ..Judged::default()
    };
    let nothing = columns(&step.filters, &[nothing]).map_err(|error| error.to_string())?;
    let known: usize = pieces[0].iter().map(|piece| piece.len()).sum();
    let indices: UInt32Array = images
        .iter()
        .map(|image| Some(image.unwrap_or(known as u32)))
        .collect();
    let columns = pieces.iter().zip(&nothing).map(|(pieces, nothing)| {
        let all: Vec<&dyn Array> = pieces
            .iter()
            .chain(std::iter::once(nothing))
            .map(AsRef::as_ref)
            .collect();
        let all = concat(&all).map_err(|error| error.to_string())?;
        take_present(&all, &indices)
    });
    columns.collect()
}

fn count(rows: &[u32], reasons: &[Option<Reason>], errors: &mut RowErrors) {
    for (row, image) in rows.iter().enumerate() {
        let reason = match *image {
            NO_IMAGE => Some(Reason::Empty),
            image => reasons[image as usize],
        };
        if let Some(reason) = reason {
            let (count, first) = errors.entry(reason).or_default();
            *count += 1;
            if first.len() < EXAMPLES {
                first.push(row as u64);
            }
        }
    }
}
