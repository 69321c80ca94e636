//! Checks that every store passes.
