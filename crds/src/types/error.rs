//! What can be wrong with types.

use thiserror::Error;

/// A fault in the types of a manifest. `path` is the field that has it, such as
/// `spec.columns[2].type`.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TypeError {
    /// The expression is not a type.
    #[error(
        "\"{expression}\" is not a type: {problem}; expected a primitive, list<TYPE> or the name of a struct type"
    )]
    Malformed {
        /// The field with the expression.
        path: String,
        /// The expression.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },
    /// No type has this name.
    #[error("unknown type \"{name}\"{hint}; struct types are declared in spec.schemas")]
    Unknown {
        /// The field with the expression.
        path: String,
        /// The unknown name.
        name: String,
        /// `; did you mean …?`, or nothing.
        hint: String,
    },
    /// A struct type contains itself.
    #[error("type \"{name}\" contains itself, through {through}; break the circle")]
    Recursive {
        /// The field where the circle closes.
        path: String,
        /// The type.
        name: String,
        /// The types in between.
        through: String,
    },
    /// Types are nested too deeply.
    #[error("types are nested deeper than {limit} levels")]
    TooDeep {
        /// The field with the expression.
        path: String,
        /// How deep types may be nested.
        limit: usize,
    },
    /// A struct type has no fields. Parquet can't store one.
    #[error("struct type \"{name}\" has no fields; list at least one")]
    Empty {
        /// The field with the type.
        path: String,
        /// The type.
        name: String,
    },
    /// A type of the user has the name of a primitive or built-in type.
    #[error(
        "\"{name}\" is the name of a built-in type and can't be redefined; give your type another name"
    )]
    Shadowed {
        /// The field with the type.
        path: String,
        /// The type.
        name: String,
    },
    /// A name of a type that no expression could refer to.
    #[error("\"{name}\" can't be the name of a type; use letters, digits, '_', '-' and '.'")]
    BadName {
        /// The field with the type.
        path: String,
        /// The name.
        name: String,
    },
    /// Two fields of a struct have the same name, but for case.
    #[error(
        "fields \"{first}\" and \"{second}\" have the same name or differ only in case; rename one"
    )]
    DuplicateField {
        /// The second of the two fields.
        path: String,
        /// Name of the first.
        first: String,
        /// Name of the second.
        second: String,
    },
    /// A column that a filter fills is declared with another type.
    #[error(
        "column \"{column}\" is filled by computeFilters and has the type {expected}; declare it so, or leave it out"
    )]
    FilterColumn {
        /// The declaration.
        path: String,
        /// The column.
        column: String,
        /// The type that the filter gives it.
        expected: String,
    },
}

impl TypeError {
    /// The field of the manifest that is at fault, such as `spec.columns[2].type`.
    pub fn path(&self) -> &str {
        match self {
            Self::Malformed { path, .. }
            | Self::Unknown { path, .. }
            | Self::Recursive { path, .. }
            | Self::TooDeep { path, .. }
            | Self::Empty { path, .. }
            | Self::Shadowed { path, .. }
            | Self::BadName { path, .. }
            | Self::DuplicateField { path, .. }
            | Self::FilterColumn { path, .. } => path,
        }
    }
}
