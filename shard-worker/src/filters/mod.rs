//! Filters: measurements of the images themselves, for the operation `computeFilters`.
//!
//! An image goes through [`judge`]: its [`header`] is read, its limits are checked, [`decode`]
//! turns it into [`pixels`], and each filter, a file of its own that states its formula and
//! units, looks at them band by band. What cannot be judged has a [`reason`]. [`column`] streams
//! the images of a shard past the [`stage`] that judges them, and [`table`] makes columns of what
//! the filters say.

pub mod blockiness;
pub mod clarity;
pub mod color_entropy;
pub mod column;
pub mod decode;
pub mod edge_density;
pub mod exif;
pub mod exif_metadata;
pub mod exif_rotation;
mod gate;
pub mod header;
mod histogram;
mod hysteresis;
pub mod jpeg_artifact;
pub mod judge;
pub mod luma;
pub mod pixels;
pub mod reason;
pub mod saturation;
pub mod simd;
pub mod stage;
pub mod table;
pub mod texture;
