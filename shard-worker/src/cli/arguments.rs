//! The arguments, as given.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

use storage::state::RunId;

use crate::chunk::termination;
use crate::resources::parse_bytes;

/// Adds columns to a dataset of Parquet shards as row-aligned sidecar shards.
#[derive(Debug, Parser)]
#[command(
    name = "shard-worker",
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done; 1 finished, some shards failed; 2 usage or manifest; 3 verification failed; 4 another writer holds the prefix, or the lock was lost; 5 storage refused; 143 stopped by a signal."
)]
pub struct Arguments {
    /// Format of log lines on standard error.
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Also log why columns are decoded, and other details. RUST_LOG wins.
    #[arg(long, short, global = true)]
    pub verbose: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make the sidecar shards that are missing, and publish them.
    Run(RunArguments),
    /// Do one work item of a run that an operator has planned: the command of its pods.
    Chunk(ChunkArguments),
    /// Prove that an output is whole and aligned with main.
    Verify(VerifyArguments),
    /// Show match rates per source and path prefix, and how full the columns are.
    Audit(AuditArguments),
    /// Check a manifest, or pipelines/x.yaml of the split layout, and print it as a SidecarJob.
    Manifest {
        /// The manifest.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff).
    Man,
}

/// What all commands on a job take.
#[derive(Debug, Args)]
pub struct JobArguments {
    /// The SidecarJob manifest, or pipelines/x.yaml of the split layout.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Where the sidecar is, instead of spec.output.prefix.
    #[arg(long, value_name = "URI")]
    pub output_prefix: Option<String>,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The job.
    #[command(flatten)]
    pub job: JobArguments,
    /// Make shards again that are there and right.
    #[arg(long)]
    pub no_skip_existing: bool,
    /// Check everything and show what would be done; read no shard, write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Only shards whose relative path matches; without a / it matches file names.
    #[arg(long, value_name = "GLOB")]
    pub select: Option<String>,
    /// Make at most this many shards.
    #[arg(long, value_name = "N")]
    pub max_shards: Option<u64>,
    /// Memory to work with, e.g. 4GiB. Default: most of the container's limit or of what is free.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// CPU threads. Default: the container's quota or all cores.
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,
    /// Write a report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

/// Arguments of `chunk`.
///
/// Storage is reached as the usual AWS variables say, and SIDECARJOB_S3_PATH_STYLE (true or
/// false); the frozen manifest's spec.storage counts for nothing.
#[derive(Debug, Args)]
pub struct ChunkArguments {
    /// The effective output prefix, below which the operator has left its files.
    #[arg(long, value_name = "URI")]
    pub output_prefix: String,
    /// The run.
    #[arg(long)]
    pub run: RunId,
    /// Epoch of the writer lock that the operator holds for the run.
    #[arg(long, value_name = "N")]
    pub epoch: u64,
    /// Digest of the run's pipeline: files of another are refused. Default: the batch's.
    #[arg(long, value_name = "HEX")]
    pub digest: Option<String>,
    /// The batch.
    #[arg(long, value_name = "N")]
    pub batch: u64,
    /// Number of the attempt at the batch, from 1.
    #[arg(long, value_name = "N")]
    pub attempt: u32,
    /// Index of the work item in the batch. Default: JOB_COMPLETION_INDEX.
    #[arg(long, value_name = "N")]
    pub index: Option<u64>,
    /// Memory to work with, e.g. 4GiB. Default: most of the container's limit or of what is free.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// CPU threads. Default: the container's quota or all cores.
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,
    /// Where to leave the item's totals, as JSON of at most 4096 bytes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, default_value = termination::DEFAULT_PATH)]
    pub termination_log: PathBuf,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArguments {
    /// The job.
    #[command(flatten)]
    pub job: JobArguments,
    /// Look into this many shards, spread evenly; the shard set is always checked whole.
    #[arg(long, value_name = "N", default_value_t = 50, conflicts_with = "all")]
    pub samples: u64,
    /// Look into every shard.
    #[arg(long)]
    pub all: bool,
    /// Also decode every page, check its CRC where it has one, and compare content hashes.
    #[arg(long)]
    pub deep: bool,
    /// Memory to work with, e.g. 4GiB. Default: most of the container's limit or of what is free.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// CPU threads. Default: the container's quota or all cores.
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,
    /// Write a report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

/// Arguments of `audit`.
#[derive(Debug, Args)]
pub struct AuditArguments {
    /// The job.
    #[command(flatten)]
    pub job: JobArguments,
    /// Memory to work with, e.g. 4GiB. Default: most of the container's limit or of what is free.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// CPU threads. Default: the container's quota or all cores.
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    pub threads: Option<usize>,
    /// Write a report as JSON.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=1024).contains(&threads) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}
