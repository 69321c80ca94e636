//! Values that look random and depend on nothing but their arguments.

pub const WORDS: [&str; 16] = [
    "river", "stone", "amber", "window", "quiet", "garden", "bicycle", "harbor", "paper",
    "lantern", "green", "valley", "old", "market", "winter", "orchard",
];

/// Scatters a number (the finaliser of splitmix64), differently for each salt.
pub fn mix(value: u64, salt: u64) -> u64 {
    let mut z = value.wrapping_add((salt + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number in 0..1 that depends on nothing but its arguments.
pub fn chance(value: u64, other: u64, salt: u64) -> f64 {
    (mix(mix(value, salt) ^ other, salt) >> 11) as f64 / (1_u64 << 53) as f64
}

pub fn sentence(seed: u64, words: u64) -> String {
    let picked: Vec<&str> = (0..words)
        .map(|place| WORDS[(mix(seed, 200 + place) % 16) as usize])
        .collect();
    picked.join(" ")
}
