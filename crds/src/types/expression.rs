//! The parser of type expressions.
//!
//! ```text
//! type    = primitive | "list" "<" type ">" | ["struct"] name
//! name    = letter, digit, "_", "-" or ".", at least one
//! ```
//! White space between the parts has no meaning.

use std::fmt;

use super::{DataType, primitive};

/// How deep lists and structs may be nested.
pub(super) const MAX_DEPTH: usize = 16;

/// A parsed type expression; names of struct types are not looked up yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum TypeExpression {
    /// A primitive type.
    Primitive(DataType),
    /// A list of some type.
    List(Box<TypeExpression>),
    /// A struct type, by name.
    Named(String),
}

impl fmt::Display for TypeExpression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Primitive(data_type) => data_type.fmt(formatter),
            Self::List(element) => write!(formatter, "list<{element}>"),
            Self::Named(name) => formatter.write_str(name),
        }
    }
}

/// Parses a type expression.
///
/// # Errors
/// What is wrong with the text, as half a sentence.
pub fn parse(text: &str) -> Result<TypeExpression, String> {
    let mut parser = Parser { rest: text };
    let expression = parser.parse_type(0)?;
    match parser.next_char() {
        None => Ok(expression),
        Some(character) => Err(format!("unexpected '{character}' after the type")),
    }
}

/// Whether a type expression can refer to this name.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_name_character)
}

fn is_name_character(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.')
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn parse_type(&mut self, depth: usize) -> Result<TypeExpression, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH} levels"));
        }
        let word = self.word()?;
        match word {
            "list" if self.next_char() == Some('<') => {
                self.expect('<')?;
                let element = self.parse_type(depth + 1)?;
                self.expect('>')?;
                Ok(TypeExpression::List(Box::new(element)))
            }
            "list" => Err("list needs the type of its elements, as in list<string>".to_owned()),
            "struct" if self.next_char().is_some_and(is_name_character) => {
                Ok(TypeExpression::Named(self.word()?.to_owned()))
            }
            "struct" => Err("struct needs the name of a struct type".to_owned()),
            name => Ok(match primitive(name) {
                Some(data_type) => TypeExpression::Primitive(data_type),
                None => TypeExpression::Named(name.to_owned()),
            }),
        }
    }

    fn word(&mut self) -> Result<&'a str, String> {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|character| !is_name_character(character))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        if word.is_empty() {
            return Err(match rest.chars().next() {
                Some(character) => format!("unexpected '{character}'"),
                None => "a type is missing at its end".to_owned(),
            });
        }
        self.rest = rest;
        Ok(word)
    }

    fn next_char(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn expect(&mut self, expected: char) -> Result<(), String> {
        match self.next_char() {
            Some(found) if found == expected => {
                self.rest = &self.rest[expected.len_utf8()..];
                Ok(())
            }
            Some(found) => Err(format!("expected '{expected}', found '{found}'")),
            None => Err(format!("'{expected}' is missing at its end")),
        }
    }
}
