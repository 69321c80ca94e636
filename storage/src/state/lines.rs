//! JSON lines compressed with zstd; the first line is a header with a `version`.

use std::io::{BufRead, BufReader, Write};

use bytes::Bytes;
use bytes::buf::{Buf, Reader};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::document::{check_version, from_json, malformed};
use super::error::Result;

const LEVEL: i32 = 3;
const READ_BUFFER: usize = 128 << 10;

/// Collects lines into the bytes of a file.
pub(crate) struct LinesWriter {
    file: String,
    what: &'static str,
    encoder: zstd::Encoder<'static, Vec<u8>>,
    line: Vec<u8>,
}

impl LinesWriter {
    /// Begins a file with its header.
    pub(crate) fn new(file: &str, what: &'static str, header: &impl Serialize) -> Result<Self> {
        let encoder =
            zstd::Encoder::new(Vec::new(), LEVEL).map_err(|error| malformed(file, what, error))?;
        let mut writer = Self {
            file: file.to_owned(),
            what,
            encoder,
            line: Vec::new(),
        };
        writer.push(header)?;
        Ok(writer)
    }

    /// Adds a line.
    pub(crate) fn push(&mut self, line: &impl Serialize) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)
            .map_err(|error| malformed(&self.file, self.what, error))?;
        self.line.push(b'\n');
        self.encoder
            .write_all(&self.line)
            .map_err(|error| malformed(&self.file, self.what, error))
    }

    /// The bytes of the whole file.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        let Self {
            file,
            what,
            encoder,
            ..
        } = self;
        encoder
            .finish()
            .map_err(|error| malformed(&file, what, error))
    }
}

/// Reads lines one by one: memory is the compressed bytes and a buffer.
pub(crate) struct LinesReader {
    file: String,
    what: &'static str,
    input: BufReader<zstd::Decoder<'static, Reader<Bytes>>>,
    line: Vec<u8>,
}

impl LinesReader {
    /// Opens the bytes of a file and parses its header.
    pub(crate) fn open<H: DeserializeOwned>(
        file: &str,
        what: &'static str,
        bytes: Bytes,
    ) -> Result<(H, Self)> {
        let decoder = zstd::Decoder::with_buffer(bytes.reader())
            .map_err(|error| malformed(file, what, error))?;
        let mut reader = Self {
            file: file.to_owned(),
            what,
            input: BufReader::with_capacity(READ_BUFFER, decoder),
            line: Vec::new(),
        };
        if !reader.fill()? {
            return Err(malformed(file, what, "it has no header line"));
        }
        check_version(file, what, &reader.line)?;
        let header = from_json(file, what, &reader.line)?;
        Ok((header, reader))
    }

    /// The next line; `None` at the end.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        if self.fill()? {
            from_json(&self.file, self.what, &self.line).map(Some)
        } else {
            Ok(None)
        }
    }

    fn fill(&mut self) -> Result<bool> {
        self.line.clear();
        let length = self
            .input
            .read_until(b'\n', &mut self.line)
            .map_err(|error| malformed(&self.file, self.what, error))?;
        if length > 0 && self.line.last() != Some(&b'\n') {
            return Err(malformed(&self.file, self.what, "its last line is cut"));
        }
        Ok(length > 0)
    }
}
