//! Column types: primitives, lists, and struct types by name.
//!
//! A type expression is a primitive (`int64`), `list<TYPE>`, or the name of a struct
//! type (with or without the word `struct` before it). Struct types are built in (see
//! [`built_in`]) or come from `spec.schemas`. [`SidecarJobSpec::resolved_columns`] turns
//! every declared column into a [`Field`] without names left to look up.

mod built_in;
mod error;
mod expression;
mod registry;

use std::fmt;

pub use built_in::{BUILT_IN_NAMES, built_in};
pub use error::TypeError;
pub use expression::{TypeExpression, parse};
pub use registry::TypeRegistry;

use crate::{pipeline::Operation, sidecar_job::SidecarJobSpec};

/// The type of a column, with all names looked up.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum DataType {
    /// True or false.
    Boolean,
    /// Signed integer of 8 bits.
    Int8,
    /// Signed integer of 16 bits.
    Int16,
    /// Signed integer of 32 bits.
    Int32,
    /// Signed integer of 64 bits.
    Int64,
    /// Unsigned integer of 8 bits.
    UInt8,
    /// Unsigned integer of 16 bits.
    UInt16,
    /// Unsigned integer of 32 bits.
    UInt32,
    /// Unsigned integer of 64 bits.
    UInt64,
    /// IEEE 754 number of 32 bits.
    Float32,
    /// IEEE 754 number of 64 bits.
    Float64,
    /// UTF-8 text.
    String,
    /// Bytes.
    Binary,
    /// A day, without time or zone.
    Date,
    /// An instant in UTC, with microseconds.
    Timestamp,
    /// Any number of values of one type.
    List(Box<DataType>),
    /// Named fields, in order.
    Struct(Vec<Field>),
}

/// A column, or a field of a struct. All are nullable.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Type of the field.
    pub data_type: DataType,
}

impl Field {
    /// A field called `name` of type `data_type`.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self {
            name: name.into(),
            data_type,
        }
    }
}

/// Primitive types with the names that a type expression gives them; the first name of a
/// type is the one that is printed.
const PRIMITIVES: [(&str, DataType); 20] = [
    ("bool", DataType::Boolean),
    ("boolean", DataType::Boolean),
    ("int8", DataType::Int8),
    ("int16", DataType::Int16),
    ("int32", DataType::Int32),
    ("int64", DataType::Int64),
    ("uint8", DataType::UInt8),
    ("uint16", DataType::UInt16),
    ("uint32", DataType::UInt32),
    ("uint64", DataType::UInt64),
    ("float32", DataType::Float32),
    ("float", DataType::Float32),
    ("float64", DataType::Float64),
    ("double", DataType::Float64),
    ("string", DataType::String),
    ("utf8", DataType::String),
    ("binary", DataType::Binary),
    ("bytes", DataType::Binary),
    ("date", DataType::Date),
    ("timestamp", DataType::Timestamp),
];

/// The primitive type of this name.
fn primitive(name: &str) -> Option<DataType> {
    PRIMITIVES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, data_type)| data_type.clone())
}

/// Primitives print their name, lists `list<…>`, structs `struct<name: type, …>`.
impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(element) => write!(formatter, "list<{element}>"),
            Self::Struct(fields) => {
                formatter.write_str("struct<")?;
                for (position, field) in fields.iter().enumerate() {
                    let separator = if position == 0 { "" } else { ", " };
                    write!(formatter, "{separator}{}: {}", field.name, field.data_type)?;
                }
                formatter.write_str(">")
            }
            primitive => {
                let name = PRIMITIVES
                    .iter()
                    .find(|(_, data_type)| data_type == primitive)
                    .map_or("?", |(name, _)| *name);
                formatter.write_str(name)
            }
        }
    }
}

impl SidecarJobSpec {
    /// The columns that the sidecar adds, in order, with all types looked up: those of
    /// `spec.columns`, then those of `computeFilters` that are not declared.
    ///
    /// # Errors
    /// If a type expression is malformed, names an unknown type, or a struct type is
    /// faulty; or if a filter's column is declared with another type than the filter's.
    pub fn resolved_columns(&self) -> Result<Vec<Field>, TypeError> {
        let registry = TypeRegistry::new(&self.schemas)?;
        let mut fields = Vec::with_capacity(self.columns.len());
        for (position, column) in self.columns.iter().enumerate() {
            let path = format!("spec.columns[{position}].type");
            let data_type = registry.resolve(&column.type_expression, &path)?;
            fields.push(Field::new(&column.name, data_type));
        }
        self.add_filter_columns(&mut fields)?;
        Ok(fields)
    }

    /// Every fault in the types of this spec, for a report. Faults in `spec.schemas` hide
    /// those in `spec.columns`.
    pub(crate) fn type_errors(&self) -> Vec<TypeError> {
        let registry = match TypeRegistry::new(&self.schemas) {
            Ok(registry) => registry,
            Err(error) => return vec![error],
        };
        let faults: Vec<TypeError> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(position, column)| {
                let path = format!("spec.columns[{position}].type");
                registry.resolve(&column.type_expression, &path).err()
            })
            .collect();
        if faults.is_empty() {
            self.resolved_columns().err().into_iter().collect()
        } else {
            faults
        }
    }

    fn add_filter_columns(&self, fields: &mut Vec<Field>) -> Result<(), TypeError> {
        for step in &self.pipeline {
            let Ok(Operation::ComputeFilters(operation)) = step.operation() else {
                continue;
            };
            for filter in &operation.filters {
                let (name, type_name) = (filter.column_name(), filter.type_name());
                let Some(data_type) = built_in(&type_name) else {
                    continue;
                };
                match fields.iter().position(|field| field.name == name) {
                    Some(position) if fields[position].data_type != data_type => {
                        return Err(TypeError::FilterColumn {
                            path: format!("spec.columns[{position}].type"),
                            column: name,
                            expected: type_name,
                        });
                    }
                    Some(_) => {}
                    None => fields.push(Field::new(name, data_type)),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
