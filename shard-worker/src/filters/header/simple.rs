//! Headers of formats that have their sizes at a fixed place, or whose decoder finds them.

use std::io::Cursor;

use image::ImageDecoder;
use image::codecs::tiff::TiffDecoder;

use crate::filters::exif;
use crate::filters::header::{Format, Header, be32, le16, le32};
use crate::filters::reason::Reason;

/// PNG: the chunks before the first one of pixels, and `eXIf` wherever it is.
pub fn png(bytes: &[u8]) -> Result<Header, Reason> {
    if bytes.get(12..16) != Some(b"IHDR") {
        return Err(Reason::Undecodable);
    }
    let size = be32(bytes, 16).zip(be32(bytes, 20));
    let (width, height) = size.ok_or(Reason::Truncated)?;
    let is_deep = bytes.get(24) == Some(&16);
    let mut header = Header::new(Format::Png, width, height, if is_deep { 9 } else { 5 });
    let mut has_pixels = false;
    let mut has_exif = false;
    let mut at = 8;
    while let (Some(size), Some(name)) = (be32(bytes, at), bytes.get(at + 4..at + 8)) {
        let body = at + 8;
        let end = body.saturating_add(size as usize);
        if name == b"eXIf" && !has_exif {
            has_exif = true;
            header.exif = exif::parse(bytes.get(body..end).unwrap_or_default());
        }
        // The decoder panics on half a colour.
        if name == b"PLTE" && !size.is_multiple_of(3) {
            return Err(Reason::Undecodable);
        }
        has_pixels |= name == b"IDAT";
        if has_pixels && has_exif {
            break;
        }
        at = end.saturating_add(4);
    }
    has_pixels.then_some(header).ok_or(Reason::Truncated)
}

/// GIF: the logical screen, and the first frame, which is decoded whole before it is cut to the
/// screen.
pub fn gif(bytes: &[u8]) -> Result<Header, Reason> {
    let size = le16(bytes, 6).zip(le16(bytes, 8));
    let (width, height) = size.ok_or(Reason::Truncated)?;
    // The screen, and a frame that may be smaller.
    let mut header = Header::new(Format::Gif, width.into(), height.into(), 9);
    if let Some((width, height)) = first_frame(bytes) {
        let frame = u64::from(width) * u64::from(height);
        header.decoded_pixels = header.decoded_pixels.max(frame);
    }
    Ok(header)
}

/// Width and height of the first frame of a GIF, if its blocks lead there.
fn first_frame(bytes: &[u8]) -> Option<(u16, u16)> {
    const EXTENSION: u8 = 0x21;
    const FRAME: u8 = 0x2c;
    /// Bytes before the colours of the screen.
    const SCREEN: usize = 13;
    let colours = |flags: u8| {
        if flags & 0x80 > 0 {
            3 << ((flags & 7) + 1)
        } else {
            0
        }
    };
    let mut at = SCREEN + colours(*bytes.get(10)?);
    loop {
        match *bytes.get(at)? {
            FRAME => return le16(bytes, at + 5).zip(le16(bytes, at + 7)),
            EXTENSION => {
                at += 2;
                // Sub-blocks, the last of which is empty.
                while let length @ 1.. = usize::from(*bytes.get(at)?) {
                    at += 1 + length;
                }
                at += 1;
            }
            _ => return None,
        }
    }
}

/// BMP: the information header, old or new.
pub fn bmp(bytes: &[u8]) -> Result<Header, Reason> {
    let size = match le32(bytes, 14) {
        Some(12) => {
            let size = le16(bytes, 18).zip(le16(bytes, 20));
            size.map(|(width, height)| (width.into(), height.into()))
        }
        // Rows from top to bottom have a negative height.
        Some(16..) => {
            let size = le32(bytes, 18).zip(le32(bytes, 22));
            size.map(|(width, height)| (width, (height as i32).unsigned_abs()))
        }
        _ => return Err(Reason::Undecodable),
    };
    let (width, height) = size.ok_or(Reason::Truncated)?;
    if width > i32::MAX as u32 {
        return Err(Reason::Undecodable);
    }
    Ok(Header::new(Format::Bmp, width, height, 5))
}

/// Compressions of TIFF that hold whole JPEGs, old and new.
const JPEG_COMPRESSIONS: std::ops::RangeInclusive<i64> = 6..=7;

/// TIFF: the first directory, which may be anywhere. JPEGs within are refused: their decoder
/// believes what each of them says of its size. So are files with 64-bit offsets.
pub fn tiff(bytes: &[u8]) -> Result<Header, Reason> {
    match exif::compression(bytes) {
        Some(compression) if !JPEG_COMPRESSIONS.contains(&compression) => {}
        _ => return Err(Reason::UnsupportedFormat),
    }
    let decoder = TiffDecoder::new(Cursor::new(bytes)).map_err(|error| match error {
        image::ImageError::Unsupported(_) => Reason::UnsupportedFormat,
        _ => Reason::Undecodable,
    })?;
    let (width, height) = decoder.dimensions();
    let bytes_per_pixel = u64::from(decoder.color_type().bytes_per_pixel());
    Ok(Header::new(
        Format::Tiff,
        width,
        height,
        2 * bytes_per_pixel + 1,
    ))
}
