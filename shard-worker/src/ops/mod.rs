//! The operations of a pipeline.
//!
//! An op is one file: it opens its side inputs once, and says for each shard, from footers
//! alone, where the values of its columns come from. The engine does the rest: it fetches,
//! checks alignment, streams lookups past the shards, splices and encodes. A new op is a new
//! file here and a line in [`open`].

mod compute_filters;
mod extract_scaffold;
mod join_from_parquet;
mod merge_from_sidecar;
mod recaption_merge;
mod side_input;

use std::fmt::Debug;
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use crds::{ComputeFilters, Dataset, Operation, PipelineStep};
use storage::state::side_inputs::{SideInput as Pin, find};
use storage::{Store, Stores};
use tokio::runtime::Handle;

use crate::column_plan::{ColumnPlan, ShardFiles};
use crate::error::{Error, Result, ShardError};
use crate::lookup::Lookup;
use crate::ops::side_input::SideInput;
use crate::sources::Sources;

/// One operation of the pipeline, with its side inputs open.
pub trait Op: Debug + Send + Sync {
    /// Adds the op's columns to the plan of a shard, or replaces them.
    fn plan(&self, plan: &mut ColumnPlan, files: &ShardFiles) -> Result<(), ShardError>;
}

/// A row-aligned file beside each main shard, under another prefix.
#[derive(Debug, Clone)]
pub struct Sibling {
    /// Their prefix, as the manifest names it.
    pub uri: String,
    /// Where the siblings are.
    pub store: Arc<dyn Store>,
    /// Whether a shard without one fails.
    pub required: bool,
}

/// An op with what the engine must do for it.
#[derive(Debug)]
pub struct Opened {
    /// The op.
    pub op: Box<dyn Op>,
    /// A lookup to stream past the shards, and the version of what it looks into.
    pub lookup: Option<(Box<dyn Lookup>, Pin)>,
    /// A sibling file to open for each shard.
    pub sibling: Option<Sibling>,
    /// Filters to judge the images by.
    pub filters: Option<ComputeFilters>,
}

impl Opened {
    fn plain(op: impl Op + 'static) -> Self {
        Self {
            op: Box::new(op),
            lookup: None,
            sibling: None,
            filters: None,
        }
    }
}

/// What ops are opened with.
#[derive(Debug)]
pub struct OpContext<'a> {
    /// Stores of the job.
    pub stores: &'a Stores,
    /// The dataset.
    pub dataset: &'a Dataset,
    /// Declared columns, in order.
    pub declared: &'a [FieldRef],
    /// Source inference.
    pub sources: &'a Sources,
    /// Runtime for blocking reads.
    pub runtime: Handle,
    /// Number that the op's lookup gets.
    pub next_lookup: usize,
    /// Number that the op's sibling gets.
    pub next_sibling: usize,
    /// Number that the op's filters get.
    pub next_filters: usize,
}

impl OpContext<'_> {
    /// The declared field of a column, or an error that says how to declare it.
    fn declared(&self, op: &str, name: &str) -> Result<FieldRef> {
        self.declared
            .iter()
            .find(|field| field.name() == name)
            .cloned()
            .ok_or_else(|| Error::Usage(format!("{op}: column {name:?} is not declared; add {{name: {name}, type: ...}} to spec.columns")))
    }

    /// The objects of a side input: one file, or all in a folder.
    async fn side_input(&self, uri: &str, suffixes: &[&str]) -> Result<SideInput> {
        let found = find(self.stores, uri, suffixes).await?;
        if found.objects.is_empty() {
            return Err(Error::side_input(
                uri,
                format!(
                    "nothing here ends in {}; name a file, or a folder of such files",
                    suffixes.join(" or ")
                ),
            ));
        }
        Ok(SideInput::new(found))
    }
}

/// Opens the side inputs of a step. The registry of ops.
pub async fn open(step: &PipelineStep, context: &OpContext<'_>) -> Result<Opened> {
    match step
        .operation()
        .map_err(|error| Error::Usage(error.to_string()))?
    {
        Operation::ExtractScaffold(spec) => extract_scaffold::open(spec, context).await,
        Operation::JoinFromParquet(spec) => join_from_parquet::open(spec, context).await,
        Operation::MergeFromSidecar(spec) => merge_from_sidecar::open(spec, context).await,
        Operation::RecaptionMerge(spec) => recaption_merge::open(spec, context).await,
        Operation::ComputeFilters(spec) => compute_filters::open(spec, context).await,
    }
}
