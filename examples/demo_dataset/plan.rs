//! What the dataset holds, and where: shards, sources, keys.

use crate::scatter::{chance, mix};

pub const SHARDS: usize = 300;
pub const SOURCES: [&str; 4] = ["source_a", "source_b", "source_c", "source_x"];
/// The sources that have an index. Nobody has measured `source_x`.
pub const INDEXED: usize = 3;
/// How many shards in a hundred belong to each source.
pub const SHARE: [usize; 4] = [44, 20, 10, 26];
/// The part of an indexed source's rows that its index knows.
const COVERED: f64 = 0.93;
const SCALES: [(&str, i32); 3] = [("0_512", 448), ("512_1024", 896), ("1024_1536", 1344)];
/// Height over width, times ten thousand.
const RATIOS: [i32; 4] = [6667, 10000, 13333, 15000];

pub struct Shard {
    pub number: usize,
    pub path: String,
    pub source: usize,
    pub first: u64,
    pub rows: usize,
    pub width: i32,
    pub height: i32,
}

impl Shard {
    /// The identity of the picture in a row. One row in 150 repeats the one before.
    pub fn picture(&self, row: usize) -> u64 {
        let repeats = row > 0 && chance(self.number as u64, row as u64, 1) < 1.0 / 150.0;
        self.first + (row - usize::from(repeats)) as u64
    }

    /// The key of a row. One row in 400 lost it.
    pub fn key(&self, row: usize) -> Option<String> {
        let lost = chance(self.number as u64, row as u64, 2) < 1.0 / 400.0;
        (!lost).then(|| key(self.source, self.picture(row)))
    }

    pub fn image_key(&self, row: usize) -> String {
        format!("{:03}-{row:04}", self.number)
    }
}

/// The shards in order: three hundred usual ones, one with no row and one with one.
pub fn plan() -> Vec<Shard> {
    let mut next = [0_u64; SOURCES.len()];
    let mut in_folder = std::collections::BTreeMap::<String, usize>::new();
    let mut shards = Vec::new();
    for number in 0..SHARDS + 2 {
        // 37 and 100 have no common divisor, so a hundred shards in a row have the shares.
        let mut ticket = number * 37 % 100;
        let mut source = 0;
        while ticket >= SHARE[source] {
            ticket -= SHARE[source];
            source += 1;
        }
        let rows = match number {
            SHARDS => 0,
            n if n > SHARDS => 1,
            _ => 100 + (mix(number as u64, 3) % 301) as usize,
        };
        let (scale, width) = SCALES[(mix(number as u64, 4) % 3) as usize];
        let ratio = RATIOS[(mix(number as u64, 5) % 4) as usize];
        let folder = format!("{scale}/{ratio}");
        let place = in_folder.entry(folder.clone()).or_default();
        let path = format!("{folder}/shard-{place:06}.parquet");
        *place += 1;
        let height = width * ratio / 10_000;
        shards.push(Shard {
            number,
            path,
            source,
            first: next[source],
            rows,
            width,
            height,
        });
        next[source] += rows as u64;
    }
    shards
}

pub fn key(source: usize, picture: u64) -> String {
    let name = format!("{:016x}", mix(picture, 100 + source as u64));
    format!(
        "s3://bucket/{}/{}/{}/{name}.png",
        SOURCES[source],
        &name[..2],
        &name[2..4]
    )
}

pub fn is_covered(source: usize, picture: u64) -> bool {
    source < INDEXED && chance(picture, source as u64, 6) < COVERED
}
