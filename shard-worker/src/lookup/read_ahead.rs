//! Small column chunks of a side input, read many at a time.
//!
//! An index of small row groups has thousands of column chunks of a few kilobytes. Read one by
//! one, each costs a round trip during which nothing else happens. Chunks that are read one after
//! the other are bundled: one call to the store brings a bundle, and while a bundle is worked on
//! the next is under way.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use tokio::task::JoinHandle;

use crate::lookup::window::{RemoteObject, WindowReader, WindowedChunk};

/// Larger chunks, in bytes, are read window by window.
const LARGEST_BUNDLED: u64 = 1 << 20;
/// Bytes of a bundle.
const BUNDLE: u64 = 4 << 20;
/// Chunks of a bundle: each may be a request of its own.
const MOST_CHUNKS: usize = 256;

type Pieces = Result<Vec<Bytes>, storage::Error>;

/// A column chunk that will be read: file, row group and leaf.
pub type ChunkId = (usize, usize, usize);

/// What will be read, in the order in which it will.
#[derive(Debug)]
pub struct ReadAhead {
    places: HashMap<ChunkId, Place>,
    bundles: Vec<Bundle>,
}

/// Where a chunk is.
#[derive(Debug)]
struct Place {
    object: RemoteObject,
    range: Range<u64>,
    /// The bundle that it is in, and its place there.
    bundle: Option<(usize, usize)>,
}

#[derive(Debug)]
struct Bundle {
    object: RemoteObject,
    ranges: Vec<Range<u64>>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting,
    UnderWay(JoinHandle<Pieces>),
    /// What nobody has taken yet.
    There(Vec<Option<Bytes>>),
    Failed,
}

impl Bundle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> JoinHandle<Pieces> {
        let read = self.object.clone().read_many(self.ranges.clone());
        self.object.runtime.spawn(read)
    }

    /// Takes a chunk, after the bundle was read if nobody has done that. `None` if it was taken
    /// before.
    fn take(&self, place: usize) -> Result<Option<Bytes>, ParquetError> {
        let mut state = self.state();
        if let State::There(pieces) = &mut *state {
            return Ok(pieces.get_mut(place).and_then(Option::take));
        }
        let task = match std::mem::replace(&mut *state, State::Failed) {
            State::UnderWay(task) => task,
            _ => self.start(),
        };
        let pieces = self
            .object
            .runtime
            .block_on(task)
            .map_err(|error| ParquetError::External(Box::new(error)))?
            .map_err(|error| ParquetError::External(Box::new(error)))?;
        let mut pieces: Vec<Option<Bytes>> = pieces.into_iter().map(Some).collect();
        let piece = pieces.get_mut(place).and_then(Option::take);
        *state = State::There(pieces);
        Ok(piece)
    }

    /// Has it read, if nobody has and nobody is at it.
    fn begin(&self) {
        if let Ok(mut state) = self.state.try_lock()
            && matches!(*state, State::Waiting)
        {
            *state = State::UnderWay(self.start());
        }
    }
}

impl Drop for ReadAhead {
    /// A pass that ends early leaves no request behind.
    fn drop(&mut self) {
        for bundle in &self.bundles {
            if let State::UnderWay(task) = &*bundle.state() {
                task.abort();
            }
        }
    }
}

impl ReadAhead {
    /// For chunks that will be opened once each, in about this order.
    pub fn of<'a>(
        chunks: impl IntoIterator<Item = (ChunkId, &'a RemoteObject, Range<u64>)>,
    ) -> Self {
        let mut places = HashMap::new();
        let mut bundles: Vec<Bundle> = Vec::new();
        let (mut bundled, mut bytes) = (None, 0);
        for (id, object, range) in chunks {
            let length = range.end - range.start;
            if length > LARGEST_BUNDLED {
                let (object, bundle) = (object.clone(), None);
                places.insert(
                    id,
                    Place {
                        object,
                        range,
                        bundle,
                    },
                );
                continue;
            }
            let has_room = bundled == Some(id.0)
                && bytes + length <= BUNDLE
                && bundles
                    .last()
                    .is_some_and(|bundle| bundle.ranges.len() < MOST_CHUNKS);
            if !has_room {
                bundles.push(Bundle {
                    object: object.clone(),
                    ranges: Vec::new(),
                    state: Mutex::new(State::Waiting),
                });
                (bundled, bytes) = (Some(id.0), 0);
            }
            bytes += length;
            let number = bundles.len() - 1;
            let ranges = &mut bundles[number].ranges;
            ranges.push(range.clone());
            let place = Place {
                object: object.clone(),
                range,
                bundle: Some((number, ranges.len() - 1)),
            };
            places.insert(id, place);
        }
        Self { places, bundles }
    }

    /// Opens a chunk.
    ///
    /// # Errors
    /// If it is none of those announced, or its bundle can't be read.
    pub fn open(&self, id: ChunkId) -> Result<WindowedChunk, ParquetError> {
        let Some(place) = self.places.get(&id) else {
            return Err(ParquetError::General(format!(
                "column chunk {id:?} was not announced"
            )));
        };
        let window = || WindowedChunk::new(place.object.clone(), place.range.clone());
        let Some((number, within)) = place.bundle else {
            return Ok(window());
        };
        let piece = self.bundles[number].take(within)?;
        if let Some(next) = self.bundles.get(number + 1) {
            next.begin();
        }
        Ok(piece.map_or_else(window, |bytes| {
            WindowedChunk::loaded(place.object.clone(), place.range.clone(), bytes)
        }))
    }
}

/// The chunks of one top-level column, each read by its own windows: what lies between them, and
/// how far apart they are, doesn't matter.
pub struct ChunksOfColumn {
    size: u64,
    /// Where each chunk begins, ascending.
    chunks: Vec<(u64, WindowedChunk)>,
}

impl ChunksOfColumn {
    /// Chunks of an object of `size` bytes, with their starts.
    pub fn new(size: u64, mut chunks: Vec<(u64, WindowedChunk)>) -> Self {
        chunks.sort_by_key(|(start, _)| *start);
        Self { size, chunks }
    }

    fn at(&self, position: u64) -> Result<&WindowedChunk, ParquetError> {
        let before = self.chunks.partition_point(|(start, _)| *start <= position);
        before
            .checked_sub(1)
            .map(|chunk| &self.chunks[chunk].1)
            .ok_or_else(|| ParquetError::EOF(format!("no column chunk at byte {position}")))
    }
}

impl Length for ChunksOfColumn {
    fn len(&self) -> u64 {
        self.size
    }
}

impl ChunkReader for ChunksOfColumn {
    type T = WindowReader;

    fn get_read(&self, start: u64) -> parquet::errors::Result<WindowReader> {
        self.at(start)?.get_read(start)
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        self.at(start)?.get_bytes(start, length)
    }
}
