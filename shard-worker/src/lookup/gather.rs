//! Second half of a pass: decode the value columns of the row groups that have hits, and keep
//! the hits.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{
    Array, ArrayRef, BooleanBuilder, LargeBinaryBuilder, LargeStringArray, LargeStringBuilder,
    PrimitiveBuilder, UInt32Array,
};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::{self as types, ArrowPrimitiveType, DataType as Arrow, FieldRef};
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};
use parquet::data_type::{
    BoolType, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};

use crate::arrow_types::present_struct;
use crate::decode::{OneGroup, rows_at_once};
use crate::error::{Error, Result};
use crate::leaf::{BATCH, LeafReader};
use crate::lookup::index::{Index, IndexFile, Unit, ValueReader};
use crate::lookup::probe::Hit;
use crate::lookup::read_ahead::{ChunksOfColumn, ReadAhead};
use crate::lookup::window::WindowedChunk;
use crate::lookup::{Limits, PassError};
use crate::one_column::{Texts, alone};
use crate::parquet_file::{chunk_range, chunk_start};
use crate::unfit::{Unfit, adapt_or_empty};
use crate::workers::map_parallel;

/// Values that do not fit and are named in the log, a pass.
const NAMED: usize = 10;

/// Reads the value columns at `hits` (a list a unit, in the order of the index). Returns one
/// array a column, with a row a hit, and the rows whose value did not fit. Stops as soon as the
/// values pass the budget.
pub fn gather(
    index: &Index,
    hits: &[Vec<Hit>],
    fields: &[FieldRef],
    limits: Limits<'_>,
) -> Result<(Vec<ArrayRef>, Vec<Unfit>), PassError> {
    let targets: Vec<&Arrow> = fields.iter().map(|field| field.data_type()).collect();
    let units: Vec<usize> = (0..hits.len())
        .filter(|&unit| !hits[unit].is_empty())
        .collect();
    let column_count = targets.len();
    // Work is a column of a unit, so that a few large row groups still use all threads.
    let work: Vec<(usize, usize)> = units
        .iter()
        .flat_map(|&unit| (0..column_count).map(move |column| (unit, column)))
        .collect();
    let held = AtomicU64::new(0);
    let ahead = ReadAhead::of(work.iter().flat_map(|&(unit, column)| {
        let Unit { file, group, .. } = index.units[unit];
        let index = &index.files[file];
        index.leaves_of(column).into_iter().filter_map(move |leaf| {
            let chunk = index.file.metadata.row_group(group).column(leaf);
            let range = chunk_range(chunk, index.file.meta.size)?;
            Some(((file, group, leaf), &index.object, range))
        })
    }));
    let pieces = map_parallel(limits.threads, &work, limits.clock, |_, &(unit, column)| {
        if limits.stop.is_requested() {
            return Err(PassError::Stopped);
        }
        let rows: Vec<u32> = hits[unit].iter().map(|hit| hit.row).collect();
        let unit = index.units[unit];
        let file = &index.files[unit.file];
        let source = Source {
            file,
            number: unit.file,
            group: unit.group,
            ahead: &ahead,
            room: Room {
                held: &held,
                // Pieces are held twice while they are joined.
                most: limits.budget / 2,
                taken: Cell::default(),
            },
        };
        let mut unfit = Unfit::default();
        let array = read_column(&source, &file.columns[column], &rows, &mut unfit);
        let array = array.and_then(|array| {
            source.room.settle(array.get_array_memory_size() as u64)?;
            Ok(array)
        });
        match array {
            Ok(array) => Ok((array, unfit)),
            Err(Unread::OverBudget) => Err(PassError::OverBudget),
            Err(Unread::Broken(reason)) => {
                let name = fields[column].name();
                let reason = format!("row group {}, column {name:?}: {reason}", unit.group);
                Err(PassError::Failed(Error::side_input(&file.file.uri, reason)))
            }
        }
    })?;
    let mut by_column: Vec<Vec<ArrayRef>> = vec![Vec::with_capacity(units.len()); column_count];
    let mut unfit = vec![Unfit::default(); column_count];
    let mut bases = vec![0_u32; column_count];
    let mut named = 0;
    for (&(unit, column), (piece, of_piece)) in work.iter().zip(pieces) {
        for (row, reason) in of_piece.first() {
            named += 1;
            if named <= NAMED {
                let Unit { file, group, .. } = index.units[unit];
                let uri = &index.files[file].file.uri;
                let (name, row) = (fields[column].name(), hits[unit][*row as usize].row);
                tracing::warn!(
                    "{uri}, row group {group}, row {row}, column {name:?}: {reason}; the row is left empty"
                );
            }
        }
        for row in of_piece.rows() {
            unfit[column].add(bases[column] + row, "");
        }
        bases[column] += piece.len() as u32;
        by_column[column].push(piece);
    }
    let columns = map_parallel(
        limits.threads,
        &by_column,
        limits.clock,
        |column, pieces| match &pieces[..] {
            [] => Ok(crate::arrow_types::empty_array(targets[column], 0)),
            [only] => Ok(only.clone()),
            _ => {
                let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                concat(&pieces).map_err(|error| PassError::Failed(Error::Usage(error.to_string())))
            }
        },
    )?;
    Ok((columns, unfit))
}

