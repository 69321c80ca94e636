//! How much is read of each kind of state file. Whoever may write below an output prefix may
//! write these files too, so that no reader may be made to hold, or to work through, what it
//! has no use for. Sizes are compared before a body is read; `docs/state-files.md` has the table.
//!
//! Writers keep to what readers take: [`super::document::put`] and the writers of lines refuse
//! what would not be read again.

/// Bytes of `writer.json`.
pub const LOCK: u64 = 64 << 10;
/// Bytes of `_SUCCESS`.
pub const SENTINEL: u64 = 64 << 10;
/// Bytes of `job.json`: more than an API server keeps of an object.
pub const FROZEN_JOB: u64 = 2 << 20;
/// Bytes of `plan/plan.json`: enough for 80,000 hashes.
pub const PLAN_SUMMARY: u64 = 8 << 20;
/// Bytes of `batches/<b>-<a>.json`: enough for 100,000 items.
pub const BATCH: u64 = 8 << 20;
/// Bytes of `chunks/<n>.json`.
pub const REPORT: u64 = 1 << 20;
/// Bytes of `manifest.json`: enough for 70,000 parts.
pub const MANIFEST: u64 = 32 << 20;

/// What is read of a file of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinesLimit {
    /// Bytes of the file, compressed as it is.
    pub file: u64,
    /// Bytes of all its lines.
    pub text: u64,
}

/// A part of a plan: 8,192 lines in those of the operator.
pub const PLAN_PART: LinesLimit = LinesLimit {
    file: 32 << 20,
    text: 512 << 20,
};
/// `chunks/<n>.jsonl.zst`: 20,000 lines at most in a run of the operator.
pub const SHARD_LINES: LinesLimit = LinesLimit {
    file: 32 << 20,
    text: 512 << 20,
};
/// Bytes of a line, its end included.
pub const LINE: usize = 1 << 20;
/// Two to the power of this are the bytes that decompressing may look back on, so what each
/// file that is open costs: as many as level 3 of zstd, ours, needs.
pub const WINDOW_LOG: u32 = 21;
/// Bytes that files of lines may cost which are open at the same time, since their ranges overlap.
pub const OPEN_LINES: u64 = 64 << 20;
/// Bytes of files of lines that are read before they are needed.
pub const READ_AHEAD: u64 = 16 << 20;

/// Columns of a report.
pub const COLUMNS: usize = 2048;
/// Reasons of faults of rows in a report, which has a handful.
pub const REASONS: usize = 64;
/// Sources of a report: those of a manifest, and none.
pub const SOURCES: usize = 1024;
/// Bytes of the name of a column, a reason or a source.
pub const NAME: usize = 512;
/// Bytes of a path in a report: longer ones are those of no store.
pub const PATH: usize = 4096;
/// Bytes of why something failed.
pub const REASON: usize = 16 << 10;
/// Objects below a folder of state files, such as all that runs have left.
pub const FOLDER: usize = 400_000;

/// Cuts a text to `limit` bytes at most, at the end of a character.
pub fn cut(text: &mut String, limit: usize) {
    text.truncate(text.floor_char_boundary(limit));
}
