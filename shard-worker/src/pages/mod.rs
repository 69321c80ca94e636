//! The pages of a column chunk. One of long values is decompressed and handed on piece by piece:
//! writers put a thousand values, or a whole row group, into a page, however long they are.

pub mod codec;
pub mod header;
pub mod hybrid;
mod pieces;
pub mod window;

use std::io::Read;
use std::sync::Arc;

use parquet::basic::{Compression, Type as PhysicalType};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, SerializedPageReader};

use crate::pages::header::{PageHeader, PageKind};
use crate::pages::pieces::{Levels, Pieces};
use crate::parquet_file::chunk_start;

/// Pages of more bytes come in pieces, if they can.
const LARGEST_PAGE: usize = 2 << 20;

/// Reads pages, the large ones of texts and blobs piece by piece.
pub struct BoundedPages<R: ChunkReader> {
    whole: SerializedPageReader<R>,
    source: Arc<R>,
    codec: Compression,
    levels: Levels,
    /// Where the header of the next page is; none once that can't be told.
    at: Option<u64>,
    end: u64,
    /// The header of the next page, and where its body is.
    next: Option<(PageHeader, u64)>,
    pieces: Option<Pieces<R::T>>,
}

/// Whether a chunk may have pages that come in pieces.
pub fn may_be_large(chunk: &ColumnChunkMetaData) -> bool {
    let is_long = usize::try_from(chunk.uncompressed_size()).is_ok_and(|size| size > LARGEST_PAGE);
    is_long && chunk.column_type() == PhysicalType::BYTE_ARRAY
}

impl<R: ChunkReader> BoundedPages<R>
where
    R::T: Send + 'static,
{
    /// Pages of a chunk, which `whole` reads one by one.
    pub fn new(
        source: Arc<R>,
        chunk: &ColumnChunkMetaData,
        whole: SerializedPageReader<R>,
    ) -> Self {
        let start = u64::try_from(chunk_start(chunk)).unwrap_or(0);
        let length = u64::try_from(chunk.compressed_size()).unwrap_or(0);
        let descriptor = chunk.column_descr();
        Self {
            whole,
            source,
            codec: chunk.compression(),
            levels: Levels {
                definition: descriptor.max_def_level(),
                repetition: descriptor.max_rep_level(),
            },
            at: Some(start),
            end: start.saturating_add(length),
            next: None,
            pieces: None,
        }
    }

    /// Reads the header of the next page, if nobody has.
    fn look(&mut self) {
        while self.next.is_none() {
            let Some(at) = self.at.filter(|at| *at < self.end) else {
                return;
            };
            let read = || {
                let mut counted = Counted(self.source.get_read(at).ok()?, 0);
                let header = PageHeader::read(&mut counted).ok()?;
                Some((header, at + counted.1))
            };
            match read() {
                Some((header, body)) if header.kind == PageKind::Other => {
                    self.at = Some(body + header.compressed as u64);
                }
                Some(found) => self.next = Some(found),
                // Whoever reads it as a whole says what is wrong with it.
                None => self.at = None,
            }
        }
    }

    /// Leaves the next page to whoever reads it as a whole.
    fn pass(&mut self) {
        self.look();
        if let Some((header, body)) = self.next.take() {
            self.at = Some(body + header.compressed as u64);
        }
    }

    /// Begins with the next page, if it comes in pieces.
    fn begin(&mut self) -> Result<bool> {
        self.look();
        let Some((header, body)) = self.next else {
            return Ok(false);
        };
        let can_read = Pieces::<R::T>::can_read(&header, self.codec, self.levels);
        if header.uncompressed <= LARGEST_PAGE || !can_read {
            return Ok(false);
        }
        let source = self.source.get_read(body)?;
        self.pieces = Some(Pieces::open(source, &header, self.codec, self.levels)?);
        self.whole.skip_next_page()?;
        self.pass();
        Ok(true)
    }
}

impl<R: ChunkReader> PageReader for BoundedPages<R>
where
    R::T: Send + 'static,
{
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        loop {
            if let Some(pieces) = &mut self.pieces {
                match pieces.next()? {
                    Some(page) => return Ok(Some(page)),
                    None => self.pieces = None,
                }
            }
            if !self.begin()? {
                self.pass();
                return self.whole.get_next_page();
            }
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        if let Some(pieces) = &mut self.pieces {
            match pieces.peek()? {
                Some(levels) => {
                    return Ok(Some(PageMetadata {
                        num_rows: None,
                        num_levels: Some(levels),
                        is_dict: false,
                    }));
                }
                None => self.pieces = None,
            }
        }
        self.whole.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        if let Some(pieces) = &mut self.pieces {
            match pieces.next()? {
                Some(_) => return Ok(()),
                None => self.pieces = None,
            }
        }
        self.pass();
        self.whole.skip_next_page()
    }

    fn supports_deferred_dictionary(&self) -> bool {
        self.whole.supports_deferred_dictionary()
    }

    fn take_deferred_dictionary(&mut self) -> Result<Option<Page>> {
        self.whole.take_deferred_dictionary()
    }
}

impl<R: ChunkReader> Iterator for BoundedPages<R>
where
    R::T: Send + 'static,
{
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

/// Counts the bytes that are read.
struct Counted<R>(R, u64);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1 += count as u64;
        Ok(count)
    }
}

fn external(error: std::io::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}
