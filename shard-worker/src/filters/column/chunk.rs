//! The images of a column chunk, one after the other, as its bytes stream by.
//!
//! Writers often put a whole row group's images into one page, or into a dictionary that is a
//! page of its own. So no page is held: each image is handed on as soon as its bytes are there.
//! Rows refer to images by number, as pages of places in a dictionary come after the images.

use std::io::{self, Read};

use parquet::basic::{Compression, Encoding};

use crate::pages::codec::Decompressed;
use crate::pages::header::{PageHeader, PageKind};
use crate::pages::hybrid::{bits_of, differences, runs};
use crate::pages::{codec_of_values, held};
use crate::thrift::malformed;

/// A row without an image.
pub const NO_IMAGE: u32 = u32::MAX;
/// Images that a dictionary may have beyond a row group's rows. What is measured of each is held
/// until the rows are known, and a dictionary is for values that occur.
const UNUSED_IMAGES: usize = 64 << 10;

/// What the footer says of a chunk.
#[derive(Debug, Clone, Copy)]
pub struct ChunkShape {
    /// Bytes in the file.
    pub bytes: u64,
    /// Rows.
    pub rows: usize,
    /// Codec.
    pub codec: Compression,
    /// Definition level of a row with an image.
    pub present_level: i16,
    /// Bytes of an image that are kept; those after them are passed over.
    pub keep: usize,
}

impl ChunkShape {
    /// The definition levels of a page, from its encoded runs.
    fn present_levels(&self, bytes: &[u8], levels: usize) -> io::Result<Vec<u32>> {
        let mut present = Vec::new();
        runs(bytes, bits_of(self.present_level), levels, &mut present)?;
        Ok(present)
    }
}

/// Where images and rows go.
pub trait Sink {
    /// Takes the next image.
    fn image(&mut self, bytes: Vec<u8>) -> io::Result<()>;
    /// Images taken so far.
    fn images(&self) -> u32;
    /// Takes the next row: the number of its image, or [`NO_IMAGE`].
    fn row(&mut self, image: u32);
}

/// Reads a chunk from its first byte to its last row.
pub fn read(source: &mut dyn Read, shape: &ChunkShape, sink: &mut dyn Sink) -> io::Result<()> {
    let mut source = source.take(shape.bytes);
    let mut rows = 0;
    let mut dictionary: Option<(u32, u32)> = None;
    while rows < shape.rows {
        let header = PageHeader::read(&mut source)?;
        let body = (&mut source).take(header.compressed as u64);
        let mut page = Page {
            shape,
            sink,
            dictionary,
            body,
            rows_left: shape.rows - rows,
            uncompressed: header.uncompressed,
        };
        match header.kind {
            PageKind::Dictionary { values } => {
                if dictionary.is_some() {
                    return Err(malformed("a second dictionary in a column chunk"));
                }
                dictionary = Some(page.read_dictionary(values)?);
            }
            PageKind::Data {
                levels,
                encoding,
                definition,
                ..
            } => rows += page.read_data(levels, encoding, definition)?,
            PageKind::DataV2 {
                levels,
                encoding,
                repetition_bytes,
                definition_bytes,
                is_compressed,
            } => {
                let sizes = [repetition_bytes, definition_bytes];
                rows += page.read_data_v2(levels, encoding, sizes, is_compressed)?;
            }
            PageKind::Other => {}
        }
        // Whatever a codec has left unread belongs to this page.
        let mut body = page.body;
        io::copy(&mut body, &mut io::sink())?;
        if body.limit() > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

struct Page<'a, R: Read> {
    shape: &'a ChunkShape,
    sink: &'a mut dyn Sink,
    /// First image of the dictionary, and the image after its last.
    dictionary: Option<(u32, u32)>,
    body: R,
    rows_left: usize,
    uncompressed: usize,
}

impl<R: Read> Page<'_, R> {
    fn read_dictionary(&mut self, values: usize) -> io::Result<(u32, u32)> {
        if values > self.shape.rows.saturating_add(UNUSED_IMAGES) {
            return Err(malformed(&format!(
                "a dictionary of {values} images for {} rows; write the column without one",
                self.shape.rows
            )));
        }
        let first = self.sink.images();
        let mut values_of = Values {
            source: Decompressed::open(&mut self.body, self.shape.codec)?,
            left: self.uncompressed,
            keep: self.shape.keep,
        };
        for _ in 0..values {
            self.sink.image(values_of.plain()?)?;
        }
        Ok((first, self.sink.images()))
    }

    fn read_data(
        &mut self,
        levels: usize,
        encoding: Encoding,
        definition: Encoding,
    ) -> io::Result<usize> {
        self.check_rows(levels)?;
        let mut source = Decompressed::open(&mut self.body, self.shape.codec)?;
        let mut left = self.uncompressed;
        let mut present = Vec::new();
        if self.shape.present_level > 0 {
            if definition != Encoding::RLE {
                return Err(malformed(&format!("levels written as {definition}")));
            }
            let mut size = [0; 4];
            source.read_exact(&mut size)?;
            let size = u32::from_le_bytes(size) as usize;
            let bytes = held(&mut source, size)?;
            left = left.saturating_sub(4 + size);
            present = self.shape.present_levels(&bytes, levels)?;
        }
        let values = Values {
            source,
            left,
            keep: self.shape.keep,
        };
        read_rows(
            self.shape,
            self.dictionary,
            self.sink,
            values,
            levels,
            encoding,
            &present,
        )?;
        Ok(levels)
    }

    fn read_data_v2(
        &mut self,
        levels: usize,
        encoding: Encoding,
        [repetition, definition]: [usize; 2],
        is_compressed: bool,
    ) -> io::Result<usize> {
        self.check_rows(levels)?;
        held(&mut self.body, repetition)?;
        let bytes = held(&mut self.body, definition)?;
        let present = if self.shape.present_level > 0 {
            self.shape.present_levels(&bytes, levels)?
        } else {
            Vec::new()
        };
        let left = self.uncompressed.saturating_sub(repetition + definition);
        let codec = codec_of_values(self.shape.codec, is_compressed, left);
        let values = Values {
            source: Decompressed::open(&mut self.body, codec)?,
            left,
            keep: self.shape.keep,
        };
        read_rows(
            self.shape,
            self.dictionary,
            self.sink,
            values,
            levels,
            encoding,
            &present,
        )?;
        Ok(levels)
    }

    fn check_rows(&self, levels: usize) -> io::Result<()> {
        if levels > self.rows_left {
            return Err(malformed("pages hold more rows than the footer says"));
        }
        Ok(())
    }
}

