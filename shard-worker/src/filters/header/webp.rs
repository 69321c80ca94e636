//! The chunks of a WebP.

use crate::filters::exif;
use crate::filters::header::{Format, Header, le16, le32};
use crate::filters::reason::Reason;

/// Bytes of an animation's frame before its own chunks.
const FRAME_HEAD: usize = 16;

/// Reads the size from the first chunk, and the Exif chunk wherever it is. A picture larger than
/// the canvas is refused: its decoder would only see that when it has decoded it.
pub fn read(bytes: &[u8]) -> Result<Header, Reason> {
    let (width, height) = size(bytes.get(12..).unwrap_or_default()).ok_or(Reason::Truncated)?;
    // Planes of the lossy kind and of alpha, the canvas, and the output.
    let mut header = Header::new(Format::WebP, width, height, 12);
    let mut has_exif = false;
    for chunk in chunks(bytes.get(12..).unwrap_or_default()) {
        let is_larger = match &chunk[..4] {
            b"VP8 " | b"VP8L" => exceeds(chunk, width, height),
            b"ANMF" => chunks(chunk.get(8 + FRAME_HEAD..).unwrap_or_default())
                .filter(|inner| matches!(&inner[..4], b"VP8 " | b"VP8L"))
                .any(|inner| exceeds(inner, width, height)),
            b"EXIF" if !has_exif => {
                has_exif = true;
                header.exif = exif::parse(&chunk[8..]);
                false
            }
            _ => false,
        };
        if is_larger {
            return Err(Reason::Undecodable);
        }
    }
    Ok(header)
}

/// Chunks with their heads of eight bytes; the last one may be cut off.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let size = le32(rest, 4)? as usize;
        let end = size.saturating_add(8);
        let chunk = &rest[..end.min(rest.len())];
        rest = rest.get(end.saturating_add(end % 2)..).unwrap_or_default();
        Some(chunk)
    })
}

fn exceeds(chunk: &[u8], width: u32, height: u32) -> bool {
    size(chunk).is_some_and(|(wide, high)| wide > width || high > height)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
        let mut chunk = name.to_vec();
        chunk.extend((body.len() as u32).to_le_bytes());
        chunk.extend(body);
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    }

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
        file.extend(chunks.concat());
        file
    }

    fn lossy(width: u16, height: u16) -> Vec<u8> {
        let mut body = b"\0\0\0\x9d\x01\x2a".to_vec();
        body.extend(width.to_le_bytes());
        body.extend(height.to_le_bytes());
        chunk(b"VP8 ", &body)
    }

    #[test]
    fn no_picture_is_larger_than_its_canvas() {
        let canvas = chunk(b"VP8X", &[0, 0, 0, 0, 9, 0, 0, 4, 0, 0]);
        let read_size =
            |chunks: &[Vec<u8>]| read(&file(chunks)).map(|header| (header.width, header.height));
        assert_eq!(read_size(&[lossy(300, 20)]), Ok((300, 20)));
        assert_eq!(read_size(&[canvas.clone(), lossy(10, 5)]), Ok((10, 5)));
        let huge = lossy(16_383, 16_383);
        assert_eq!(
            read_size(&[canvas.clone(), huge.clone()]),
            Err(Reason::Undecodable)
        );
        let frame = chunk(b"ANMF", &[[0; FRAME_HEAD].to_vec(), huge].concat());
        assert_eq!(read_size(&[canvas, frame]), Err(Reason::Undecodable));
    }

    #[test]
    fn exif_is_found_behind_the_picture() {
        let exif = chunk(b"EXIF", b"Exif\0\0II\x2a\0\x08\0\0\0\0\0");
        let header = read(&file(&[lossy(3, 3), exif])).unwrap();
        assert_eq!(header.exif.bytes, 10);
    }
}
