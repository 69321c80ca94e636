//! A data page of long values, a piece at a time: pages of their own, with as many values as have
//! about a mebibyte.

use std::io::{self, Read};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Crc;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};

use crate::pages::codec::Decompressed;
use crate::pages::header::{PageHeader, PageKind};
use crate::pages::hybrid::{bits_of, differences, put_runs, runs};
use crate::pages::{codec_of_values, external, held};
use crate::thrift::malformed;

/// Bytes of values after which a piece is whole.
const PIECE: usize = 1 << 20;

/// The highest levels of a column.
#[derive(Debug, Clone, Copy)]
pub struct Levels {
    /// Definition level of a value.
    pub definition: i16,
    /// Repetition level within the innermost list.
    pub repetition: i16,
}

/// A page that is being read.
pub struct Pieces<R: Read> {
    highest: Levels,
    body: Body<R>,
    values: Decompressed<Body<R>>,
    crc: Option<u32>,
    /// Bytes that the page still holds, as its header says.
    left: usize,
    repetition: Vec<u32>,
    definition: Vec<u32>,
    /// Levels that were handed on.
    at: usize,
    count: usize,
    /// Lengths of the values to come, where they are written before them.
    lengths: Option<std::vec::IntoIter<i64>>,
    /// A piece that nobody has taken yet, and its levels.
    ready: Option<(Page, usize)>,
}

impl<R: Read> Pieces<R> {
    /// Whether a page can be read piece by piece.
    pub fn can_read(header: &PageHeader, codec: Compression, highest: Levels) -> bool {
        let (encoding, rle) = match header.kind {
            PageKind::Data {
                encoding,
                definition,
                repetition,
                ..
            } => {
                let levels = [
                    (definition, highest.definition),
                    (repetition, highest.repetition),
                ];
                let mut there = levels.iter().filter(|(_, highest)| *highest > 0);
                (
                    encoding,
                    there.all(|(written, _)| *written == Encoding::RLE),
                )
            }
            PageKind::DataV2 { encoding, .. } => (encoding, true),
            PageKind::Dictionary { .. } | PageKind::Other => return false,
        };
        let is_plain = matches!(
            encoding,
            Encoding::PLAIN | Encoding::DELTA_LENGTH_BYTE_ARRAY
        );
        let has_codec = matches!(
            codec,
            Compression::UNCOMPRESSED
                | Compression::ZSTD(_)
                | Compression::GZIP(_)
                | Compression::SNAPPY
                | Compression::LZ4_RAW
        );
        rle && is_plain && has_codec
    }

    /// Opens a page whose body begins with `source`.
    pub fn open(
        source: R,
        header: &PageHeader,
        codec: Compression,
        highest: Levels,
    ) -> Result<Self> {
        let body = Body::new(source, header.compressed as u64);
        let open = || -> io::Result<Self> {
            let mut left = header.uncompressed;
            let (count, encoding, mut values, repetition, definition) = match header.kind {
                PageKind::Data {
                    levels, encoding, ..
                } => {
                    let mut values = Decompressed::open(body.clone(), codec)?;
                    let mut next_levels = |highest: i16| {
                        if highest == 0 {
                            return Ok(Vec::new());
                        }
                        let mut size = [0; 4];
                        values.read_exact(&mut size)?;
                        let size = u32::from_le_bytes(size) as usize;
                        left = left.saturating_sub(4 + size);
                        levels_of(&mut values, size, highest, levels)
                    };
                    let repetition = next_levels(highest.repetition)?;
                    let definition = next_levels(highest.definition)?;
                    (levels, encoding, values, repetition, definition)
                }
                PageKind::DataV2 {
                    levels,
                    encoding,
                    repetition_bytes,
                    definition_bytes,
                    is_compressed,
                } => {
                    let mut plain = body.clone();
                    let repetition =
                        levels_of(&mut plain, repetition_bytes, highest.repetition, levels)?;
                    let definition =
                        levels_of(&mut plain, definition_bytes, highest.definition, levels)?;
                    left = left.saturating_sub(repetition_bytes + definition_bytes);
                    let codec = codec_of_values(codec, is_compressed, left);
                    let values = Decompressed::open(body.clone(), codec)?;
                    (levels, encoding, values, repetition, definition)
                }
                PageKind::Dictionary { .. } | PageKind::Other => {
                    return Err(malformed("a page without rows"));
                }
            };
            let lengths = if encoding == Encoding::DELTA_LENGTH_BYTE_ARRAY {
                let present = |level: &&u32| **level == highest.definition as u32;
                let present = match highest.definition {
                    0 => count,
                    _ => definition.iter().filter(present).count(),
                };
                let (lengths, used) = differences(&mut values, present)?;
                left = left.saturating_sub(used);
                Some(lengths.into_iter())
            } else {
                None
            };
            Ok(Self {
                highest,
                body: body.clone(),
                values,
                crc: header.crc,
                left,
                repetition,
                definition,
                at: 0,
                count,
                lengths,
                ready: None,
            })
        };
        open().map_err(external)
    }

