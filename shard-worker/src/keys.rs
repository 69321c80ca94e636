//! Key columns as bytes.

use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::data_type::{
    ByteArray, ByteArrayType, DataType, FixedLenByteArray, FixedLenByteArrayType, Int32Type,
    Int64Type,
};
use parquet::file::reader::ChunkReader;
use parquet::schema::types::ColumnDescriptor;

use crate::error::ShardError;
use crate::leaf::LeafReader;
use crate::parquet_file::{ParquetFile, hex};

/// Keys are compared as bytes; some kinds can never be equal to one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Strings, as stored.
    Text,
    /// Bytes that may be anything.
    Binary,
    /// The sixteen bytes of a UUID.
    Uuid,
    /// Signed or unsigned integers, as eight little-endian bytes; unsigned ones beyond the
    /// signed range have a ninth.
    Integer,
    /// There is no row, whatever the type: writers that see no value guess one.
    Nothing,
}

impl KeyKind {
    /// What the kind is called in messages.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Binary => "binary",
            Self::Uuid => "UUID (16 bytes)",
            Self::Integer => "integer",
            Self::Nothing => "empty",
        }
    }

    /// Whether a key of one kind may equal one of the other.
    pub fn can_equal(self, other: Self) -> bool {
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) => true,
            (Self::Integer, _) | (_, Self::Integer) => self == other,
            (Self::Text, Self::Uuid) | (Self::Uuid, Self::Text) => false,
            _ => true,
        }
    }
}

/// An integer as a key: eight little-endian bytes. A ninth keeps the upper half of unsigned
/// numbers apart from negative ones.
pub fn integer_key(value: i64, is_unsigned: bool) -> ([u8; 9], usize) {
    let mut bytes = [1; 9];
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    let length = if is_unsigned && value < 0 { 9 } else { 8 };
    (bytes, length)
}

/// A key column of one file: bytes end to end, and where each row's key ends.
#[derive(Debug, Clone)]
pub struct KeyColumn {
    /// What the bytes stand for.
    pub kind: KeyKind,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    nulls: Vec<u32>,
}

