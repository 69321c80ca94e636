//! Where the files are, relative to the output prefix.

use super::RunId;

/// The folder of everything that isn't output.
pub const FOLDER: &str = "_sidecar/";
/// The writer lock.
pub const WRITER: &str = "_sidecar/writer.json";
/// The manifest.
pub const MANIFEST: &str = "_sidecar/manifest.json";
/// The folder with a folder for each run.
pub const RUNS: &str = "_sidecar/runs/";
/// The sentinel.
pub const SENTINEL: &str = "_SUCCESS";

/// The summary of a plan, written after its parts.
pub fn plan_summary(run: &RunId) -> String {
    format!("{RUNS}{run}/plan/plan.json")
}

/// Part `number` of a plan.
pub fn plan_part(run: &RunId, number: u64) -> String {
    format!("{RUNS}{run}/plan/part-{number:08}.jsonl.zst")
}

/// What chunk `chunk` has done so far.
pub fn chunk_report(run: &RunId, chunk: u64) -> String {
    format!("{RUNS}{run}/chunks/{chunk:08}.json")
}

/// The folder of a run's chunk reports and lines.
pub fn chunks(run: &RunId) -> String {
    format!("{RUNS}{run}/chunks/")
}

/// The lines, one a shard, of a chunk that has ended.
pub fn chunk_lines(run: &RunId, chunk: u64) -> String {
    format!("{RUNS}{run}/chunks/{chunk:08}.jsonl.zst")
}

/// The run and chunk of which `key` holds the lines, if it does.
pub fn parse_chunk_lines(key: &str) -> Option<(RunId, u64)> {
    let (run, chunk) = key.strip_prefix(RUNS)?.split_once("/chunks/")?;
    let chunk = parse_number(chunk.strip_suffix(".jsonl.zst")?)?;
    Some((run.parse().ok()?, chunk))
}

/// The chunk of which `key` holds the report, if it does.
pub fn parse_chunk_report(key: &str) -> Option<(RunId, u64)> {
    let (run, chunk) = key.strip_prefix(RUNS)?.split_once("/chunks/")?;
    let chunk = parse_number(chunk.strip_suffix(".json")?)?;
    Some((run.parse().ok()?, chunk))
}

fn parse_number(text: &str) -> Option<u64> {
    let padded = text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_digit());
    if padded { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_is_number_order() {
        let run = RunId::generate();
        let mut keys: Vec<_> = [10_000_000, 9, 0, 10, 99_999_999]
            .map(|n| chunk_lines(&run, n))
            .into();
        keys.sort();
        let numbers: Vec<_> = keys
            .iter()
            .map(|key| parse_chunk_lines(key).unwrap().1)
            .collect();
        assert_eq!(numbers, [0, 9, 10, 10_000_000, 99_999_999]);
    }

    #[test]
    fn other_names_are_no_chunk_lines() {
        for key in [
            "_sidecar/runs/x/chunks/00000001.jsonl.zst",
            "_sidecar/runs/20250601-101509-aaaaaa/chunks/1.jsonl.zst",
            "_sidecar/runs/20250601-101509-aaaaaa/chunks/00000001.json",
            "_sidecar/runs/20250601-101509-aaaaaa/plan/00000001.jsonl.zst",
            "_sidecar/runs/20250601-101509-aaaaaa/chunks/0000000a.jsonl.zst",
        ] {
            assert_eq!(parse_chunk_lines(key), None, "{key}");
        }
    }
}
