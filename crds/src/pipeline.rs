//! A step of the pipeline: exactly one operation.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    ops::{ComputeFilters, ExtractScaffold, JoinFromParquet, MergeFromSidecar, RecaptionMerge},
    rules,
};

/// A step of the pipeline. Exactly one of the fields is set.
#[derive(Clone, Debug, Default, Deserialize, Eq, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = rules::one_operation())]
pub struct PipelineStep {
    /// Pass main's columns through and add the declared ones, empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extract_scaffold: Option<ExtractScaffold>,
    /// Bring columns of a Parquet index, looked up by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_from_parquet: Option<JoinFromParquet>,
    /// Bring columns of another sidecar of the same main shards, row by row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_from_sidecar: Option<MergeFromSidecar>,
    /// Bring texts, looked up by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recaption_merge: Option<RecaptionMerge>,
    /// Compute quality metrics of the images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_filters: Option<ComputeFilters>,
}

/// The operation of a step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation<'a> {
    /// `extractScaffold`
    ExtractScaffold(&'a ExtractScaffold),
    /// `joinFromParquet`
    JoinFromParquet(&'a JoinFromParquet),
    /// `mergeFromSidecar`
    MergeFromSidecar(&'a MergeFromSidecar),
    /// `recaptionMerge`
    RecaptionMerge(&'a RecaptionMerge),
    /// `computeFilters`
    ComputeFilters(&'a ComputeFilters),
}

/// A step that has no operation, or several. The rules refuse it, so it can only be met
/// in a manifest that was not validated.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("a pipeline step needs exactly one operation, this one has {found}")]
pub struct InvalidStep {
    /// How many operations the step has.
    pub found: usize,
}

impl PipelineStep {
    /// The operation of this step.
    ///
    /// # Errors
    /// If the step has no operation or several.
    pub fn operation(&self) -> Result<Operation<'_>, InvalidStep> {
        // Taken apart in full, so that a new operation can't be forgotten here.
        let Self {
            extract_scaffold,
            join_from_parquet,
            merge_from_sidecar,
            recaption_merge,
            compute_filters,
        } = self;
        let candidates = [
            extract_scaffold.as_ref().map(Operation::ExtractScaffold),
            join_from_parquet.as_ref().map(Operation::JoinFromParquet),
            merge_from_sidecar.as_ref().map(Operation::MergeFromSidecar),
            recaption_merge.as_ref().map(Operation::RecaptionMerge),
            compute_filters.as_ref().map(Operation::ComputeFilters),
        ];
        let mut found = candidates.into_iter().flatten();
        match (found.next(), found.count()) {
            (Some(operation), 0) => Ok(operation),
            (first, others) => Err(InvalidStep {
                found: usize::from(first.is_some()) + others,
            }),
        }
    }
}

impl Operation<'_> {
    /// Name of the operation as a manifest writes it: `joinFromParquet`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ExtractScaffold(_) => "extractScaffold",
            Self::JoinFromParquet(_) => "joinFromParquet",
            Self::MergeFromSidecar(_) => "mergeFromSidecar",
            Self::RecaptionMerge(_) => "recaptionMerge",
            Self::ComputeFilters(_) => "computeFilters",
        }
    }
}

impl From<ExtractScaffold> for PipelineStep {
    fn from(operation: ExtractScaffold) -> Self {
        Self {
            extract_scaffold: Some(operation),
            ..Self::default()
        }
    }
}

impl From<JoinFromParquet> for PipelineStep {
    fn from(operation: JoinFromParquet) -> Self {
        Self {
            join_from_parquet: Some(operation),
            ..Self::default()
        }
    }
}

impl From<MergeFromSidecar> for PipelineStep {
    fn from(operation: MergeFromSidecar) -> Self {
        Self {
            merge_from_sidecar: Some(operation),
            ..Self::default()
        }
    }
}

impl From<RecaptionMerge> for PipelineStep {
    fn from(operation: RecaptionMerge) -> Self {
        Self {
            recaption_merge: Some(operation),
            ..Self::default()
        }
    }
}

impl From<ComputeFilters> for PipelineStep {
    fn from(operation: ComputeFilters) -> Self {
        Self {
            compute_filters: Some(operation),
            ..Self::default()
        }
    }
}