/// Hands on the rows of a data page. Without levels, every row has an image.
fn read_rows<R: Read>(
    shape: &ChunkShape,
    dictionary: Option<(u32, u32)>,
    sink: &mut dyn Sink,
    mut values: Values<R>,
    levels: usize,
    encoding: Encoding,
    present: &[u32],
) -> io::Result<()> {
    let is_present = |row: usize| {
        let level = present.get(row);
        level.is_none_or(|level| *level == shape.present_level as u32)
    };
    let count = (0..levels).filter(|row| is_present(*row)).count();
    #[allow(deprecated)] // Old writers call places in a dictionary that.
    let is_dictionary = matches!(
        encoding,
        Encoding::RLE_DICTIONARY | Encoding::PLAIN_DICTIONARY
    );
    let mut places = Vec::new();
    if is_dictionary && count > 0 {
        let bytes = values.rest()?;
        let (width, bytes) = bytes
            .split_first()
            .ok_or_else(|| malformed("a page that ends early"))?;
        runs(bytes, u32::from(*width), count, &mut places)?;
    }
    if is_dictionary {
        let (first, end) = dictionary.ok_or_else(|| malformed("a page without its dictionary"))?;
        let mut places = places.into_iter();
        for row in 0..levels {
            let image = match is_present(row).then(|| places.next()).flatten() {
                None => NO_IMAGE,
                Some(place) if place < end - first => first + place,
                Some(_) => return Err(malformed("a place outside the dictionary")),
            };
            sink.row(image);
        }
        return Ok(());
    }
    match encoding {
        Encoding::PLAIN => read_each(sink, levels, is_present, |_| values.plain()),
        Encoding::DELTA_LENGTH_BYTE_ARRAY => {
            let lengths = values.lengths(count)?;
            read_each(sink, levels, is_present, |at| values.image(lengths[at]))
        }
        Encoding::DELTA_BYTE_ARRAY => {
            let prefixes = values.lengths(count)?;
            let lengths = values.lengths(count)?;
            let mut before: Vec<u8> = Vec::new();
            read_each(sink, levels, is_present, |at| {
                let prefix = before.get(..prefixes[at]);
                let prefix = prefix.ok_or_else(|| malformed("a prefix longer than its value"))?;
                let mut image = prefix.to_vec();
                image.extend(values.image(lengths[at])?);
                before.clone_from(&image);
                Ok(image)
            })
        }
        other => Err(malformed(&format!("images written as {other}"))),
    }
}

/// Hands on rows whose images are in the page itself.
fn read_each(
    sink: &mut dyn Sink,
    levels: usize,
    is_present: impl Fn(usize) -> bool,
    mut image: impl FnMut(usize) -> io::Result<Vec<u8>>,
) -> io::Result<()> {
    let mut at = 0;
    for row in 0..levels {
        if is_present(row) {
            let bytes = image(at)?;
            at += 1;
            sink.row(sink.images());
            sink.image(bytes)?;
        } else {
            sink.row(NO_IMAGE);
        }
    }
    Ok(())
}

/// Values of a page, as they come.
struct Values<R: Read> {
    source: Decompressed<R>,
    /// Bytes that the page still holds, as its header says.
    left: usize,
    keep: usize,
}

impl<R: Read> Values<R> {
    /// A length, and so many bytes.
    fn plain(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.source.read_exact(&mut length)?;
        self.left = self.left.saturating_sub(length.len());
        self.image(u32::from_le_bytes(length) as usize)
    }

    /// So many bytes, of which no more than may be are kept.
    fn image(&mut self, length: usize) -> io::Result<Vec<u8>> {
        if length > self.left {
            return Err(malformed("an image longer than its page"));
        }
        self.left -= length;
        let kept = length.min(self.keep);
        let mut image = Vec::with_capacity(kept);
        (&mut self.source)
            .take(kept as u64)
            .read_to_end(&mut image)?;
        let rest = (length - kept) as u64;
        let passed = io::copy(&mut (&mut self.source).take(rest), &mut io::sink())?;
        if image.len() < kept || passed < rest {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(image)
    }

    /// All that is left.
    fn rest(&mut self) -> io::Result<Vec<u8>> {
        held(&mut self.source, std::mem::take(&mut self.left))
    }

    /// Lengths written as differences.
    fn lengths(&mut self, count: usize) -> io::Result<Vec<usize>> {
        let (numbers, used) = differences(&mut self.source, count)?;
        self.left = self.left.saturating_sub(used);
        let lengths = numbers.into_iter().map(usize::try_from);
        lengths
            .collect::<Result<_, _>>()
            .map_err(|_| malformed("a negative length"))
    }
}
