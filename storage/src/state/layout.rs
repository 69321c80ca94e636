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

/// The manifest as a run uses it, whatever happens to the object it came from.
pub fn frozen_job(run: &RunId) -> String {
    format!("{RUNS}{run}/job.json")
}

/// The items of attempt `attempt` at batch `batch`.
pub fn batch(run: &RunId, batch: u64, attempt: u32) -> String {
    format!("{RUNS}{run}/batches/{batch:08}-{attempt:04}.json")
}

/// The folder of a run's batches.
pub fn batches(run: &RunId) -> String {
    format!("{RUNS}{run}/batches/")
}

/// The shards of a run that failed, for people.
pub fn failures(run: &RunId) -> String {
    format!("{RUNS}{run}/failures.jsonl")
}

/// The run, batch and attempt of which `key` holds the items, if it does.
pub fn parse_batch(key: &str) -> Option<(RunId, u64, u32)> {
    let (run, name) = key.strip_prefix(RUNS)?.split_once("/batches/")?;
    let (batch, attempt) = name.strip_suffix(".json")?.split_once('-')?;
    let is_padded = attempt.len() >= 4 && attempt.bytes().all(|byte| byte.is_ascii_digit());
    let attempt = is_padded.then(|| attempt.parse().ok())??;
    Some((run.parse().ok()?, parse_number(batch)?, attempt))
}

/// The summary of a plan, written after its parts.
pub fn plan_summary(run: &RunId) -> String {
    format!("{RUNS}{run}/plan/plan.json")
}

/// Part `number` of a plan, with the hash that its summary names; plans of former releases have
/// none.
pub fn plan_part(run: &RunId, number: u64, hash: Option<&str>) -> String {
    let hash = hash.map(|hash| format!("-{hash}")).unwrap_or_default();
    format!("{RUNS}{run}/plan/part-{number:08}{hash}.jsonl.zst")
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

/// The run that `key` is a file of, if it is one.
pub fn parse_run(key: &str) -> Option<RunId> {
    key.strip_prefix(RUNS)?.split_once('/')?.0.parse().ok()
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
    fn batches_are_known_by_their_names() {
        let run = RunId::generate();
        let key = batch(&run, 7, 2);
        assert!(key.ends_with("/batches/00000007-0002.json"), "{key}");
        assert!(key.starts_with(&batches(&run)));
        assert_eq!(parse_batch(&key), Some((run.clone(), 7, 2)));
        for wrong in ["0000000a-0001.json", "00000007-1.json", "00000007.json"] {
            assert_eq!(parse_batch(&format!("{}{wrong}", batches(&run))), None);
        }
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
