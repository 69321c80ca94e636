//! Which vector instructions this CPU has.
//!
//! Kernels are plain loops over slices in functions that are always inlined;
//! [`fearless_simd::dispatch`] compiles them once for each level and picks one at run time.
//! They compute integers, or floats in a fixed order of lanes, so every level gives the same
//! result.

pub use fearless_simd::{Level, dispatch};

/// The best level of this CPU.
pub fn level() -> Level {
    static LEVEL: std::sync::OnceLock<Level> = std::sync::OnceLock::new();
    *LEVEL.get_or_init(Level::new)
}
