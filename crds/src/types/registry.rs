//! Looking struct types up by name.

use std::collections::BTreeMap;

use super::{
    BUILT_IN_NAMES, DataType, Field, PRIMITIVES, TypeError, TypeExpression, built_in,
    expression::{MAX_DEPTH, is_name, parse},
    primitive,
};
use crate::{columns::StructField, suggest::did_you_mean};

/// The struct types that a job knows: the built-in ones and its own.
#[derive(Clone, Copy, Debug)]
pub struct TypeRegistry<'a> {
    schemas: &'a BTreeMap<String, Vec<StructField>>,
}

impl<'a> TypeRegistry<'a> {
    /// The registry of a job with these `spec.schemas`. Every type in it is looked at,
    /// whether a column uses it or not.
    ///
    /// # Errors
    /// The first fault of a type.
    pub fn new(schemas: &'a BTreeMap<String, Vec<StructField>>) -> Result<Self, TypeError> {
        let registry = Self { schemas };
        for (name, fields) in schemas {
            registry.check_struct(name, fields)?;
            let path = schema_path(name);
            registry.resolve_struct(name, fields, &path, &mut Vec::new(), 1)?;
        }
        Ok(registry)
    }

    /// The type that an expression means. `path` is the field with the expression, for
    /// the error.
    ///
    /// # Errors
    /// If the expression is malformed, or a name in it is unknown.
    pub fn resolve(&self, expression: &str, path: &str) -> Result<DataType, TypeError> {
        self.resolve_text(expression, path, &mut Vec::new(), 0)
    }

    fn check_struct(&self, name: &str, fields: &[StructField]) -> Result<(), TypeError> {
        let path = schema_path(name);
        let name = name.to_owned();
        if built_in(&name).is_some() || primitive(&name).is_some() {
            return Err(TypeError::Shadowed { path, name });
        }
        if !is_name(&name) || name == "list" || name == "struct" {
            return Err(TypeError::BadName { path, name });
        }
        if fields.is_empty() {
            return Err(TypeError::Empty { path, name });
        }
        for (position, field) in fields.iter().enumerate() {
            let earlier = fields[..position]
                .iter()
                .find(|earlier| earlier.name.eq_ignore_ascii_case(&field.name));
            if let Some(earlier) = earlier {
                return Err(TypeError::DuplicateField {
                    path: format!("{path}[{position}].name"),
                    first: earlier.name.clone(),
                    second: field.name.clone(),
                });
            }
        }
        Ok(())
    }

    /// `open` holds the struct types that are being resolved, outermost first.
    fn resolve_text(
        &self,
        expression: &str,
        path: &str,
        open: &mut Vec<String>,
        depth: usize,
    ) -> Result<DataType, TypeError> {
        let parsed = parse(expression).map_err(|problem| TypeError::Malformed {
            path: path.to_owned(),
            expression: expression.to_owned(),
            problem,
        })?;
        self.resolve_parsed(&parsed, path, open, depth)
    }

    fn resolve_parsed(
        &self,
        expression: &TypeExpression,
        path: &str,
        open: &mut Vec<String>,
        depth: usize,
    ) -> Result<DataType, TypeError> {
        if depth > MAX_DEPTH {
            return Err(TypeError::TooDeep {
                path: path.to_owned(),
                limit: MAX_DEPTH,
            });
        }
        match expression {
            TypeExpression::Primitive(data_type) => Ok(data_type.clone()),
            TypeExpression::List(element) => {
                let element = self.resolve_parsed(element, path, open, depth + 1)?;
                Ok(DataType::List(Box::new(element)))
            }
            TypeExpression::Named(name) => match (built_in(name), self.schemas.get(name)) {
                (Some(data_type), _) => Ok(data_type),
                (None, Some(fields)) => self.resolve_struct(name, fields, path, open, depth + 1),
                (None, None) => Err(self.unknown(name, path)),
            },
        }
    }

    fn resolve_struct(
        &self,
        name: &str,
        fields: &[StructField],
        path: &str,
        open: &mut Vec<String>,
        depth: usize,
    ) -> Result<DataType, TypeError> {
        if open.iter().any(|outer| outer == name) {
            return Err(TypeError::Recursive {
                path: path.to_owned(),
                name: name.to_owned(),
                through: open.join(", "),
            });
        }
        open.push(name.to_owned());
        let mut resolved = Vec::with_capacity(fields.len());
        for (position, field) in fields.iter().enumerate() {
            let path = format!("{}[{position}].type", schema_path(name));
            let data_type = self.resolve_text(&field.type_expression, &path, open, depth)?;
            resolved.push(Field::new(&field.name, data_type));
        }
        open.pop();
        Ok(DataType::Struct(resolved))
    }

    fn unknown(&self, name: &str, path: &str) -> TypeError {
        let known = PRIMITIVES
            .iter()
            .map(|(primitive, _)| *primitive)
            .chain(BUILT_IN_NAMES)
            .chain(self.schemas.keys().map(String::as_str));
        TypeError::Unknown {
            path: path.to_owned(),
            name: name.to_owned(),
            hint: did_you_mean(name, known),
        }
    }
}

fn schema_path(name: &str) -> String {
    format!("spec.schemas.{name}")
}
