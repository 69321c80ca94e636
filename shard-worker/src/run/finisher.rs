//! What happens to one shard: it is loaded, and later built and published, each as a task of its
//! own.

use std::cell::RefCell;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use storage::state::fence::Fence;
use storage::state::plan::PlanLine;
use tokio::task::JoinHandle;

use crate::error::ShardError;
use crate::evaluate::Produced;
use crate::filters::reason::Reason;
use crate::filters::stage::{Computed, EXAMPLES, ImageStage};
use crate::job::Job;
use crate::lookup::Found;
use crate::provenance::ShardInputs;
use crate::run::batch::{found_for, guarded, guarded_future, image_budget};
use crate::run::passes::Passes;
use crate::run::publish::{payload, publish};
use crate::run::room::{Room, Taken};
use crate::run::stop::Stop;
use crate::run::tally::{Matches, ShardDone, ShardOutcome};
use crate::shard::{self, LoadedShard};
use crate::sidecar::{Sidecar, SidecarBuilder};
use crate::workers::{CpuClock, CpuQueue};

/// A loaded shard that waits for its pass.
pub type Waiting = (PlanLine, Arc<LoadedShard>);
/// A shard that was loaded with the room that it takes, or why it was not.
pub type Loaded = (PlanLine, Result<(Arc<LoadedShard>, Taken), ShardError>);
/// What a pass found for several shards; none if the values of one alone do not fit.
pub type SharedFound = Option<Arc<Vec<Found>>>;

