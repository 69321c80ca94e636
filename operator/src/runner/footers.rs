//! Footers of a few shards: how many rows they hold, and who made them.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures::{StreamExt, stream};
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};
use storage::{Error, ObjectMeta, Store};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Read at first: most footers are shorter.
const TAIL: u64 = 64 << 10;
/// Longer ones are no footers that we wait for: parsed, they may take thirty times as much.
const LONGEST_FOOTER: u64 = 8 << 20;
/// Footers that are longer than most are read one at a time, whatever they are footers of.
static LARGE: Semaphore = Semaphore::const_new(1);
/// What follows a footer: its length and the magic bytes.
const TRAILER: u64 = 8;
const MAGIC: &[u8; 4] = b"PAR1";
/// Footers that are read at the same time.
const READS_IN_FLIGHT: usize = 16;

/// Key of the digest in the footer of a sidecar's shard; see the worker's `encode`.
const META_DIGEST: &str = "sidecarjob.digest";

/// What a footer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Footer {
    /// Rows of the file.
    pub(super) rows: u64,
    /// Digest of the pipeline that made it; `None` if it isn't one of ours.
    pub(super) digest: Option<String>,
}

/// What became of looking at a footer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// It can be read.
    Read(Footer),
    /// The object is no Parquet file, gone or changed; in words.
    Unreadable(String),
    /// The store refuses to show it; in words.
    Refused(String),
}

/// Looks at the footers of these objects, in their order.
///
/// # Errors
/// If the store does not answer.
pub(super) async fn look_at(store: &dyn Store, objects: &[ObjectMeta]) -> Result<Vec<Look>, Error> {
    let looks = stream::iter(objects.to_vec())
        .map(|object| async move { look(store, &object).await })
        .buffered(READS_IN_FLIGHT);
    let looks: Vec<Result<Look, Error>> = looks.collect().await;
    looks.into_iter().collect()
}

async fn look(store: &dyn Store, object: &ObjectMeta) -> Result<Look, Error> {
    let mut leave = None;
    let bytes = match read_footer(store, object, &mut leave).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(words)) => return Ok(Look::Unreadable(words)),
        Err(error @ (Error::Unavailable { .. } | Error::Io { .. })) => return Err(error),
        Err(error @ Error::Refused { .. }) => return Ok(Look::Refused(error.to_string())),
        Err(error) => return Ok(Look::Unreadable(error.to_string())),
    };
    let parse = move || {
        // A parser that panics on a malformed footer costs that footer alone.
        std::panic::catch_unwind(AssertUnwindSafe(|| parse(&bytes)))
            .unwrap_or_else(|_| Look::Unreadable("the parser failed on its footer".to_owned()))
    };
    let parsed = tokio::task::spawn_blocking(parse).await;
    drop(leave);
    Ok(parsed.unwrap_or_else(|error| Look::Unreadable(error.to_string())))
}

/// The bytes of the footer, or in words why there is none. A large one needs `leave`.
async fn read_footer(
    store: &dyn Store,
    object: &ObjectMeta,
    leave: &mut Option<SemaphorePermit<'static>>,
) -> Result<Result<Bytes, String>, Error> {
    let size = object.size;
    let mut tail = TAIL.min(size);
    loop {
        if tail < TRAILER {
            return Ok(Err(format!("{size} bytes are too few for a Parquet file")));
        }
        let end = size - tail..size;
        let end = std::slice::from_ref(&end);
        let read = store.read_ranges(&object.key, end, Some(&object.etag));
        let bytes = read.await?.into_iter().next().unwrap_or_default();
        let Some(trailer) = bytes.last_chunk::<{ TRAILER as usize }>() else {
            return Ok(Err("its end was not read whole".to_owned()));
        };
        let [a, b, c, d, magic @ ..] = trailer;
        if magic != MAGIC {
            return Ok(Err("it does not end like a Parquet file".to_owned()));
        }
        let length = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
        let needed = length + TRAILER;
        if needed > size || length > LONGEST_FOOTER {
            return Ok(Err(format!(
                "its footer claims {length} bytes of a file of {size}"
            )));
        }
        if needed <= tail {
            let start = bytes.len() - needed as usize;
            return Ok(Ok(bytes.slice(start..start + length as usize)));
        }
        tail = needed;
        // It is never closed.
        *leave = LARGE.acquire().await.ok();
    }
}

fn parse(bytes: &[u8]) -> Look {
    let metadata = match ParquetMetaDataReader::decode_metadata(bytes) {
        Ok(metadata) => metadata,
        Err(error) => return Look::Unreadable(format!("its footer can't be parsed: {error}")),
    };
    match u64::try_from(metadata.file_metadata().num_rows()) {
        Ok(rows) => Look::Read(Footer {
            rows,
            digest: digest(&metadata),
        }),
        Err(_) => Look::Unreadable("its footer claims less than no rows".to_owned()),
    }
}

fn digest(metadata: &ParquetMetaData) -> Option<String> {
    let pairs = metadata.file_metadata().key_value_metadata()?;
    let pair = pairs.iter().find(|pair| pair.key == META_DIGEST)?;
    pair.value.clone()
}

/// A sample of a stream whose length isn't known, every element with the same chance; the same
/// sample for the same stream.
#[derive(Debug)]
pub(super) struct Reservoir<T> {
    sample: Vec<T>,
    size: usize,
    seen: u64,
    state: u64,
}

impl<T> Reservoir<T> {
    pub(super) fn new(size: usize) -> Self {
        Self {
            sample: Vec::with_capacity(size),
            size,
            seen: 0,
            state: 0x5eed,
        }
    }

    /// Offers the next element, which is made only if it is taken.
    pub(super) fn offer(&mut self, element: impl FnOnce() -> T) {
        self.seen += 1;
        if self.sample.len() < self.size {
            self.sample.push(element());
            return;
        }
        let position = self.random() % self.seen;
        if let Some(place) = usize::try_from(position)
            .ok()
            .and_then(|position| self.sample.get_mut(position))
        {
            *place = element();
        }
    }

    pub(super) fn into_sample(self) -> Vec<T> {
        self.sample
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(elements: u64) -> Vec<u64> {
        let mut reservoir = Reservoir::new(16);
        for element in 0..elements {
            reservoir.offer(|| element);
        }
        reservoir.into_sample()
    }

    #[test]
    fn a_sample_is_spread_and_always_the_same() {
        assert!(sample(0).is_empty());
        assert_eq!(sample(5), [0, 1, 2, 3, 4]);
        let large = sample(1_000_000);
        assert_eq!(large, sample(1_000_000));
        assert_eq!(large.len(), 16);
        for quarter in 0..4 {
            let range = quarter * 250_000..(quarter + 1) * 250_000;
            assert!(
                large.iter().any(|element| range.contains(element)),
                "{large:?}"
            );
        }
    }

    #[test]
    fn what_is_no_footer_is_unreadable() {
        for bytes in [&b""[..], b"\x15\x02", &[0xff; 64]] {
            assert!(matches!(parse(bytes), Look::Unreadable(_)), "{bytes:?}");
        }
    }
}
