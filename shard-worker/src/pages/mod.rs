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
use crate::thrift::malformed;

/// Levels of a page, and places in a dictionary, which are held, take no more bytes.
const LARGEST_LEVELS: usize = 64 << 20;
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

/// The next bytes of a page, which are held.
///
/// # Errors
/// If they are too many, or not there.
pub fn held(source: &mut impl Read, size: usize) -> std::io::Result<Vec<u8>> {
    if size > LARGEST_LEVELS {
        return Err(malformed("levels of more bytes than rows"));
    }
    let mut bytes = Vec::new();
    source.take(size as u64).read_to_end(&mut bytes)?;
    if bytes.len() < size {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(bytes)
}

/// The codec of a newer data page's values, of which there are `left` bytes once decompressed.
pub fn codec_of_values(codec: Compression, is_compressed: bool, left: usize) -> Compression {
    // A page of nulls has no values, and no frame of a codec either.
    if is_compressed && left > 0 {
        codec
    } else {
        Compression::UNCOMPRESSED
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

#[cfg(test)]
mod tests {
    use arrow::array::{Array, LargeStringArray, LargeStringBuilder, ListBuilder, RecordBatch};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Encoding, GzipLevel, ZstdLevel};
    use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
    use parquet::data_type::{ByteArray, ByteArrayType};
    use parquet::file::metadata::ParquetMetaDataReader;
    use parquet::file::properties::{WriterProperties, WriterVersion};

    use super::*;
    use crate::leaf::page_reader;

    const ROWS: usize = 60;

    /// Texts of up to a megabyte, some null or empty.
    fn texts() -> impl Iterator<Item = Option<String>> {
        (0..ROWS).map(|row| match row % 7 {
            3 => None,
            5 => Some(String::new()),
            _ => Some(format!("{row} ").repeat(row * 1_500)),
        })
    }

    fn lists() -> Arc<dyn Array> {
        let mut lists = ListBuilder::new(LargeStringBuilder::new());
        for (row, text) in texts().enumerate() {
            if row % 4 > 0 {
                (0..row % 4).for_each(|_| lists.values().append_option(text.as_deref()));
            }
            lists.append(row % 9 > 0);
        }
        Arc::new(lists.finish())
    }

    fn flat() -> Arc<dyn Array> {
        Arc::new(texts().collect::<LargeStringArray>())
    }

    /// A file whose column is one page.
    fn file(
        array: Arc<dyn Array>,
        codec: Compression,
        version: WriterVersion,
        encoding: Encoding,
    ) -> Bytes {
        let batch = RecordBatch::try_from_iter_with_nullable([("t", array, true)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_encoding(encoding)
            .set_compression(codec)
            .set_data_page_size_limit(1 << 30)
            .set_write_page_header_statistics(false)
            .build();
        let mut writer =
            ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        Bytes::from(writer.into_inner().unwrap())
    }

    type Read = (Vec<i16>, Vec<i16>, Vec<ByteArray>);

    /// Levels and values, read three records at a time.
    fn read(
        pages: Box<dyn PageReader>,
        metadata: &parquet::file::metadata::ParquetMetaData,
    ) -> Result<Read> {
        let descriptor = metadata.file_metadata().schema_descr().column(0);
        let has_lists = descriptor.max_rep_level() > 0;
        let mut reader: ColumnReaderImpl<ByteArrayType> =
            get_typed_column_reader(get_column_reader(descriptor, pages));
        let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let lists = has_lists.then_some(&mut repetition);
            let read = reader.read_records(3, Some(&mut definition), lists, &mut values)?;
            if read.0 == 0 {
                return Ok((definition, repetition, values));
            }
        }
    }

    #[test]
    fn pieces_make_up_the_page() {
        let codecs = [
            Compression::UNCOMPRESSED,
            Compression::SNAPPY,
            Compression::GZIP(GzipLevel::default()),
            Compression::LZ4_RAW,
            Compression::ZSTD(ZstdLevel::default()),
        ];
        for array in [flat(), lists()] {
            for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                for encoding in [Encoding::PLAIN, Encoding::DELTA_LENGTH_BYTE_ARRAY] {
                    for codec in codecs {
                        let about =
                            format!("{:?} {version:?} {encoding} {codec}", array.data_type());
                        let file = file(array.clone(), codec, version, encoding);
                        let metadata = ParquetMetaDataReader::new()
                            .parse_and_finish(&file)
                            .unwrap();
                        let group = metadata.row_group(0);
                        let source = Arc::new(file);
                        let mut pages = page_reader(source.clone(), group, 0).unwrap();
                        let (mut count, mut largest) = (0, 0);
                        while let Some(page) = pages.get_next_page().unwrap() {
                            count += 1;
                            largest = largest.max(page.buffer().len());
                        }
                        assert!(
                            count >= 5 && largest < 3 << 20,
                            "{about}: {count} of {largest}"
                        );
                        let whole =
                            SerializedPageReader::new(source.clone(), group.column(0), ROWS, None);
                        let expected = read(Box::new(whole.unwrap()), &metadata).unwrap();
                        let pages = page_reader(source.clone(), group, 0).unwrap();
                        assert!(read(pages, &metadata).unwrap() == expected, "{about}");
                        // A page that nobody has begun with is passed over as a whole.
                        let mut pages = page_reader(source, group, 0).unwrap();
                        let levels = pages.peek_next_page().unwrap().unwrap();
                        assert_eq!(levels.num_levels, Some(expected.0.len()), "{about}");
                        pages.skip_next_page().unwrap();
                        assert!(pages.get_next_page().unwrap().is_none(), "{about}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_wrong_checksum_is_found() {
        let codec = Compression::SNAPPY;
        let file = file(flat(), codec, WriterVersion::PARQUET_1_0, Encoding::PLAIN);
        let metadata = ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .unwrap();
        let start = chunk_start(metadata.row_group(0).column(0)) as usize;
        let mut rest = &file[start..];
        let header = PageHeader::read(&mut rest).unwrap();
        let body = &rest[..header.compressed];
        let mut sum = flate2::Crc::new();
        sum.update(body);
        for (crc, is_right) in [(sum.sum(), true), (sum.sum() ^ 1, false)] {
            let header = PageHeader {
                crc: Some(crc),
                ..header
            };
            let highest = Levels {
                definition: 1,
                repetition: 0,
            };
            let mut pieces = Pieces::open(body, &header, codec, highest).unwrap();
            let end = loop {
                match pieces.next() {
                    Ok(Some(_)) => {}
                    end => break end,
                }
            };
            assert_eq!(end.is_ok(), is_right);
        }
    }
}