impl KeyColumn {
    /// An empty column.
    pub fn new(kind: KeyKind) -> Self {
        Self {
            kind,
            bytes: Vec::new(),
            ends: Vec::new(),
            nulls: Vec::new(),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The key of a row; `None` is a null key, which never equals any other.
    #[inline]
    pub fn get(&self, row: usize) -> Option<&[u8]> {
        let end = self.ends[row] as usize;
        let start = if row == 0 {
            0
        } else {
            self.ends[row - 1] as usize
        };
        if start == end && self.nulls.binary_search(&(row as u32)).is_ok() {
            return None;
        }
        Some(&self.bytes[start..end])
    }

    /// Rows without a key.
    pub fn null_count(&self) -> usize {
        self.nulls.len()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.bytes.capacity() + 4 * (self.ends.capacity() + self.nulls.capacity())
    }

    /// Appends a row. A column of over 4 GiB of keys is refused.
    pub fn push(&mut self, key: Option<&[u8]>) -> Result<(), &'static str> {
        match key {
            Some(key) => self.bytes.extend_from_slice(key),
            None => self.nulls.push(self.ends.len() as u32),
        }
        let end =
            u32::try_from(self.bytes.len()).map_err(|_| "one shard holds over 4 GiB of keys")?;
        self.ends.push(end);
        Ok(())
    }

    /// Some of its rows.
    pub fn part(&self, rows: Range<usize>) -> Self {
        let end_of = |row: usize| row.checked_sub(1).map_or(0, |before| self.ends[before]);
        let (first, last) = (end_of(rows.start), end_of(rows.end));
        let place = |row: usize| self.nulls.partition_point(|&null| (null as usize) < row);
        let nulls = &self.nulls[place(rows.start)..place(rows.end)];
        let ends = &self.ends[rows.clone()];
        Self {
            kind: self.kind,
            bytes: self.bytes[first as usize..last as usize].to_vec(),
            ends: ends.iter().map(|end| end - first).collect(),
            nulls: nulls.iter().map(|row| row - rows.start as u32).collect(),
        }
    }

    /// First row at which the two differ, null against null being a difference.
    pub fn first_difference(&self, other: &Self) -> Option<usize> {
        if self.nulls.is_empty()
            && other.nulls.is_empty()
            && self.ends == other.ends
            && self.bytes == other.bytes
        {
            return None;
        }
        let rows = self.len().min(other.len());
        let differs = |&row: &usize| match (self.get(row), other.get(row)) {
            (Some(left), Some(right)) => left != right,
            _ => true,
        };
        (0..rows)
            .find(differs)
            .or((self.len() != other.len()).then_some(rows))
    }
}

/// Shows a key in a message.
pub fn show(key: Option<&[u8]>, kind: KeyKind) -> String {
    match (key, kind) {
        (None, _) => "null".to_owned(),
        (Some(key), KeyKind::Text | KeyKind::Binary | KeyKind::Nothing) => {
            format!("{:?}", String::from_utf8_lossy(key))
        }
        (Some(key), KeyKind::Uuid) => hex(key),
        (Some(key), KeyKind::Integer) => match <[u8; 8]>::try_from(key) {
            Ok(bytes) => i64::from_le_bytes(bytes).to_string(),
            Err(_) => match key.first_chunk() {
                Some(bytes) => u64::from_le_bytes(*bytes).to_string(),
                None => format!("{key:?}"),
            },
        },
    }
}

/// Where a key column is among the columns of a file.
pub fn root_of(file: &ParquetFile, name: &str) -> Result<usize, ShardError> {
    file.root(name).ok_or_else(|| {
        ShardError::schema(
            &file.uri,
            format!(
                "no key column {name:?} (named by spec.dataset.keyColumn, or by a step's sourceKeyColumn or targetKeyColumn); its columns are {}",
                file.column_names()
            ),
        )
    })
}

/// Which kind of key a leaf holds, or why it cannot be a key.
pub fn kind_of(file: &ParquetFile, name: &str) -> Result<(usize, KeyKind), ShardError> {
    let root = root_of(file, name)?;
    if !file.roots()[root].is_primitive() {
        return Err(ShardError::schema(
            &file.uri,
            format!("key column {name:?} is nested; expected strings, binary or integers"),
        ));
    }
    let leaf = file.leaves_of(root).start;
    file.check_plain(leaf)?;
    let descriptor = file.metadata.file_metadata().schema_descr().column(leaf);
    if descriptor.max_rep_level() > 0 {
        return Err(ShardError::schema(
            &file.uri,
            format!("key column {name:?} is a list; expected strings, binary or integers"),
        ));
    }
    if file.num_rows() == 0 {
        return Ok((leaf, KeyKind::Nothing));
    }
    // Older writers annotate by converted type alone.
    let (logical, converted) = (descriptor.logical_type_ref(), descriptor.converted_type());
    let plain_integer = match logical {
        Some(LogicalType::Integer(_)) => true,
        Some(_) => false,
        None => matches!(
            converted,
            ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64
                | ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        ),
    };
    let number_as_bytes =
        matches!(
            logical,
            Some(LogicalType::Decimal(_) | LogicalType::Float16)
        ) || matches!(converted, ConvertedType::DECIMAL | ConvertedType::INTERVAL);
    let is_text = matches!(
        logical,
        Some(LogicalType::String | LogicalType::Enum | LogicalType::Json)
    ) || matches!(
        converted,
        ConvertedType::UTF8 | ConvertedType::ENUM | ConvertedType::JSON
    );
    let kind = match descriptor.physical_type() {
        PhysicalType::BYTE_ARRAY if is_text => KeyKind::Text,
        PhysicalType::FIXED_LEN_BYTE_ARRAY if matches!(logical, Some(LogicalType::Uuid)) => {
            KeyKind::Uuid
        }
        PhysicalType::BYTE_ARRAY | PhysicalType::FIXED_LEN_BYTE_ARRAY if !number_as_bytes => {
            KeyKind::Binary
        }
        PhysicalType::INT32 | PhysicalType::INT64 if plain_integer => KeyKind::Integer,
        other => {
            let annotated = match logical {
                Some(logical) => format!("{other} ({logical:?})"),
                None if converted != ConvertedType::NONE => format!("{other} ({converted})"),
                None => other.to_string(),
            };
            return Err(ShardError::schema(
                &file.uri,
                format!(
                    "key column {name:?} is stored as {annotated}; expected strings, binary or integers"
                ),
            ));
        }
    };
    Ok((leaf, kind))
}

/// Decodes the key column `name`, whose chunks must have been fetched.
pub fn read(file: &ParquetFile, name: &str) -> Result<KeyColumn, ShardError> {
    let (leaf, kind) = kind_of(file, name)?;
    let mut column = KeyColumn::new(kind);
    // What a footer claims is believed up to here; more grows with the rows that there are.
    column.ends.reserve_exact(file.num_rows().min(1 << 20));
    for (group, rows) in file.groups() {
        if column.is_empty() {
            let bytes = file
                .metadata
                .row_group(group)
                .column(leaf)
                .uncompressed_size()
                .max(0) as usize;
            column
                .bytes
                .reserve(bytes.min(file.num_rows().saturating_mul(256)).min(1 << 28));
        }
        let before = column.len();
        visit(file.bytes.clone(), file, group, leaf, |_, key| {
            column.push(key)
        })
        .map_err(|error| {
            ShardError::malformed(
                &file.uri,
                format!("row group {group}, key column {name:?}: {error}"),
            )
        })?;
        if column.len() - before != rows {
            return Err(ShardError::malformed(
                &file.uri,
                format!(
                    "row group {group}: {} keys for {rows} rows",
                    column.len() - before
                ),
            ));
        }
    }
    Ok(column)
}

/// Why a visit ended early.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// The column cannot be read.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
    /// The visitor refused a key.
    #[error("{0}")]
    Refused(&'static str),
}

/// Calls `visit(row in group, key)` for every row of one row group, in order.
pub fn visit<R: ChunkReader + 'static>(
    source: Arc<R>,
    file: &ParquetFile,
    group: usize,
    leaf: usize,
    visit: impl FnMut(usize, Option<&[u8]>) -> Result<(), &'static str>,
) -> Result<(), VisitError>
where
    R::T: Send + 'static,
{
    visit_part(source, file, group, leaf, 0..usize::MAX, visit)
}

