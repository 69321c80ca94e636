//! The image column of a shard, read in pieces: neither a row group nor a page of it is ever
//! held.

mod chunk;
mod stream;

pub use chunk::NO_IMAGE;
pub use stream::{Batch, ByteBudget, ImageColumn, Rows, open};