/// A row group of the index, and how its bytes come.
struct Source<'a> {
    file: &'a IndexFile,
    /// Number of the file within the index.
    number: usize,
    group: usize,
    ahead: &'a ReadAhead,
    room: Room<'a>,
}

/// Why a column was not read.
enum Unread {
    /// Its values, with those of others, take more than there is room for.
    OverBudget,
    Broken(String),
}

impl From<String> for Unread {
    fn from(reason: String) -> Self {
        Self::Broken(reason)
    }
}

/// Room for values, which all columns of a pass share; it is taken as they are read, since one
/// row group may have more of them than the memory holds.
struct Room<'a> {
    held: &'a AtomicU64,
    most: u64,
    /// Bytes that this column has taken.
    taken: Cell<u64>,
}

impl Room<'_> {
    fn take(&self, bytes: u64) -> Result<(), Unread> {
        self.taken.set(self.taken.get() + bytes);
        if self.held.fetch_add(bytes, Ordering::Relaxed) + bytes > self.most {
            return Err(Unread::OverBudget);
        }
        Ok(())
    }

    /// Takes what an array has beyond what was taken while it was read.
    fn settle(&self, size: u64) -> Result<(), Unread> {
        self.take(size.saturating_sub(self.taken.get()))
    }
}

impl Source<'_> {
    fn chunk(&self, leaf: usize) -> Result<WindowedChunk, String> {
        let chunk = self.ahead.open((self.number, self.group, leaf));
        chunk.map_err(|error| error.to_string())
    }
}

/// Values of one column at ascending rows of a row group.
fn read_column(
    source: &Source<'_>,
    reader: &ValueReader,
    rows: &[u32],
    unfit: &mut Unfit,
) -> Result<ArrayRef, Unread> {
    match reader {
        ValueReader::SourceName(name) => Ok(Arc::new(LargeStringArray::from_iter_values(
            rows.iter().map(|_| name.as_ref()),
        ))),
        ValueReader::Struct { fields, children } => {
            let children = children
                .iter()
                .map(|child| read_column(source, child, rows, unfit))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Arc::new(present_struct(
                fields.clone(),
                children,
                rows.len(),
            )?))
        }
        ValueReader::Leaf {
            leaf,
            natural,
            target,
        } => {
            let hits = LeafHits {
                source,
                leaf: *leaf,
                rows,
            };
            let array = read_leaf(&hits, natural, unfit)?;
            Ok(adapt_or_empty(&array, target, 0, unfit)?)
        }
        ValueReader::Whole { root, target } => read_whole(source, *root, target, rows, unfit),
    }
}

