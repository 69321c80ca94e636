//! Checking a value against the schema.
