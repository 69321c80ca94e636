//! The report of a verification.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Problems printed; the JSON report has all.
const SHOWN: usize = 20;

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Shard.
    pub path: String,
    /// What is proven wrong: `missing`, `orphan`, `rows`, `order`, `schema`, `content`,
    /// `provenance`, `unreadable`.
    pub kind: &'static str,
    /// Expected and found.
    pub detail: String,
}

/// What was proven.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    /// Version of this format.
    pub version: u32,
    /// Output prefix.
    pub output: String,
    /// Shards of main.
    pub shards: u64,
    /// Shards that were looked into.
    pub looked_into: u64,
    /// Rows whose keys were compared.
    pub rows: u64,
    /// Whether pages were decoded and hashes compared.
    pub deep: bool,
    /// Shards without a hash in the manifest to compare with.
    pub without_hash: u64,
    /// All problems, by path.
    pub problems: Vec<Problem>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "output  {}", self.output)?;
        writeln!(
            formatter,
            "shards  {} in main, {} looked into{}",
            self.shards,
            self.looked_into,
            if self.deep { ", every page read" } else { "" }
        )?;
        writeln!(formatter, "rows    {} compared by key", self.rows)?;
        if self.without_hash > 0 {
            writeln!(
                formatter,
                "hashes  {} shards have none in the manifest to compare with",
                self.without_hash
            )?;
        }
        if self.problems.is_empty() {
            return writeln!(
                formatter,
                "aligned: shard set, row counts, order, schema and content are as they should be"
            );
        }
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for problem in &self.problems {
            *kinds.entry(problem.kind).or_default() += 1;
        }
        let kinds: Vec<String> = kinds
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        writeln!(formatter, "NOT VERIFIED: {}", kinds.join(", "))?;
        for problem in self.problems.iter().take(SHOWN) {
            writeln!(
                formatter,
                "  {}: {}: {}",
                problem.path, problem.kind, problem.detail
            )?;
        }
        if self.problems.len() > SHOWN {
            writeln!(
                formatter,
                "  and {} more: see --report",
                self.problems.len() - SHOWN
            )?;
        }
        if self
            .problems
            .iter()
            .any(|problem| problem.kind == "missing")
        {
            let advice = "another run of the same manifest makes what is missing";
            writeln!(formatter, "{advice}")?;
        }
        Ok(())
    }
}
