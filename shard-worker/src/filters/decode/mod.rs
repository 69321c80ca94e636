//! Encoded bytes become pixels of 8 bit, at full size, without colour management, without
//! turning; alpha is left out, not blended.

mod jpeg;
mod raster;
mod timed;

use std::time::Duration;

use crate::filters::header::{Format, Header};
use crate::filters::pixels::Layout;
use crate::filters::reason::Reason;

/// What an image may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pixels, judged from the header.
    pub pixels: u64,
    /// Encoded bytes.
    pub bytes: u64,
    /// Bytes that decoding and measuring may hold.
    pub memory: u64,
    /// Time that decoding may take.
    pub time: Duration,
}

/// Pixels that a slow core decodes in a millisecond. The time that an image takes is estimated
/// by it from the header, so that the answer is the same on every machine.
const PIXELS_PER_MILLISECOND: u64 = 50_000;

/// Bytes a pixel that filters hold beside the decoder: luma, maps of edges.
const MEASURING_BYTES_PER_PIXEL: u64 = 2;

impl Limits {
    /// Refuses what the header shows to be too much, before anything is allocated.
    pub fn check(&self, header: &Header) -> Result<(), Reason> {
        let pixels = header.decoded_pixels;
        if pixels > self.pixels || self.memory_of(header) > self.memory {
            return Err(Reason::TooLarge);
        }
        let work = u128::from(pixels) * u128::from(header.passes.max(1));
        if work > self.time.as_millis() * u128::from(PIXELS_PER_MILLISECOND) {
            return Err(Reason::TooSlow);
        }
        Ok(())
    }

    /// Bytes that decoding and measuring an image hold at most.
    pub fn memory_of(&self, header: &Header) -> u64 {
        // A map of edges has whole words a row.
        let maps = u64::from(header.width).div_ceil(64) * u64::from(header.height) * 17;
        let a_pixel = header.bytes_per_pixel + MEASURING_BYTES_PER_PIXEL;
        header.decoded_pixels.saturating_mul(a_pixel) + maps
    }
}

/// Decodes an image whose header is within limits into the front of `samples`, which grows as
/// needed. With `only_edges`, luma that a decoder has anyway is enough, if it is close.
pub fn decode(
    bytes: &[u8],
    header: &Header,
    only_edges: bool,
    limits: &Limits,
    samples: &mut Vec<u8>,
) -> Result<Layout, Reason> {
    match header.format {
        Format::Jpeg => jpeg::decode(bytes, header, only_edges, limits, samples),
        _ => raster::decode(bytes, header, limits, samples),
    }
}

/// Makes room for `length` samples without writing them twice.
fn room(samples: &mut Vec<u8>, length: usize) -> Result<&mut [u8], Reason> {
    if samples.len() < length {
        let missing = length - samples.len();
        samples
            .try_reserve_exact(missing)
            .map_err(|_| Reason::TooLarge)?;
        samples.resize(length, 0);
    }
    Ok(&mut samples[..length])
}