/// As [`visit`], for the rows of those pages that begin within `part`.
pub fn visit_part<R: ChunkReader + 'static>(
    source: Arc<R>,
    file: &ParquetFile,
    group: usize,
    leaf: usize,
    part: Range<usize>,
    mut visit: impl FnMut(usize, Option<&[u8]>) -> Result<(), &'static str>,
) -> Result<(), VisitError>
where
    R::T: Send + 'static,
{
    let descriptor = file.metadata.file_metadata().schema_descr().column(leaf);
    match descriptor.physical_type() {
        PhysicalType::BYTE_ARRAY => {
            each::<ByteArrayType, R>(source, file, group, leaf, part, |row, value| {
                visit(row, value.map(ByteArray::data))
            })
        }
        PhysicalType::FIXED_LEN_BYTE_ARRAY => {
            each::<FixedLenByteArrayType, R>(source, file, group, leaf, part, |row, value| {
                visit(row, value.map(|value: &FixedLenByteArray| value.data()))
            })
        }
        PhysicalType::INT32 => {
            let unsigned = is_unsigned(descriptor.as_ref());
            each::<Int32Type, R>(source, file, group, leaf, part, |row, value| {
                let wide = |&value: &i32| {
                    if unsigned {
                        i64::from(value as u32)
                    } else {
                        i64::from(value)
                    }
                };
                let bytes = value.map(wide).map(i64::to_le_bytes);
                visit(row, bytes.as_ref().map(<[u8; 8]>::as_slice))
            })
        }
        PhysicalType::INT64 => {
            let unsigned = is_unsigned(descriptor.as_ref());
            each::<Int64Type, R>(source, file, group, leaf, part, |row, value| {
                let key = value.map(|&value| integer_key(value, unsigned));
                visit(row, key.as_ref().map(|(bytes, length)| &bytes[..*length]))
            })
        }
        _ => Err(VisitError::Refused("the column cannot hold keys")),
    }
}

