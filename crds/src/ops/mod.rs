//! The operations of a pipeline; one file each.

mod compute_filters;
mod extract_scaffold;
mod join_from_parquet;
mod merge_from_sidecar;
mod recaption_merge;

pub use compute_filters::{ComputeFilters, DecodeLimits, FilterName, OnRowError};
pub use extract_scaffold::ExtractScaffold;
pub use join_from_parquet::{JoinFromParquet, JoinMode};
pub use merge_from_sidecar::{MergeFromSidecar, MergeMode};
pub use recaption_merge::{RecaptionMerge, RecaptionMode};
