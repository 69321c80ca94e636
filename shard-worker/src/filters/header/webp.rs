//! The chunks of a WebP.

use crate::filters::exif;
use crate::filters::header::{Format, Header, le16, le32};
use crate::filters::reason::Reason;

/// Reads the size from the first chunk, and the Exif chunk wherever it is.
pub fn read(bytes: &[u8]) -> Result<Header, Reason> {
    let (width, height) = size(bytes.get(12..).unwrap_or_default()).ok_or(Reason::Truncated)?;
    // Planes of the lossy kind and of alpha, the canvas, and the output.
    let mut header = Header::new(Format::WebP, width, height, 12);
    let mut at = 12;
    while let (Some(name), Some(size)) = (bytes.get(at..at + 4), le32(bytes, at + 4)) {
        let body = at + 8;
        let end = body.saturating_add(size as usize);
        if name == b"EXIF" {
            header.exif = exif::parse(bytes.get(body..end).unwrap_or_default());
            break;
        }
        at = end.saturating_add(end % 2);
    }
    Ok(header)
}

fn size(chunk: &[u8]) -> Option<(u32, u32)> {
    let body = chunk.get(8..)?;
    match chunk.get(..4)? {
        b"VP8X" => {
            let side = |at: usize| Some((le32(body, at)? & 0xff_ffff) + 1);
            // Three bytes each; the fourth belongs to what follows.
            let height = u32::from(le16(body, 7)?) | u32::from(*body.get(9)?) << 16;
            Some((side(4)?, height + 1))
        }
        b"VP8L" => {
            let sides = le32(body, 1)?;
            Some(((sides & 0x3fff) + 1, (sides >> 14 & 0x3fff) + 1))
        }
        b"VP8 " => {
            let side = |at: usize| Some(u32::from(le16(body, at)?) & 0x3fff);
            (body.get(3..6)? == b"\x9d\x01\x2a").then_some(())?;
            Some((side(6)?, side(8)?))
        }
        _ => None,
    }
}
