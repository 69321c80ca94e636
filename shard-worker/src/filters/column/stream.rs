//! Ranges of the file are fetched while those before them are decompressed, and images are
//! handed on in batches of bounded bytes.

use std::io::{self, Read};
use std::sync::Arc;
use std::thread;

use bytes::{Buf, Bytes};
use parquet::basic::Type as PhysicalType;
use storage::Store;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::error::ShardError;
use crate::filters::column::chunk::{self, ChunkShape, Sink};
use crate::parquet_file::{ParquetFile, chunk_range};
use crate::run::batch::guarded;
use crate::workers::CpuClock;

/// Bytes fetched by one request.
const RANGE: u64 = 4 << 20;
/// Bytes after which a batch is full.
const BATCH: usize = 1 << 20;
/// Images after which a batch is full.
const MOST_IMAGES: usize = 64;
/// What a permit of the budget stands for.
const PERMIT: u64 = 1 << 10;

/// Bytes that batches of all shards may hold together.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    permits: Arc<Semaphore>,
    all: u32,
}

impl ByteBudget {
    /// A budget of so many bytes.
    pub fn new(bytes: u64) -> Self {
        let all = (bytes / PERMIT).clamp(1, u64::from(u32::MAX >> 4)) as u32;
        Self {
            permits: Arc::new(Semaphore::new(all as usize)),
            all,
        }
    }

    /// Waits for a share; what exceeds the budget takes all of it. `None` at the end of the run.
    fn take(&self, bytes: usize, runtime: &Handle) -> Option<OwnedSemaphorePermit> {
        let wanted = (bytes as u64)
            .div_ceil(PERMIT)
            .clamp(1, u64::from(self.all)) as u32;
        let waiting = self.permits.clone().acquire_many_owned(wanted);
        runtime.block_on(waiting).ok()
    }
}

/// Images in the order of the file, with their share of the budget.
#[derive(Debug)]
pub struct Batch {
    /// Encoded images.
    pub images: Vec<Vec<u8>>,
    /// Given back when the images are judged.
    pub permit: OwnedSemaphorePermit,
}

/// For each row the number of its image, or [`NO_IMAGE`](super::NO_IMAGE).
pub type Rows = Vec<u32>;

/// The place of the images in a shard's main file.
#[derive(Debug, Clone)]
pub struct ImageColumn {
    uri: String,
    key: String,
    etag: storage::ETag,
    chunks: Vec<(u64, ChunkShape)>,
    rows: usize,
}

impl ImageColumn {
    /// Finds the images: a column of bytes, or a struct with a field `bytes`, as some tools
    /// write them. Of an image no more than `keep` bytes will be kept.
    pub fn find(main: &ParquetFile, name: &str, keep: usize) -> Result<Self, ShardError> {
        let Some(root) = main.root(name) else {
            return Err(ShardError::schema(
                &main.uri,
                format!(
                    "no image column {name:?}; its columns are {}",
                    main.column_names()
                ),
            ));
        };
        let schema = main.metadata.file_metadata().schema_descr();
        let is_bytes = |leaf: &usize| {
            let column = schema.column(*leaf);
            column.physical_type() == PhysicalType::BYTE_ARRAY && column.max_rep_level() == 0
        };
        let is_named = |leaf: &usize| {
            let path = schema.column(*leaf).path().parts().to_vec();
            path.len() == 1 || path.len() == 2 && path[1] == "bytes"
        };
        let leaf = main.leaves_of(root).filter(is_bytes).find(is_named);
        let leaf = leaf.ok_or_else(|| {
            ShardError::schema(
                &main.uri,
                format!("image column {name:?} holds no bytes; expected binary, or a struct with a field \"bytes\""),
            )
        })?;
        main.check_plain(leaf)?;
        let present_level = schema.column(leaf).max_def_level();
        let chunks = main.groups().filter_map(|(group, rows)| {
            let chunk = main.metadata.row_group(group).column(leaf);
            let range = chunk_range(chunk, main.meta.size)?;
            let shape = ChunkShape {
                bytes: range.end - range.start,
                rows,
                codec: chunk.compression(),
                present_level,
                keep,
            };
            Some((range.start, shape))
        });
        Ok(Self {
            uri: main.uri.clone(),
            key: main.meta.key.clone(),
            etag: main.meta.etag.clone(),
            chunks: chunks.collect(),
            rows: main.num_rows(),
        })
    }
}

