//! New captions as JSON lines.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Result;

use crate::plan::{INDEXED, Shard};
use crate::scatter::{mix, sentence};

/// New captions as JSON lines, for two rows in three of the indexed sources, with all that
/// such files suffer from.
pub fn write_recaptions(root: &Path, plan: &[Shard]) -> Result<()> {
    let folder = root.join("recaptions");
    fs::create_dir_all(&folder)?;
    let broken: [&[u8]; 4] = [
        b"{\"s3_path\": \"s3://bucket/source_a/cut off",
        b"not JSON at all",
        b"{\"recaption\": \"a line without its key\"}",
        b"{\"s3_path\": \"s3://bucket/source_b/x\", \"recaption\": \"not UTF-8: \xff\xfe\"}",
    ];
    for (part, shards) in plan.chunks(60).enumerate() {
        let mut file = Vec::new();
        for shard in shards.iter().filter(|shard| shard.source < INDEXED) {
            for row in 0..shard.rows {
                let Some(key) = shard.key(row) else { continue };
                let seed = mix(shard.picture(row), 24 + shard.source as u64);
                if seed.is_multiple_of(3) {
                    continue;
                }
                let texts = match seed / 3 % 100 {
                    0 => vec![String::new()],
                    1 => vec!["  \\t ".to_owned()],
                    2 => vec![
                        sentence(seed, 5),
                        format!("{} (second draft)", sentence(seed, 6)),
                    ],
                    _ => vec![format!(
                        "A {} scene with a {}",
                        sentence(seed, 1),
                        sentence(seed >> 8, 3)
                    )],
                };
                for text in texts {
                    let mut line = String::new();
                    writeln!(
                        line,
                        "{{\"s3_path\": \"{key}\", \"recaption\": \"{text}\"}}"
                    )?;
                    file.extend_from_slice(line.as_bytes());
                }
                if (seed / 300).is_multiple_of(500) {
                    file.extend_from_slice(broken[(seed >> 32) as usize % broken.len()]);
                    file.push(b'\n');
                }
            }
        }
        fs::write(folder.join(format!("part-{part:05}.jsonl")), file)?;
    }
    Ok(())
}
