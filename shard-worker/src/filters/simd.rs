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

/// All levels that this CPU can run, the best one last.
pub fn levels() -> Vec<Level> {
    let best = level();
    let mut levels = vec![Level::baseline()];
    #[cfg(target_arch = "x86_64")]
    {
        levels.extend(best.as_sse4_2().map(Level::Sse4_2));
        levels.extend(best.as_avx2().map(Level::Avx2));
        levels.extend(best.as_avx512().map(Level::Avx512));
    }
    levels.push(best);
    levels
}