/// Starts reading: batches of images, and in the end the rows. Both stop when the receiver is
/// dropped. The time that reading takes is added to `clock`.
pub fn open(
    column: ImageColumn,
    store: Arc<dyn Store>,
    budget: ByteBudget,
    clock: Arc<CpuClock>,
) -> (
    mpsc::Receiver<Batch>,
    impl Future<Output = Result<Rows, ShardError>> + Send + 'static,
) {
    let (range_sender, ranges) = mpsc::channel(1);
    let (batch_sender, batches) = mpsc::channel(1);
    let fetching = fetch(column.clone(), store, range_sender);
    let reading = async move {
        let uri = column.uri.clone();
        let (done, read) = oneshot::channel();
        let runtime = Handle::current();
        // A thread of its own: it mostly waits, and would keep one of the few blocking threads
        // from computing.
        let reader = move || {
            let source = Ranges {
                ranges,
                current: Bytes::new(),
                taken: 0,
            };
            let reading = || self::read(&column, source, batch_sender, budget, &runtime);
            let _ = done.send(clock.time(|| guarded(&column.uri, reading)));
        };
        let spawned = thread::Builder::new()
            .name("images".to_owned())
            .spawn(reader);
        spawned.map_err(|error| ShardError::malformed(&uri, format!("no thread: {error}")))?;
        let (fetched, read) = tokio::join!(fetching, read);
        // What cannot be fetched cannot be read either: the cause counts.
        fetched?;
        read.unwrap_or(Err(ShardError::Stopped))
    };
    (batches, reading)
}

async fn fetch(
    column: ImageColumn,
    store: Arc<dyn Store>,
    ranges: mpsc::Sender<Bytes>,
) -> Result<(), ShardError> {
    for (start, shape) in &column.chunks {
        let end = start + shape.bytes;
        for from in (*start..end).step_by(RANGE as usize) {
            let range = from..end.min(from + RANGE);
            let read = store
                .read_ranges(
                    &column.key,
                    std::slice::from_ref(&range),
                    Some(&column.etag),
                )
                .await?;
            for bytes in read {
                if ranges.send(bytes).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn read(
    column: &ImageColumn,
    mut source: Ranges,
    batches: mpsc::Sender<Batch>,
    budget: ByteBudget,
    runtime: &Handle,
) -> Result<Rows, ShardError> {
    let mut rows = Vec::new();
    rows.try_reserve_exact(column.rows).map_err(|_| {
        let reason = format!("the footer's {} rows don't fit into memory", column.rows);
        ShardError::malformed(&column.uri, reason)
    })?;
    let mut batcher = Batcher {
        batches,
        budget,
        runtime,
        images: Vec::new(),
        bytes: 0,
        sent: 0,
        rows,
    };
    for (_, shape) in &column.chunks {
        let before = source.taken;
        let read = chunk::read(&mut source, shape, &mut batcher);
        read.and_then(|()| source.pass(before + shape.bytes))
            .map_err(|error| {
                ShardError::malformed(&column.uri, format!("its image column: {error}"))
            })?;
    }
    batcher
        .send()
        .map_err(|error| ShardError::malformed(&column.uri, error))?;
    Ok(batcher.rows)
}

/// Fetched ranges as one stream of bytes.
struct Ranges {
    ranges: mpsc::Receiver<Bytes>,
    current: Bytes,
    taken: u64,
}

impl Ranges {
    /// Passes over what is left before a position: pages after the last row.
    fn pass(&mut self, until: u64) -> io::Result<()> {
        let left = until.saturating_sub(self.taken);
        io::copy(&mut self.take(left), &mut io::sink()).map(|_| ())
    }
}

impl Read for Ranges {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.ranges.blocking_recv() {
                Some(bytes) => self.current = bytes,
                None => return Ok(0),
            }
        }
        let count = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..count]);
        self.taken += count as u64;
        Ok(count)
    }
}

/// Gathers images into batches.
struct Batcher<'a> {
    batches: mpsc::Sender<Batch>,
    budget: ByteBudget,
    runtime: &'a Handle,
    images: Vec<Vec<u8>>,
    bytes: usize,
    /// Images sent off.
    sent: u32,
    rows: Rows,
}

impl Batcher<'_> {
    fn send(&mut self) -> io::Result<()> {
        if self.images.is_empty() {
            return Ok(());
        }
        let gone = || io::Error::other("nobody waits for its images any more");
        let permit = self
            .budget
            .take(self.bytes, self.runtime)
            .ok_or_else(gone)?;
        self.sent += self.images.len() as u32;
        self.bytes = 0;
        let images = std::mem::take(&mut self.images);
        self.batches
            .blocking_send(Batch { images, permit })
            .map_err(|_| gone())
    }
}

impl Sink for Batcher<'_> {
    fn image(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        self.bytes += bytes.len();
        self.images.push(bytes);
        if self.bytes >= BATCH || self.images.len() >= MOST_IMAGES {
            self.send()?;
        }
        Ok(())
    }

    fn images(&self) -> u32 {
        self.sent + self.images.len() as u32
    }

    fn row(&mut self, image: u32) {
        self.rows.push(image);
    }
}
