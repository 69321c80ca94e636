//! Pages decompressed as they stream by.

use std::io::{self, Read};

use parquet::basic::Compression;

use crate::pages::window::{Lz4, Snappy, Windowed};
use crate::thrift::malformed;

/// A reader of decompressed bytes.
pub enum Decompressed<R: Read> {
    /// As they are.
    Stored(R),
    /// Zstandard.
    Zstd(Box<zstd::stream::read::Decoder<'static, io::BufReader<R>>>),
    /// Deflate with gzip's frame.
    Gzip(Box<flate2::read::MultiGzDecoder<R>>),
    /// One raw Snappy block.
    Snappy(Box<Windowed<R, Snappy>>),
    /// One raw LZ4 block.
    Lz4(Box<Windowed<R, Lz4>>),
}

impl<R: Read> Decompressed<R> {
    /// Opens the body of a page.
    pub fn open(source: R, codec: Compression) -> io::Result<Self> {
        Ok(match codec {
            Compression::UNCOMPRESSED => Self::Stored(source),
            Compression::ZSTD(_) => Self::Zstd(Box::new(zstd::stream::read::Decoder::new(source)?)),
            Compression::GZIP(_) => Self::Gzip(Box::new(flate2::read::MultiGzDecoder::new(source))),
            Compression::SNAPPY => Self::Snappy(Box::new(Windowed::snappy(source)?)),
            Compression::LZ4_RAW => Self::Lz4(Box::new(Windowed::lz4(source))),
            other => {
                return Err(malformed(&format!(
                    "values compressed with {other} cannot be streamed; write them uncompressed, or with zstd"
                )));
            }
        })
    }
}

impl<R: Read> Read for Decompressed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(source) => source.read(buffer),
            Self::Zstd(source) => source.read(buffer),
            Self::Gzip(source) => source.read(buffer),
            Self::Snappy(source) => source.read(buffer),
            Self::Lz4(source) => source.read(buffer),
        }
    }
}