/// Calls `push` with the value at each of `rows` (ascending), reading in batches and passing
/// over batches without hits undecoded.
fn each_hit<T: DataType>(
    source: &Source<'_>,
    leaf: usize,
    rows: &[u32],
    mut push: impl FnMut(Option<&T::T>) -> Result<(), Unread>,
) -> Result<(), Unread> {
    let chunk = Arc::new(source.chunk(leaf)?);
    let metadata = &source.file.file.metadata;
    let mut reader = LeafReader::<T>::open(chunk, metadata, source.group, leaf)
        .map_err(|error| error.to_string())?;
    let mut base = 0_usize;
    let mut left = rows;
    while let Some(&first) = left.first() {
        let idle = (first as usize - base) / BATCH * BATCH;
        if idle > 0 {
            reader.skip(idle).map_err(|error| error.to_string())?;
            base += idle;
        }
        let Some(batch) = reader.next_batch().map_err(|error| error.to_string())? else {
            return Err(format!("ends before row {first}").into());
        };
        let end = base + batch.rows;
        let (mut from, mut before) = (0, 0);
        while let Some(&row) = left.first().filter(|&&row| (row as usize) < end) {
            let row = row as usize - base;
            before = batch.rank(from, before, row);
            from = row;
            push(batch.is_present(row).then(|| &batch.values[before]))?;
            left = &left[1..];
        }
        base = end;
    }
    Ok(())
}

/// Where the values of one leaf are.
struct LeafHits<'a> {
    source: &'a Source<'a>,
    leaf: usize,
    rows: &'a [u32],
}

