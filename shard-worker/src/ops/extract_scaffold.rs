//! `extractScaffold`: main's columns, and every declared column that main lacks, empty.

use crds::ExtractScaffold;

use crate::column_plan::{ColumnPlan, ShardFiles, Value};
use crate::error::{Error, Result, ShardError};
use crate::ops::{Op, OpContext, Opened};

#[derive(Debug)]
struct Scaffold {
    drop: Vec<String>,
    declared: Vec<String>,
}

/// Opens the op.
pub async fn open(spec: &ExtractScaffold, context: &OpContext<'_>) -> Result<Opened> {
    if let Some(name) = spec
        .drop
        .iter()
        .find(|name| **name == context.dataset.key_column)
    {
        return Err(Error::Usage(format!(
            "extractScaffold.drop: {name:?} is the key column; a sidecar without it could not be verified"
        )));
    }
    let declared = context
        .declared
        .iter()
        .map(|field| field.name().clone())
        .collect();
    Ok(Opened::plain(Scaffold {
        drop: spec.drop.clone(),
        declared,
    }))
}

impl Op for Scaffold {
    fn plan(&self, plan: &mut ColumnPlan, _files: &ShardFiles) -> Result<(), ShardError> {
        for name in &self.drop {
            plan.remove(name);
        }
        for name in &self.declared {
            if plan.position(name).is_none() {
                plan.set(name, Value::Empty);
            }
        }
        Ok(())
    }
}