    /// Levels of the next piece; `None` after the last.
    pub fn peek(&mut self) -> Result<Option<usize>> {
        if self.ready.is_none() {
            self.ready = self.read()?;
        }
        Ok(self.ready.as_ref().map(|(_, levels)| *levels))
    }

    /// The next piece; `None` after the last.
    pub fn next(&mut self) -> Result<Option<Page>> {
        self.peek()?;
        Ok(self.ready.take().map(|(page, _)| page))
    }

    fn read(&mut self) -> Result<Option<(Page, usize)>> {
        if self.at == self.count {
            self.end()?;
            return Ok(None);
        }
        let from = self.at;
        let mut values = Vec::new();
        while self.at < self.count && values.len() < PIECE {
            let level = self.definition.get(self.at);
            if level.is_none_or(|level| *level == self.highest.definition as u32) {
                self.value(&mut values).map_err(external)?;
            }
            self.at += 1;
        }
        let mut page = Vec::with_capacity(values.len() + 1024);
        let levels = [
            (&self.repetition, self.highest.repetition),
            (&self.definition, self.highest.definition),
        ];
        for (levels, highest) in levels.into_iter().filter(|(_, highest)| *highest > 0) {
            let mut encoded = Vec::new();
            put_runs(&levels[from..self.at], bits_of(highest), &mut encoded);
            page.extend((encoded.len() as u32).to_le_bytes());
            page.extend(encoded);
        }
        page.append(&mut values);
        let count = self.at - from;
        let page = Page::DataPage {
            buf: page.into(),
            num_values: count as u32,
            encoding: Encoding::PLAIN,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        Ok(Some((page, count)))
    }

    /// Appends the next value to `values`: its length, and its bytes.
    fn value(&mut self, values: &mut Vec<u8>) -> io::Result<()> {
        let length = match &mut self.lengths {
            Some(lengths) => {
                let length = lengths.next().and_then(|length| u32::try_from(length).ok());
                length.ok_or_else(|| malformed("a negative length"))?
            }
            None => {
                let mut length = [0; 4];
                self.values.read_exact(&mut length)?;
                self.left = self.left.saturating_sub(length.len());
                u32::from_le_bytes(length)
            }
        };
        let size = length as usize;
        if size > self.left {
            return Err(malformed("a value longer than its page"));
        }
        self.left -= size;
        values.extend(length.to_le_bytes());
        let taken = (&mut self.values)
            .take(u64::from(length))
            .read_to_end(values)?;
        if taken < size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads what is left of the page, and compares its checksum.
    fn end(&mut self) -> Result<()> {
        io::copy(&mut self.body, &mut io::sink()).map_err(external)?;
        let (left, sum) = self.body.state();
        if left > 0 {
            return Err(external(io::ErrorKind::UnexpectedEof.into()));
        }
        if self.crc.take().is_some_and(|crc| crc != sum) {
            return Err(ParquetError::General(
                "Page CRC checksum mismatch".to_owned(),
            ));
        }
        Ok(())
    }
}

fn levels_of(
    source: &mut impl Read,
    size: usize,
    highest: i16,
    count: usize,
) -> io::Result<Vec<u32>> {
    let bytes = held(source, size)?;
    let mut levels = Vec::new();
    if highest > 0 {
        runs(&bytes, bits_of(highest), count, &mut levels)?;
    }
    Ok(levels)
}

/// The bytes of a page in the file: what a codec leaves unread is read after it.
struct Body<R>(Arc<Mutex<(io::Take<R>, Crc)>>);

impl<R> Clone for Body<R> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<R: Read> Body<R> {
    fn new(source: R, size: u64) -> Self {
        Self(Arc::new(Mutex::new((source.take(size), Crc::new()))))
    }

    /// Bytes that were not read, and the checksum of those that were.
    fn state(&self) -> (u64, u32) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (state.0.limit(), state.1.sum())
    }
}

impl<R: Read> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = state.0.read(buffer)?;
        state.1.update(&buffer[..count]);
        Ok(count)
    }
}
