//! Headers of formats that have their sizes at a fixed place, or whose decoder finds them.

use std::io::{Cursor, Read};

use flate2::read::ZlibDecoder;
use image::ImageDecoder;
use image::codecs::tiff::TiffDecoder;

use crate::filters::exif;
use crate::filters::header::{Format, Header, be32, le16, le32};
use crate::filters::reason::Reason;

/// PNG: the chunks before the first one of pixels, and `eXIf` wherever it is; without one, the
/// profile that older writers put the block into.
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
    let mut profile = None;
    let mut at = 8;
    while let (Some(size), Some(name)) = (be32(bytes, at), bytes.get(at + 4..at + 8)) {
        let body = at + 8;
        let end = body.saturating_add(size as usize);
        if name == b"eXIf" && !has_exif {
            has_exif = true;
            header.exif = exif::parse(bytes.get(body..end).unwrap_or_default());
        }
        if profile.is_none() {
            let body = || bytes.get(body..end).unwrap_or_default();
            profile = match name {
                b"zTXt" => packed_profile(body()),
                b"tEXt" => plain_profile(body()),
                _ => None,
            };
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
    if let Some(block) = profile.filter(|_| !has_exif) {
        header.exif = exif::parse(&block);
    }
    has_pixels.then_some(header).ok_or(Reason::Truncated)
}

/// Names of the texts that hold an Exif block, as ImageMagick wrote it before there was `eXIf`.
const PROFILES: [&[u8]; 2] = [b"Raw profile type exif\0", b"Raw profile type APP1\0"];
/// Bytes of a profile's text at most: a block is a segment of a JPEG, and each byte two digits.
const LONGEST_PROFILE: u64 = 1 << 18;

fn packed_profile(body: &[u8]) -> Option<Vec<u8>> {
    let rest = PROFILES.iter().find_map(|name| body.strip_prefix(*name))?;
    let packed = rest.strip_prefix(b"\0")?;
    let mut text = Vec::new();
    let mut unpacked = ZlibDecoder::new(packed).take(LONGEST_PROFILE);
    unpacked.read_to_end(&mut text).ok()?;
    digits(&text)
}

fn plain_profile(body: &[u8]) -> Option<Vec<u8>> {
    let text = PROFILES.iter().find_map(|name| body.strip_prefix(*name))?;
    digits(text.get(..LONGEST_PROFILE as usize).unwrap_or(text))
}

/// The block of a profile: a line with its kind, one with its length, then digits.
fn digits(text: &[u8]) -> Option<Vec<u8>> {
    let mut lines = text.strip_prefix(b"\n")?.splitn(3, |byte| *byte == b'\n');
    let (_kind, length) = (lines.next()?, lines.next()?);
    let length: usize = std::str::from_utf8(length).ok()?.trim().parse().ok()?;
    let mut nibbles = lines
        .next()?
        .iter()
        .filter(|byte| !byte.is_ascii_whitespace());
    let mut nibble = || char::from(*nibbles.next()?).to_digit(16);
    let mut block = Vec::new();
    while block.len() < length {
        let (high, low) = (nibble()?, nibble()?);
        block.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(block)
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
    let mut header = Header::new(Format::Tiff, width, height, 2 * bytes_per_pixel + 1);
    // The tag is the file's own; there is no block beside it.
    header.exif.orientation = exif::parse(bytes).orientation;
    Ok(header)
}