/// Whether the integers of a column are unsigned ones.
pub fn is_unsigned(descriptor: &ColumnDescriptor) -> bool {
    match descriptor.logical_type_ref() {
        Some(LogicalType::Integer(integer)) => !integer.is_signed,
        _ => matches!(
            descriptor.converted_type(),
            ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64
        ),
    }
}

fn each<T: DataType, R: ChunkReader + 'static>(
    source: Arc<R>,
    file: &ParquetFile,
    group: usize,
    leaf: usize,
    part: Range<usize>,
    mut visit: impl FnMut(usize, Option<&T::T>) -> Result<(), &'static str>,
) -> Result<(), VisitError>
where
    R::T: Send + 'static,
{
    let mut reader = LeafReader::<T>::open_part(source, &file.metadata, group, leaf, part)?;
    let mut base = reader.first_row();
    while let Some(batch) = reader.next_batch()? {
        let mut refused = None;
        batch.for_each(|row, value| {
            if refused.is_none() {
                refused = visit(base + row, value).err();
            }
        });
        if let Some(reason) = refused {
            return Err(VisitError::Refused(reason));
        }
        base += batch.rows;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::basic::{Compression, Repetition};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::types::Type;
    use storage::{ETag, ObjectMeta};

    use super::*;

    /// A file with one required column `k`, annotated as older writers do.
    fn file<T: DataType>(
        physical: PhysicalType,
        converted: ConvertedType,
        values: &[T::T],
    ) -> ParquetFile {
        let is_decimal = converted == ConvertedType::DECIMAL;
        let field = Type::primitive_type_builder("k", physical)
            .with_repetition(Repetition::REQUIRED)
            .with_converted_type(converted)
            .with_precision(if is_decimal { 5 } else { -1 })
            .with_scale(if is_decimal { 2 } else { -1 })
            .build()
            .unwrap();
        let root = Type::group_type_builder("schema")
            .with_fields(vec![Arc::new(field)])
            .build()
            .unwrap();
        let properties = WriterProperties::builder()
            .set_compression(Compression::UNCOMPRESSED)
            .build();
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(root), Arc::new(properties)).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<T>().write_batch(values, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        let bytes = bytes::Bytes::from(writer.into_inner().unwrap());
        let meta = ObjectMeta {
            key: "k".to_owned(),
            size: bytes.len() as u64,
            etag: ETag("1".into()),
        };
        ParquetFile::from_bytes("memory:k", meta, bytes).unwrap()
    }

    #[test]
    fn unsigned_and_negative_integers_are_never_equal() {
        let signed = file::<Int64Type>(PhysicalType::INT64, ConvertedType::INT_64, &[-1, 7]);
        let unsigned = file::<Int64Type>(PhysicalType::INT64, ConvertedType::UINT_64, &[-1, 7]);
        let (signed, unsigned) = (read(&signed, "k").unwrap(), read(&unsigned, "k").unwrap());
        assert_ne!(signed.get(0), unsigned.get(0));
        assert_eq!(signed.get(1), unsigned.get(1));
        assert_eq!(
            show(unsigned.get(0), KeyKind::Integer),
            u64::MAX.to_string()
        );
    }

    #[test]
    fn narrow_unsigned_integers_are_widened_as_such() {
        let narrow = file::<Int32Type>(PhysicalType::INT32, ConvertedType::UINT_32, &[-1]);
        let wide = file::<Int64Type>(
            PhysicalType::INT64,
            ConvertedType::NONE,
            &[i64::from(u32::MAX)],
        );
        assert_eq!(
            read(&narrow, "k").unwrap().get(0),
            read(&wide, "k").unwrap().get(0)
        );
    }

    #[test]
    fn numbers_that_are_no_integers_are_refused_whichever_annotation_says_so() {
        for converted in [
            ConvertedType::DECIMAL,
            ConvertedType::DATE,
            ConvertedType::TIME_MILLIS,
        ] {
            let file = file::<Int32Type>(PhysicalType::INT32, converted, &[1]);
            let error = kind_of(&file, "k").unwrap_err().to_string();
            assert!(
                error.contains("expected strings, binary or integers"),
                "{converted}: {error}"
            );
        }
    }
}
