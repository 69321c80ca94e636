//! Sequential reading of a column chunk from a store, a window at a time, one window ahead.

use std::io::Read;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};
use storage::{ETag, Store};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Bytes asked for at once: long enough that a request's latency is small beside its transfer.
const WINDOW: u64 = 4 << 20;

/// Where windows come from. Its reads block the calling thread, which must not be a
/// runtime thread.
#[derive(Debug, Clone)]
pub struct RemoteObject {
    /// Store and key of the object.
    pub store: Arc<dyn Store>,
    /// Key within the store.
    pub key: String,
    /// Version that was listed.
    pub etag: ETag,
    /// Size of the object in bytes.
    pub size: u64,
    /// Runtime on which reads run.
    pub runtime: Handle,
}

impl RemoteObject {
    async fn read(self, range: Range<u64>) -> Result<Bytes, storage::Error> {
        let read = self.read_many(vec![range]).await?;
        Ok(read.into_iter().next().unwrap_or_default())
    }

    /// Reads some ranges, side by side.
    pub async fn read_many(self, ranges: Vec<Range<u64>>) -> Result<Vec<Bytes>, storage::Error> {
        self.store
            .read_ranges(&self.key, &ranges, Some(&self.etag))
            .await
    }
}

#[derive(Debug)]
struct State {
    start: u64,
    bytes: Bytes,
    ahead: Option<(u64, JoinHandle<Result<Bytes, storage::Error>>)>,
}

#[derive(Debug)]
struct Inner {
    object: RemoteObject,
    end: u64,
    window: u64,
    state: Mutex<State>,
}

/// A [`ChunkReader`] over `range` of an object that holds two windows at most, each of which is
/// kept while the reads lie in it.
#[derive(Debug, Clone)]
pub struct WindowedChunk(Arc<Inner>);

impl WindowedChunk {
    /// Reads nothing yet.
    pub fn new(object: RemoteObject, range: Range<u64>) -> Self {
        Self::holding(object, range, WINDOW, Bytes::new())
    }

    /// Reads all of `range` at once when it is first asked for its start, and keeps it: several
    /// readers at different places may share one.
    pub fn whole(object: RemoteObject, range: Range<u64>) -> Self {
        let length = range.end - range.start;
        Self::holding(object, range, length, Bytes::new())
    }

    /// All of `range`, which somebody has read.
    pub fn loaded(object: RemoteObject, range: Range<u64>, bytes: Bytes) -> Self {
        Self::holding(object, range, WINDOW, bytes)
    }

    fn holding(object: RemoteObject, range: Range<u64>, window: u64, bytes: Bytes) -> Self {
        let state = State {
            start: range.start,
            bytes,
            ahead: None,
        };
        Self(Arc::new(Inner {
            object,
            end: range.end,
            window,
            state: Mutex::new(state),
        }))
    }

    /// At least `length` bytes from `start` (fewer only at the chunk's end).
    fn at_least(&self, start: u64, length: u64) -> Result<Bytes, ParquetError> {
        let inner = &*self.0;
        let needed = length.min(inner.end.saturating_sub(start));
        let mut state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        let held_end = state.start + state.bytes.len() as u64;
        if start >= state.start && start + needed <= held_end {
            return Ok(state.bytes.slice((start - state.start) as usize..));
        }
        let mut kept = if start >= state.start && start < held_end {
            state.bytes.slice((start - state.start) as usize..)
        } else {
            Bytes::new()
        };
        let mut next = start + kept.len() as u64;
        while (kept.len() as u64) < needed {
            let window = match state.ahead.take() {
                Some((at, task)) if at == next => inner
                    .object
                    .runtime
                    .block_on(task)
                    .map_err(|error| ParquetError::External(Box::new(error)))?,
                _ => {
                    let range =
                        next..(next + inner.window.max(needed - kept.len() as u64)).min(inner.end);
                    inner
                        .object
                        .runtime
                        .block_on(inner.object.clone().read(range))
                }
            }
            .map_err(|error| ParquetError::External(Box::new(error)))?;
            if window.is_empty() {
                return Err(ParquetError::EOF(format!("no bytes at {next}")));
            }
            next += window.len() as u64;
            kept = if kept.is_empty() {
                window
            } else {
                Bytes::from([&kept[..], &window[..]].concat())
            };
        }
        if next < inner.end && state.ahead.is_none() {
            let range = next..(next + inner.window).min(inner.end);
            state.ahead = Some((
                next,
                inner.object.runtime.spawn(inner.object.clone().read(range)),
            ));
        }
        state.start = start;
        state.bytes = kept.clone();
        Ok(kept)
    }
}

impl Length for WindowedChunk {
    fn len(&self) -> u64 {
        self.0.object.size
    }
}

/// Reads on across windows.
pub struct WindowReader {
    chunk: WindowedChunk,
    at: u64,
    current: Bytes,
}

impl Read for WindowReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.current.is_empty() && self.at < self.chunk.0.end {
            self.current = self
                .chunk
                .at_least(self.at, 1)
                .map_err(std::io::Error::other)?;
        }
        let count = buffer.len().min(self.current.len());
        buffer[..count].copy_from_slice(&self.current[..count]);
        self.current.advance(count);
        self.at += count as u64;
        Ok(count)
    }
}

impl ChunkReader for WindowedChunk {
    type T = WindowReader;

    fn get_read(&self, start: u64) -> parquet::errors::Result<WindowReader> {
        Ok(WindowReader {
            current: self.at_least(start, 1)?,
            chunk: self.clone(),
            at: start,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> parquet::errors::Result<Bytes> {
        let bytes = self.at_least(start, length as u64)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at {start} pass the end of the column chunk"
            )));
        }
        Ok(bytes.slice(..length))
    }
}
