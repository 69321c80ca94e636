//! JPEG, by a port of libjpeg-turbo to Rust that gives the same pixels.
//!
//! The decoder could hand out its own luma for a fifth of the time less. It differs from the luma
//! of the decoded colours where those were clipped: for clarity, texture and blockiness of many
//! photographs by more than the reference tolerates, for the density of edges only in thumbnails,
//! where a pixel counts. So it is used for edges alone, and not in thumbnails.

use libjpeg_turbo_rs::{ColorSpace, DecodeLimits, Decoder, JpegError, PixelFormat};

use crate::filters::decode::{Limits, room};
use crate::filters::header::Header;
use crate::filters::pixels::Layout;
use crate::filters::reason::Reason;

/// Fewer pixels are a thumbnail.
const LEAST_PIXELS_FOR_OWN_LUMA: u64 = 1 << 17;

/// Decodes an image.
pub fn decode(
    bytes: &[u8],
    header: &Header,
    only_edges: bool,
    limits: &Limits,
    samples: &mut Vec<u8>,
) -> Result<Layout, Reason> {
    let whole = header.end.and_then(|end| bytes.get(..end));
    let bytes = whole.ok_or(Reason::Truncated)?;
    let allowed = DecodeLimits {
        max_pixels: limits.pixels,
        max_memory: Some(limits.memory),
        max_scans: usize::try_from(header.passes).unwrap_or(usize::MAX).max(1),
        ..DecodeLimits::default()
    };
    let mut decoder = Decoder::new_with_limits(bytes, allowed).map_err(reason)?;
    let frame = decoder.header();
    let size = (u32::from(frame.width), u32::from(frame.height));
    if frame.precision != 8 || frame.is_lossless {
        return Err(Reason::UnsupportedFormat);
    }
    if size != (header.width, header.height) {
        return Err(Reason::Undecodable);
    }
    let layout = match decoder.jpeg_color_space() {
        ColorSpace::Grayscale => Layout::Gray,
        ColorSpace::YCbCr if only_edges && header.pixels() >= LEAST_PIXELS_FOR_OWN_LUMA => {
            Layout::Gray
        }
        ColorSpace::Unknown => return Err(Reason::UnsupportedFormat),
        ColorSpace::YCbCr | ColorSpace::Rgb | ColorSpace::Cmyk | ColorSpace::Ycck => Layout::Rgb,
    };
    decoder.set_output_format(match layout {
        Layout::Gray => PixelFormat::Grayscale,
        Layout::Rgb => PixelFormat::Rgb,
        Layout::Rgbx => PixelFormat::Rgbx,
    });
    let length = decoder.output_buffer_size().map_err(reason)?;
    let expected = header.pixels() * layout.samples() as u64;
    if length as u64 != expected {
        return Err(Reason::Undecodable);
    }
    let info = decoder
        .decode_image_into(room(samples, length)?)
        .map_err(reason)?;
    if (info.width as u64 * info.height as u64) != header.pixels() {
        return Err(Reason::Undecodable);
    }
    Ok(layout)
}

fn reason(error: JpegError) -> Reason {
    match error {
        JpegError::Unsupported(_) => Reason::UnsupportedFormat,
        JpegError::UnexpectedEof => Reason::Truncated,
        JpegError::LimitExceeded { .. } | JpegError::AllocationFailed { .. } => Reason::TooLarge,
        _ => Reason::Undecodable,
    }
}
