//! Declared types as Arrow types, and values brought into them.
//!
//! Texts and blobs are held with 64-bit offsets, so that no amount of them overflows; in the
//! file both are plain `BYTE_ARRAY`.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, LargeListArray, ListArray, StructArray, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType as Arrow, Field, FieldRef, Fields, TimeUnit};
use crds::types::DataType;

/// The Arrow type in which values of a declared type are held.
pub fn arrow_type(data_type: &DataType) -> Arrow {
    match data_type {
        DataType::Boolean => Arrow::Boolean,
        DataType::Int8 => Arrow::Int8,
        DataType::Int16 => Arrow::Int16,
        DataType::Int32 => Arrow::Int32,
        DataType::Int64 => Arrow::Int64,
        DataType::UInt8 => Arrow::UInt8,
        DataType::UInt16 => Arrow::UInt16,
        DataType::UInt32 => Arrow::UInt32,
        DataType::UInt64 => Arrow::UInt64,
        DataType::Float32 => Arrow::Float32,
        DataType::Float64 => Arrow::Float64,
        DataType::String => Arrow::LargeUtf8,
        DataType::Binary => Arrow::LargeBinary,
        DataType::Date => Arrow::Date32,
        DataType::Timestamp => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        DataType::List(item) => {
            Arrow::List(Arc::new(Field::new("element", arrow_type(item), true)))
        }
        DataType::Struct(fields) => Arrow::Struct(
            fields
                .iter()
                .map(|field| Field::new(&field.name, arrow_type(&field.data_type), true))
                .collect(),
        ),
    }
}

/// A nullable field of a declared type.
pub fn arrow_field(name: &str, data_type: &DataType) -> FieldRef {
    Arc::new(Field::new(name, arrow_type(data_type), true))
}

/// The type as a manifest would spell it, for messages.
pub fn spell(data_type: &Arrow) -> String {
    match data_type {
        Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View => "string".to_owned(),
        Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView => "binary".to_owned(),
        Arrow::Boolean => "bool".to_owned(),
        Arrow::List(item) | Arrow::LargeList(item) => format!("list<{}>", spell(item.data_type())),
        Arrow::Struct(fields) => {
            let inner: Vec<String> = fields
                .iter()
                .map(|field| format!("{}: {}", field.name(), spell(field.data_type())))
                .collect();
            format!("struct<{}>", inner.join(", "))
        }
        Arrow::Dictionary(_, value) => spell(value),
        Arrow::Date32 => "date".to_owned(),
        Arrow::Timestamp(unit, zone) => {
            let unit = match unit {
                TimeUnit::Microsecond => "",
                TimeUnit::Second => "seconds",
                TimeUnit::Millisecond => "milliseconds",
                TimeUnit::Nanosecond => "nanoseconds",
            };
            let zone = if zone.is_some() { "" } else { "no time zone" };
            let details: Vec<&str> = [unit, zone]
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect();
            if details.is_empty() {
                "timestamp".to_owned()
            } else {
                format!("timestamp({})", details.join(", "))
            }
        }
        Arrow::Decimal32(precision, scale)
        | Arrow::Decimal64(precision, scale)
        | Arrow::Decimal128(precision, scale)
        | Arrow::Decimal256(precision, scale) => format!("decimal({precision}, {scale})"),
        other => other.to_string().to_lowercase(),
    }
}

/// Whether two types hold the same values in the same physical form, whatever their list
/// children are called, however wide their offsets are, and whether nulls are allowed.
pub fn same_values(left: &Arrow, right: &Arrow) -> bool {
    let text =
        |data_type: &Arrow| matches!(data_type, Arrow::Utf8 | Arrow::LargeUtf8 | Arrow::Utf8View);
    let blob = |data_type: &Arrow| {
        matches!(
            data_type,
            Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView
        )
    };
    match (left, right) {
        (
            Arrow::List(left) | Arrow::LargeList(left),
            Arrow::List(right) | Arrow::LargeList(right),
        ) => same_values(left.data_type(), right.data_type()),
        (Arrow::Struct(left), Arrow::Struct(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| {
                    left.name() == right.name() && same_values(left.data_type(), right.data_type())
                })
        }
        (Arrow::Dictionary(_, left), right) => same_values(left, right),
        (left, Arrow::Dictionary(_, right)) => same_values(left, right),
        (left, right) => {
            left == right || (text(left) && text(right)) || (blob(left) && blob(right))
        }
    }
}

