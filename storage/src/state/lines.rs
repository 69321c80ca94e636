//! JSON lines compressed with zstd; the first line is a header with a `version`.

use std::io::{BufRead, BufReader, Cursor, Read, Write};

use bytes::Bytes;
use bytes::buf::Buf;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::document::{check_size, check_version, from_json, malformed, too_large};
use super::error::Result;
use super::limits::{self, LinesLimit};

const LEVEL: i32 = 3;
const READ_BUFFER: usize = 128 << 10;
/// Files of fewer bytes, decompressed, are held as they are.
const SMALL: u64 = 256 << 10;

/// Collects lines into the bytes of a file.
pub(crate) struct LinesWriter {
    file: String,
    what: &'static str,
    limit: LinesLimit,
    encoder: zstd::Encoder<'static, Vec<u8>>,
    text: u64,
    line: Vec<u8>,
}

impl LinesWriter {
    /// Begins a file with its header.
    pub(crate) fn new(
        file: &str,
        what: &'static str,
        limit: LinesLimit,
        header: &impl Serialize,
    ) -> Result<Self> {
        let encoder =
            zstd::Encoder::new(Vec::new(), LEVEL).map_err(|error| malformed(file, what, error))?;
        let mut writer = Self {
            file: file.to_owned(),
            what,
            limit,
            encoder,
            text: 0,
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
        check_line(&self.file, self.what, self.line.len())?;
        self.text += self.line.len() as u64;
        check_size(&self.file, self.what, self.text, self.limit.text)?;
        self.encoder
            .write_all(&self.line)
            .map_err(|error| malformed(&self.file, self.what, error))
    }

    /// The bytes of the whole file.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        let Self {
            file,
            what,
            limit,
            encoder,
            ..
        } = self;
        let bytes = encoder
            .finish()
            .map_err(|error| malformed(&file, what, error))?;
        check_size(&file, what, bytes.len() as u64, limit.file)?;
        Ok(bytes)
    }
}

/// Reads lines one by one: memory is the compressed bytes and a buffer, or all of the lines where
/// they are few.
pub(crate) struct LinesReader {
    file: String,
    what: &'static str,
    input: Box<dyn BufRead + Send>,
    cost: u64,
    limit: u64,
    left: u64,
    line: Vec<u8>,
}

impl LinesReader {
    /// Opens the bytes of a file and parses its header.
    pub(crate) fn open<H: DeserializeOwned>(
        file: &str,
        what: &'static str,
        limit: LinesLimit,
        bytes: Bytes,
    ) -> Result<(H, Self)> {
        let broken = |error| malformed(file, what, error);
        let size = bytes.len() as u64;
        check_size(file, what, size, limit.file)?;
        let mut decoder = zstd::Decoder::with_buffer(bytes.reader()).map_err(broken)?;
        decoder.window_log_max(limits::WINDOW_LOG).map_err(broken)?;
        // Many small files may be open at once: what decompresses them costs more than their lines.
        let mut beginning = Vec::new();
        let mut first = (&mut decoder).take(SMALL);
        first.read_to_end(&mut beginning).map_err(broken)?;
        let length = beginning.len() as u64;
        let beginning = Cursor::new(beginning);
        let (input, cost): (Box<dyn BufRead + Send>, u64) = if length < SMALL {
            (Box::new(beginning), length)
        } else {
            let rest = BufReader::with_capacity(READ_BUFFER, decoder);
            let window = 1 << limits::WINDOW_LOG;
            let cost = length + size + window + READ_BUFFER as u64;
            (Box::new(Read::chain(beginning, rest)), cost)
        };
        let mut reader = Self {
            file: file.to_owned(),
            what,
            input,
            cost,
            limit: limit.text,
            left: limit.text,
            line: Vec::new(),
        };
        if !reader.fill()? {
            return Err(malformed(file, what, "it has no header line"));
        }
        check_version(file, what, &reader.line)?;
        let header = from_json(file, what, &reader.line)?;
        Ok((header, reader))
    }

    /// Bytes of memory that this takes while it is open.
    pub(crate) fn cost(&self) -> u64 {
        self.cost
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
        let length = (&mut self.input)
            .take(limits::LINE as u64 + 1)
            .read_until(b'\n', &mut self.line)
            .map_err(|error| malformed(&self.file, self.what, error))?;
        check_line(&self.file, self.what, length)?;
        let Some(left) = self.left.checked_sub(length as u64) else {
            let found = format!("lines of more than {} bytes", self.limit);
            return Err(too_large(&self.file, self.what, found, self.limit));
        };
        self.left = left;
        if length > 0 && self.line.last() != Some(&b'\n') {
            return Err(malformed(&self.file, self.what, "its last line is cut"));
        }
        Ok(length > 0)
    }
}

fn check_line(file: &str, what: &'static str, length: usize) -> Result<()> {
    if length <= limits::LINE {
        return Ok(());
    }
    let found = format!("a line of more than {} bytes", limits::LINE);
    Err(too_large(file, what, found, limits::LINE))
}

#[cfg(test)]
mod tests;
