//! `extractScaffold`: main's columns, and every declared column that main lacks, empty.

use std::sync::Once;

use crds::ExtractScaffold;

use crate::column_plan::{ColumnPlan, ShardFiles, Value};
use crate::error::{Error, Result, ShardError};
use crate::ops::{Op, OpContext, Opened};

#[derive(Debug)]
struct Scaffold {
    drop: Vec<String>,
    declared: Vec<String>,
    /// Whether somebody was told that there is nothing to drop.
    told: Once,
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
        told: Once::new(),
    }))
}

impl Op for Scaffold {
    fn plan(&self, plan: &mut ColumnPlan, files: &ShardFiles) -> Result<(), ShardError> {
        let roots = files.main.roots_by_name();
        let absent = |name: &&String| !roots.contains_key(name.as_str());
        if let Some(name) = self.drop.iter().find(absent) {
            self.told.call_once(|| {
                let columns = files.main.column_names();
                tracing::warn!(shard = %files.main.meta.key, "extractScaffold.drop: there is no column {name:?} to drop; the columns are {columns}");
            });
        }
        plan.remove(&self.drop);
        for name in &self.declared {
            if plan.position(name).is_none() {
                plan.set(name, Value::Empty);
            }
        }
        Ok(())
    }
}