impl LeafHits<'_> {
    fn each<T: DataType>(
        &self,
        push: impl FnMut(Option<&T::T>) -> Result<(), Unread>,
    ) -> Result<(), Unread> {
        each_hit::<T>(self.source, self.leaf, self.rows, push)
    }

    /// Values as they are, or narrowed to what their annotation says they are.
    fn numbers<T: DataType, A: ArrowPrimitiveType>(
        &self,
        convert: impl Fn(&T::T) -> A::Native,
    ) -> Result<ArrayRef, Unread> {
        let mut builder = PrimitiveBuilder::<A>::with_capacity(self.rows.len());
        self.each::<T>(|value| {
            builder.append_option(value.map(&convert));
            Ok(())
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn booleans(&self) -> Result<ArrayRef, Unread> {
        let mut builder = BooleanBuilder::with_capacity(self.rows.len());
        self.each::<BoolType>(|value| {
            builder.append_option(value.copied());
            Ok(())
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn texts(&self, unfit: &mut Unfit) -> Result<ArrayRef, Unread> {
        let count = self.rows.len();
        let mut builder = LargeStringBuilder::with_capacity(count, count * 16);
        let mut row = 0;
        self.each::<ByteArrayType>(|value| {
            let text = value.and_then(|value| std::str::from_utf8(value.data()).ok());
            if value.is_some() && text.is_none() {
                unfit.add(row, "the text is not UTF-8");
            }
            builder.append_option(text);
            row += 1;
            self.source.room.take(text.map_or(0, str::len) as u64)
        })?;
        Ok(Arc::new(builder.finish()))
    }

    fn blobs(&self) -> Result<ArrayRef, Unread> {
        let count = self.rows.len();
        let mut builder = LargeBinaryBuilder::with_capacity(count, count * 16);
        self.each::<ByteArrayType>(|value| {
            builder.append_option(value.map(|value| value.data()));
            self.source
                .room
                .take(value.map_or(0, |value| value.len()) as u64)
        })?;
        Ok(Arc::new(builder.finish()))
    }
}

fn read_leaf(hits: &LeafHits<'_>, natural: &Arrow, unfit: &mut Unfit) -> Result<ArrayRef, Unread> {
    let array = match natural {
        Arrow::Boolean => hits.booleans(),
        Arrow::Float32 => hits.numbers::<FloatType, types::Float32Type>(|value| *value),
        Arrow::Float64 => hits.numbers::<DoubleType, types::Float64Type>(|value| *value),
        Arrow::Int8 => hits.numbers::<Int32Type, types::Int8Type>(|value| *value as i8),
        Arrow::Int16 => hits.numbers::<Int32Type, types::Int16Type>(|value| *value as i16),
        Arrow::UInt8 => hits.numbers::<Int32Type, types::UInt8Type>(|value| *value as u8),
        Arrow::UInt16 => hits.numbers::<Int32Type, types::UInt16Type>(|value| *value as u16),
        Arrow::UInt32 => hits.numbers::<Int32Type, types::UInt32Type>(|value| *value as u32),
        Arrow::Int32 | Arrow::Date32 => hits.numbers::<Int32Type, types::Int32Type>(|value| *value),
        Arrow::UInt64 => hits.numbers::<Int64Type, types::UInt64Type>(|value| *value as u64),
        Arrow::Int64 | Arrow::Timestamp(_, _) => {
            hits.numbers::<Int64Type, types::Int64Type>(|value| *value)
        }
        Arrow::Utf8 => hits.texts(unfit),
        Arrow::Binary => hits.blobs(),
        other => Err(format!("type {other} cannot be read leaf by leaf").into()),
    }?;
    match natural {
        // The same integers under another name.
        Arrow::Date32 | Arrow::Timestamp(_, _) => {
            Ok(cast(&array, natural).map_err(|error| error.to_string())?)
        }
        _ => Ok(array),
    }
}

/// Reads a column by Arrow's record assembly, whole, and takes the hits of each batch.
fn read_whole(
    source: &Source<'_>,
    root: usize,
    target: &Arrow,
    rows: &[u32],
    unfit: &mut Unfit,
) -> Result<ArrayRef, Unread> {
    let file = source.file;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let group = file.file.metadata.row_group(source.group);
    let mut chunks = Vec::new();
    let mut bytes = 0;
    for leaf in file.file.leaves_of(root) {
        bytes += group.column(leaf).uncompressed_size().max(0);
        let start = chunk_start(group.column(leaf));
        chunks.push((u64::try_from(start).unwrap_or(0), source.chunk(leaf)?));
    }
    let chunks = ChunksOfColumn::new(file.file.meta.size, chunks);
    let metadata = alone(&file.file, root, Texts::AsBlobs).map_err(|error| text(&error))?;
    let schema = metadata.file_metadata().schema_descr();
    let levels = parquet_to_arrow_field_levels(schema, ProjectionMask::all(), None)
        .map_err(|error| text(&error))?;
    let one = OneGroup {
        source: Arc::new(chunks),
        metadata: &metadata,
        number: source.group,
    };
    let at_once = rows_at_once(group.num_rows(), bytes, 1 << 20, 1024);
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, &one, at_once, None)
        .map_err(|error| text(&error))?;
    let mut pieces: Vec<ArrayRef> = Vec::new();
    let mut left = rows;
    let mut base = 0_usize;
    for batch in reader {
        if left.is_empty() {
            break;
        }
        let batch = batch.map_err(|error| text(&error))?;
        let end = base + batch.num_rows();
        let here = left.partition_point(|&row| (row as usize) < end);
        if here > 0 {
            let indices =
                UInt32Array::from_iter_values(left[..here].iter().map(|&row| row - base as u32));
            let taken = take(batch.column(0), &indices, None).map_err(|error| text(&error))?;
            let position = (rows.len() - left.len()) as u32;
            let piece = adapt_or_empty(&taken, target, position, unfit)?;
            source.room.take(piece.get_array_memory_size() as u64)?;
            pieces.push(piece);
            left = &left[here..];
        }
        base = end;
    }
    if let Some(row) = left.first() {
        return Err(format!("ends before row {row}").into());
    }
    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
    if pieces.is_empty() {
        return Ok(crate::arrow_types::empty_array(target, 0));
    }
    Ok(concat(&pieces).map_err(|error| text(&error))?)
}