/// Whether values of `from` may be brought into `to` without loss, struct fields by name.
/// `Err` says what is in the way.
pub fn check_adaptable(from: &Arrow, to: &Arrow) -> Result<(), String> {
    let refuse = || {
        Err(format!(
            "has type {}, declared is {}",
            spell(from),
            spell(to)
        ))
    };
    match (from, to) {
        (Arrow::Dictionary(_, value), _) => check_adaptable(value, to),
        (Arrow::Struct(from), Arrow::Struct(to)) => {
            for field in to {
                let Some((_, found)) = from.find(field.name()) else {
                    let names: Vec<&str> = from.iter().map(|field| field.name().as_str()).collect();
                    return Err(format!(
                        "has no field {:?} (its fields are {})",
                        field.name(),
                        names.join(", ")
                    ));
                };
                check_adaptable(found.data_type(), field.data_type())
                    .map_err(|reason| format!("field {:?} {reason}", field.name()))?;
            }
            Ok(())
        }
        (Arrow::List(from) | Arrow::LargeList(from), Arrow::List(to)) => {
            check_adaptable(from.data_type(), to.data_type())
        }
        (Arrow::Null, _) => Ok(()),
        _ if same_values(from, to) => Ok(()),
        _ if from.is_integer() && to.is_integer() => Ok(()),
        (Arrow::Float16 | Arrow::Float32, Arrow::Float32 | Arrow::Float64) => Ok(()),
        (
            Arrow::Int8
            | Arrow::Int16
            | Arrow::Int32
            | Arrow::UInt8
            | Arrow::UInt16
            | Arrow::UInt32,
            Arrow::Float64,
        ) => Ok(()),
        (Arrow::Binary | Arrow::LargeBinary | Arrow::BinaryView, Arrow::LargeUtf8) => Ok(()),
        (Arrow::Timestamp(_, _), Arrow::Timestamp(_, _)) => Ok(()),
        _ => refuse(),
    }
}

/// Brings values into `to`. The struct of a row comes out present, with null children where it was
/// null; within it, and in lists, null structs stay null. A value that does not fit is an error,
/// never wrapped or cut.
pub fn adapt(array: &ArrayRef, to: &Arrow) -> Result<ArrayRef, String> {
    match (array.data_type(), to) {
        (Arrow::Struct(_), Arrow::Struct(fields)) => {
            let children = adapt_children(array.as_struct(), fields)?;
            present_struct(fields.clone(), children, array.len())
                .map(|array| Arc::new(array) as ArrayRef)
        }
        _ => adapt_inner(array, to),
    }
}

fn adapt_children(source: &StructArray, fields: &Fields) -> Result<Vec<ArrayRef>, String> {
    let mut children = Vec::with_capacity(fields.len());
    for field in fields {
        let child = source
            .column_by_name(field.name())
            .ok_or_else(|| format!("no field {:?}", field.name()))?;
        children.push(adapt_inner(&mask_child(source, child)?, field.data_type())?);
    }
    Ok(children)
}

fn adapt_inner(array: &ArrayRef, to: &Arrow) -> Result<ArrayRef, String> {
    match (array.data_type(), to) {
        (Arrow::Struct(_), Arrow::Struct(fields)) => {
            let source = array.as_struct();
            let children = adapt_children(source, fields)?;
            let nulls = source.nulls().cloned();
            StructArray::try_new_with_length(fields.clone(), children, nulls, array.len())
                .map(|array| Arc::new(array) as ArrayRef)
                .map_err(|error| error.to_string())
        }
        (Arrow::List(_), Arrow::List(item)) => {
            let list = array.as_list::<i32>();
            let values = adapt_inner(list.values(), item.data_type())?;
            let rebuilt = ListArray::try_new(
                item.clone(),
                list.offsets().clone(),
                values,
                list.nulls().cloned(),
            );
            Ok(Arc::new(rebuilt.map_err(|error| error.to_string())?))
        }
        (Arrow::LargeList(_), Arrow::List(item)) => {
            let list = array.as_list::<i64>();
            let values = adapt_inner(list.values(), item.data_type())?;
            let large = LargeListArray::try_new(
                item.clone(),
                list.offsets().clone(),
                values,
                list.nulls().cloned(),
            );
            let large: ArrayRef = Arc::new(large.map_err(|error| error.to_string())?);
            cast(&large, to)
        }
        (Arrow::Null, _) => Ok(empty_array(to, array.len())),
        (from, to) if from == to => Ok(array.clone()),
        (&Arrow::Timestamp(from, _), &Arrow::Timestamp(unit, _)) => {
            // A time without a zone is taken as UTC, in which the others are stored.
            let bare = retype(array, Arrow::Timestamp(from, None))?;
            let times = cast(&bare, &Arrow::Timestamp(unit, None))?;
            if *cast(&times, bare.data_type())? != *bare {
                return Err(format!("has times that are finer than {}", spell(to)));
            }
            retype(&times, to.clone())
        }
        _ => cast(array, to),
    }
}

/// The same buffers under another type.
fn retype(array: &ArrayRef, to: Arrow) -> Result<ArrayRef, String> {
    let data = array.to_data().into_builder().data_type(to).build();
    data.map(arrow::array::make_array)
        .map_err(|error| error.to_string())
}

fn cast(array: &ArrayRef, to: &Arrow) -> Result<ArrayRef, String> {
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, to, &options).map_err(|error| error.to_string())
}

