//! PNG, WebP, GIF, BMP and TIFF, by the decoders of the `image` crate.

use std::cell::Cell;
use std::io;

use image::codecs::bmp::BmpDecoder;
use image::codecs::gif::GifDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::error::LimitErrorKind;
use image::{ColorType, ImageDecoder, ImageError, ImageResult};

use crate::filters::decode::timed::Timed;
use crate::filters::decode::{Limits, room};
use crate::filters::header::{Format, Header};
use crate::filters::pixels::Layout;
use crate::filters::reason::Reason;

/// Bytes that a PNG's profile and texts may take beside its pixels: the largest profiles in use
/// have a few MiB.
const BESIDE_PIXELS: u64 = 8 << 20;

/// Decodes an image.
pub fn decode(
    bytes: &[u8],
    header: &Header,
    limits: &Limits,
    samples: &mut Vec<u8>,
) -> Result<Layout, Reason> {
    let expired = Cell::new(false);
    let source = Timed::new(bytes, limits.time, &expired);
    let mut allowed = image::Limits::no_limits();
    allowed.max_alloc = Some(limits.memory);
    let decoded = match header.format {
        Format::Png => {
            // A profile that inflates to more is passed over by the decoder.
            let needed = limits.memory_of(header) + 2 * bytes.len() as u64 + BESIDE_PIXELS;
            allowed.max_alloc = Some(limits.memory.min(needed));
            PngDecoder::with_limits(source, allowed.clone())
                .map_err(reason)
                .and_then(|decoder| read(decoder, header, allowed, samples))
        }
        Format::WebP => open(WebPDecoder::new(source), header, allowed, samples),
        Format::Gif => open(GifDecoder::new(source), header, allowed, samples),
        Format::Bmp => open(BmpDecoder::new(source), header, allowed, samples),
        Format::Tiff => open(TiffDecoder::new(source), header, allowed, samples),
        Format::Jpeg => Err(Reason::UnsupportedFormat),
    };
    match decoded {
        Err(_) if expired.get() => Err(Reason::TooSlow),
        other => other,
    }
}

fn open(
    decoder: ImageResult<impl ImageDecoder>,
    header: &Header,
    limits: image::Limits,
    samples: &mut Vec<u8>,
) -> Result<Layout, Reason> {
    read(decoder.map_err(reason)?, header, limits, samples)
}

fn read(
    mut decoder: impl ImageDecoder,
    header: &Header,
    limits: image::Limits,
    samples: &mut Vec<u8>,
) -> Result<Layout, Reason> {
    decoder.set_limits(limits.clone()).map_err(reason)?;
    // What the header promised is what was checked.
    if decoder.dimensions() != (header.width, header.height) {
        return Err(Reason::Undecodable);
    }
    let colour = decoder.color_type();
    let length = decoder.total_bytes();
    if limits.max_alloc.is_some_and(|allowed| length > allowed) {
        return Err(Reason::TooLarge);
    }
    let length = usize::try_from(length).map_err(|_| Reason::TooLarge)?;
    let samples = room(samples, length)?;
    decoder.read_image(samples).map_err(reason)?;
    to_bytes(samples, colour)
}

/// Brings samples into one of the layouts, in place: 16 bits become the higher 8, alpha beside
/// gray goes.
fn to_bytes(samples: &mut [u8], colour: ColorType) -> Result<Layout, Reason> {
    let (layout, keep, step) = match colour {
        ColorType::L8 => return Ok(Layout::Gray),
        ColorType::Rgb8 => return Ok(Layout::Rgb),
        ColorType::Rgba8 => return Ok(Layout::Rgbx),
        ColorType::La8 => (Layout::Gray, 1, 2),
        ColorType::L16 => (Layout::Gray, 2, 2),
        ColorType::La16 => (Layout::Gray, 2, 4),
        ColorType::Rgb16 => (Layout::Rgb, 2, 2),
        ColorType::Rgba16 => (Layout::Rgbx, 2, 2),
        _ => return Err(Reason::UnsupportedFormat),
    };
    for at in 0..samples.len() / step {
        let from = at * step;
        samples[at] = if keep == 1 {
            samples[from]
        } else {
            (u16::from_ne_bytes([samples[from], samples[from + 1]]) >> 8) as u8
        };
    }
    Ok(layout)
}

fn reason(error: ImageError) -> Reason {
    match &error {
        ImageError::Unsupported(_) => Reason::UnsupportedFormat,
        ImageError::Limits(limit) => match limit.kind() {
            LimitErrorKind::Unsupported { .. } => Reason::UnsupportedFormat,
            _ => Reason::TooLarge,
        },
        ImageError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Reason::Truncated
        }
        other if ends_early(other) => Reason::Truncated,
        _ => Reason::Undecodable,
    }
}

/// Whether a decoder ran out of bytes, somewhere down the chain of causes.
fn ends_early(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let is_end = |error: &io::Error| error.kind() == io::ErrorKind::UnexpectedEof;
        if error.downcast_ref::<io::Error>().is_some_and(is_end) {
            return true;
        }
        cause = error.source();
    }
    false
}