/// A spawned task that ends with whoever waits for it.
///
/// A future in a buffered stream stands still while the stream is not polled, with all that it
/// holds: a turn on the CPU, a request's place. A task goes on and gives them back.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Starts the work.
    pub fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(result)) => Poll::Ready(result),
            // Only the end of the runtime cancels a task that is still waited for.
            Poll::Ready(Err(error)) if error.is_cancelled() => Poll::Pending,
            Poll::Ready(Err(error)) => std::panic::resume_unwind(error.into_panic()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Loads and finishes shards; cheap to clone.
#[derive(Debug, Clone)]
pub struct Finisher {
    job: Arc<Job>,
    passes: Arc<Passes>,
    memory: u64,
    fence: Fence,
    stop: Stop,
    cpu: CpuQueue,
    clock: Arc<CpuClock>,
    images: Arc<ImageStage>,
}

impl Finisher {
    /// For a run whose CPU work may take `threads` threads, and `memory` bytes.
    pub fn new(
        passes: Arc<Passes>,
        fence: Fence,
        stop: Stop,
        (job, threads, memory): (&Arc<Job>, usize, u64),
    ) -> Self {
        let room = image_budget(memory, job.has_lookups());
        let clock = Arc::<CpuClock>::default();
        let images = ImageStage::new(&job.filters, room, threads, clock.clone());
        if let Some(megapixels) = images.narrowed_megapixels() {
            tracing::warn!(
                "memory is enough for images of about {megapixels:.0} megapixels; larger ones count as too_large: raise --memory, or lower limits.maxPixels to have the same result everywhere"
            );
        }
        Self {
            images: Arc::new(images),
            job: job.clone(),
            passes,
            memory,
            fence,
            stop,
            cpu: CpuQueue::new(threads),
            clock,
        }
    }

    /// CPU time of loading and building so far.
    pub fn cpu_time(&self) -> Duration {
        self.clock.total()
    }

    /// Fetches a shard, once there is room for it, and decodes its keys.
    pub async fn load(self, mut line: PlanLine, room: Room) -> Loaded {
        let meta = storage::ObjectMeta {
            key: line.path.clone(),
            size: line.size,
            etag: line.etag.clone(),
        };
        let uri = format!("{}{}", self.job.main.uri(), line.path);
        let loaded = self.load_open(&uri, meta, &mut line.inputs, room).await;
        (line, loaded)
    }

    async fn load_open(
        &self,
        uri: &str,
        meta: storage::ObjectMeta,
        planned: &mut Option<String>,
        room: Room,
    ) -> Result<(Arc<LoadedShard>, Taken), ShardError> {
        let open = guarded_future(uri, shard::open(&self.job, meta)).await?;
        let found = open.input_versions(&self.job);
        if planned.is_some() && *planned != found {
            return Err(ShardError::InputChanged {
                uri: uri.to_owned(),
                reason: format!(
                    "what is beside it ({}) has changed since the run was planned; ask for another run: it makes anew what was made from other versions",
                    open.sibling_uris()
                ),
            });
        }
        *planned = found;
        open.check_rows(&self.job, self.memory)?;
        let taken = room.take(open.memory(&self.job)).await;
        let fetched = guarded_future(uri, open.fetch(&self.job)).await?;
        let job = self.job.clone();
        let loaded = self.on_cpu(uri, move || shard::load(&job, fetched)).await?;
        Ok((Arc::new(loaded), taken))
    }

    /// Builds and publishes the shard that was `number` in its pass.
    pub async fn finish(
        self,
        line: PlanLine,
        shard: Arc<LoadedShard>,
        number: usize,
        found: SharedFound,
    ) -> ShardOutcome {
        let result = self.publish(&line, shard, number, found).await;
        ShardOutcome { line, result }
    }

    async fn publish(
        &self,
        line: &PlanLine,
        shard: Arc<LoadedShard>,
        number: usize,
        found: SharedFound,
    ) -> Result<ShardDone, ShardError> {
        // What is begun is published; what only waits for its turn is left to the next run.
        if self.stop.is_requested() {
            return Err(ShardError::Stopped);
        }
        let digest = self.job.digest.clone();
        let uri = shard.files.main.uri.clone();
        let footer_sha256 = shard.files.main.footer_sha256.clone();
        let lookups = self.job.match_lookups();
        let Computed {
            columns: computed,
            mut errors,
        } = self
            .images
            .compute(&self.job, &shard.files.main, |work| self.on_cpu(&uri, work))
            .await?;
        // Where nothing is matched with anything, what counts is whether images can be judged.
        let unjudged = self
            .job
            .only_judges_images()
            .then(|| errors.values().map(|(rows, _)| rows).sum::<u64>());
        let inputs = ShardInputs::of(&self.job, &shard.files.siblings).to_json();
        let passes = self.passes.clone();
        let built = self.on_cpu(&uri, move || {
            let unfit = RefCell::default();
            let mut builder = SidecarBuilder::new(&shard)?;
            let mut matches = Matches::default();
            let mut add = |rows: Range<usize>, found: &[Found], number: usize| {
                matches.add(&shard, rows.len(), found, number, &lookups);
                let produced = Produced {
                    first_row: rows.start,
                    found: &found_for(found, number),
                    computed: &computed,
                    unfit: &unfit,
                };
                builder.add(rows, produced)
            };
            match &found {
                Some(found) => add(0..shard.files.main.num_rows(), found, number)?,
                None => passes.by_parts(&shard, |rows, found| add(rows, found, 0))?,
            }
            let Matches {
                mut matched,
                sources,
            } = matches;
            if let Some(unjudged) = unjudged {
                matched = (shard.files.main.num_rows() as u64).saturating_sub(unjudged);
            }
            let Sidecar {
                bytes,
                rows,
                counts,
            } = builder.finish(&digest, matched, inputs.as_deref())?;
            Ok((payload(bytes), rows, counts, matched, sources, unfit.take()))
        });
        let (payload, rows, columns, matched, sources, unfit) = built.await?;
        if unfit.rows().len() > 0 {
            let first = unfit.rows().take(EXAMPLES).map(u64::from).collect();
            errors.insert(Reason::DoesNotFit, (unfit.rows().len() as u64, first));
        }
        let output = publish(&self.job, &self.fence, line, payload).await?;
        Ok(ShardDone {
            rows,
            matched,
            columns,
            errors,
            sources,
            footer_sha256,
            output,
        })
    }

    /// Runs CPU work of a shard on one of the run's threads.
    async fn on_cpu<T: Send + 'static>(
        &self,
        uri: &str,
        work: impl FnOnce() -> Result<T, ShardError> + Send + 'static,
    ) -> Result<T, ShardError> {
        let (clock, name) = (self.clock.clone(), uri.to_owned());
        let work = move || clock.time(|| guarded(&name, work));
        self.cpu.run(work).await.unwrap_or_else(|| {
            Err(ShardError::Panic {
                uri: uri.to_owned(),
                message: "the thread that worked on it was aborted".to_owned(),
            })
        })
    }
}