/// A child of a struct with the parent's nulls applied.
fn mask_child(parent: &StructArray, child: &ArrayRef) -> Result<ArrayRef, String> {
    let Some(nulls) = parent.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(child.clone());
    };
    if let Arrow::Null = child.data_type() {
        return Ok(child.clone());
    }
    let union = arrow::buffer::NullBuffer::union(Some(nulls), child.nulls());
    let data = child
        .to_data()
        .into_builder()
        .nulls(union)
        .build()
        .map_err(|error| error.to_string())?;
    Ok(arrow::array::make_array(data))
}

/// A struct of which every row is present.
pub fn present_struct(
    fields: Fields,
    children: Vec<ArrayRef>,
    rows: usize,
) -> Result<StructArray, String> {
    StructArray::try_new_with_length(fields, children, None, rows)
        .map_err(|error| error.to_string())
}

/// `rows` rows without a value: null, or a present struct whose children are null.
pub fn empty_array(data_type: &Arrow, rows: usize) -> ArrayRef {
    match data_type {
        Arrow::Struct(fields) => {
            let children = fields
                .iter()
                .map(|field| empty_array(field.data_type(), rows))
                .collect();
            match present_struct(fields.clone(), children, rows) {
                Ok(array) => Arc::new(array),
                Err(_) => new_null_array(data_type, rows),
            }
        }
        _ => new_null_array(data_type, rows),
    }
}

/// Whether a row has no value: null, or a struct all of whose children have none.
pub fn is_missing(array: &dyn Array, row: usize) -> bool {
    if array.is_null(row) {
        return true;
    }
    match array.data_type() {
        Arrow::Struct(_) => array
            .as_struct()
            .columns()
            .iter()
            .all(|child| is_missing(child, row)),
        Arrow::Null => true,
        _ => false,
    }
}

/// Rows with a value, and rows whose struct has an `error`.
pub fn count_values(array: &ArrayRef) -> (u64, u64) {
    let populated = match presence(array) {
        Some(present) => present.count_set_bits(),
        None => array.len(),
    };
    let errors = match array
        .as_struct_opt()
        .and_then(|array| array.column_by_name("error"))
    {
        Some(error) => error.len() - error.null_count(),
        None => 0,
    };
    (populated as u64, errors as u64)
}

/// Which rows have a value; `None` if all have one.
fn presence(array: &ArrayRef) -> Option<BooleanBuffer> {
    let own = array.nulls().map(|nulls| nulls.inner().clone());
    let Some(structure) = array.as_struct_opt() else {
        return own;
    };
    let mut any: Option<BooleanBuffer> = None;
    for child in structure.columns() {
        let Some(present) = presence(child) else {
            return own;
        };
        any = Some(match any {
            Some(before) => &before | &present,
            None => present,
        });
    }
    match (any, own) {
        (Some(any), Some(own)) => Some(&any & &own),
        (any, own) => any.or(own),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, RecordBatch};
    use arrow::buffer::{NullBuffer, OffsetBuffer};

    use super::*;

    fn fields() -> Fields {
        Fields::from(vec![Field::new("x", Arrow::Int64, true)])
    }

    /// Null, a value, null.
    fn structs() -> ArrayRef {
        let children: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![7, 8, 9]))];
        let nulls = NullBuffer::from(vec![false, true, false]);
        Arc::new(StructArray::new(fields(), children, Some(nulls)))
    }

    #[test]
    fn only_the_struct_of_a_row_is_made_present() {
        let row = structs();
        let adapted = adapt(&row, row.data_type()).unwrap();
        assert_eq!(
            (
                adapted.null_count(),
                adapted.as_struct().column(0).null_count()
            ),
            (0, 2)
        );

        let item = Arc::new(Field::new("element", row.data_type().clone(), true));
        let list: ArrayRef = Arc::new(ListArray::new(
            item,
            OffsetBuffer::from_lengths([3]),
            row.clone(),
            None,
        ));
        let adapted = adapt(&list, list.data_type()).unwrap();
        assert_eq!(adapted.as_list::<i32>().values().null_count(), 2);

        let outer = RecordBatch::try_from_iter_with_nullable([("inner", row, true)]).unwrap();
        let outer: ArrayRef = Arc::new(StructArray::from(outer));
        let adapted = adapt(&outer, outer.data_type()).unwrap();
        assert_eq!(
            (
                adapted.null_count(),
                adapted.as_struct().column(0).null_count()
            ),
            (0, 2)
        );
    }

    #[test]
    fn types_are_spelled_as_manifests_spell_them() {
        for declared in [
            DataType::Boolean,
            DataType::Int8,
            DataType::UInt64,
            DataType::Float32,
            DataType::String,
            DataType::Binary,
            DataType::Date,
            DataType::Timestamp,
            DataType::List(Box::new(DataType::Date)),
        ] {
            assert_eq!(spell(&arrow_type(&declared)), declared.to_string());
        }
    }
}
