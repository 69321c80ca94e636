//! The API reference, from the schema.

/// The API reference as Markdown.
pub fn markdown() -> String {
    String::new()
}
