//! What is beside main, as the planner finds it: side inputs, and prefixes with siblings. Workers
//! that find other versions make nothing, and shards of other versions are made again.

use std::sync::Arc;

use crds::SidecarJob;
use crds::prefix::normalize_location;
use serde::Deserialize;
use serde_json::Value;
use storage::state::side_inputs::{INDEX_SUFFIXES, SideInput, TEXT_SUFFIXES, content_hash, find};
use storage::{Error, Store, Stores};

/// What is beside main.
#[derive(Debug, Default)]
pub struct Beside {
    /// Side inputs that are looked up by key, in the order of the pipeline; `None` if they can't
    /// be looked at: workers say why.
    pub keyed: Option<Vec<SideInput>>,
    /// Prefixes with siblings, in the order of the pipeline.
    pub siblings: Vec<Arc<dyn Store>>,
}

impl Beside {
    /// Looks at what a manifest names.
    ///
    /// # Errors
    /// If a store does not answer.
    pub(super) async fn look(stores: &Stores, manifest: &Value) -> Result<Self, Error> {
        let Ok(job) = SidecarJob::deserialize(manifest) else {
            return Ok(Self::default());
        };
        match look_at(stores, &job).await {
            Err(error @ (Error::Unavailable { .. } | Error::Io { .. })) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "side inputs are not pinned");
                Ok(Self::default())
            }
            found => found,
        }
    }
}

async fn look_at(stores: &Stores, job: &SidecarJob) -> Result<Beside, Error> {
    let (mut keyed, mut siblings) = (Vec::new(), Vec::new());
    for step in &job.spec.pipeline {
        if let Some(join) = &step.join_from_parquet {
            keyed.push(pin(stores, job, &join.source, &INDEX_SUFFIXES).await?);
        }
        if let Some(recaption) = &step.recaption_merge {
            keyed.push(pin(stores, job, &recaption.source, &TEXT_SUFFIXES).await?);
        }
        if let Some(merge) = &step.merge_from_sidecar {
            siblings.push(stores.open(&merge.source_prefix)?);
        }
    }
    Ok(Beside {
        keyed: Some(keyed),
        siblings,
    })
}

async fn pin(
    stores: &Stores,
    job: &SidecarJob,
    uri: &str,
    suffixes: &[&str],
) -> Result<SideInput, Error> {
    let mut found = find(stores, uri, suffixes).await?;
    if found.is_folder && suffixes == INDEX_SUFFIXES {
        found
            .objects
            .retain(|object| is_of_a_source(job, &object.key));
    }
    let mut hashes = Vec::with_capacity(found.objects.len());
    for object in &found.objects {
        hashes.push(content_hash(&*found.store, object).await?);
    }
    let files = found.objects.iter().zip(&hashes);
    let files = files.map(|(object, hash)| (object, hash.as_str()));
    Ok(SideInput::new(&normalize_location(uri), files))
}

/// Whether rows look into this file of an index folder, as its name says.
fn is_of_a_source(job: &SidecarJob, key: &str) -> bool {
    let Some(sources) = &job.spec.dataset.sources else {
        return true;
    };
    let name = key.rsplit('/').next().unwrap_or(key);
    let stem = name.trim_end_matches(".parquet");
    let markers = sources.markers.iter().map(|marker| marker.source.as_str());
    markers
        .chain(sources.default.as_deref())
        .any(|source| source == stem)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use storage::StorageConfig;

    use super::*;

    #[tokio::test]
    async fn what_workers_look_into_is_pinned() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        std::fs::create_dir(root.join("index")).expect("a folder");
        for (name, text) in [
            ("index/raw.parquet", "first"),
            ("index/stray.parquet", "of no source"),
            ("index/notes.txt", "notes"),
            ("c.jsonl", "{}"),
        ] {
            std::fs::write(root.join(name), text).expect("write");
        }
        let at = |name: &str| format!("{}/{name}", root.display());
        let manifest = json!({
            "apiVersion": "sidecarjob.dev/v1alpha1", "kind": "SidecarJob", "metadata": {"name": "x"},
            "spec": {
                "dataset": {"mainPrefix": at("main/"), "keyColumn": "k",
                    "sources": {"markers": [{"contains": "/raw/", "source": "raw"}]}},
                "columns": [],
                "pipeline": [
                    {"joinFromParquet": {"source": at("index/"), "columns": ["v"]}},
                    {"recaptionMerge": {"source": at("c.jsonl"), "columns": ["c"]}},
                    {"mergeFromSidecar": {"sourcePrefix": at("scores/")}}
                ],
                "output": {"prefix": at("out/")}
            }
        });
        let stores = Stores::new(&StorageConfig::default());
        let look = async || Beside::look(&stores, &manifest).await.expect("a look");
        let before = look().await;
        let pins = before.keyed.expect("pins");
        let sizes: Vec<_> = pins.iter().map(|pin| (pin.files, pin.size)).collect();
        assert_eq!(sizes, [(1, 5), (1, 2)]);
        assert_eq!(before.siblings.len(), 1);
        std::fs::write(root.join("index/raw.parquet"), "other").expect("write");
        let after = look().await.keyed.expect("pins");
        assert_ne!(after[0], pins[0]);
        assert_ne!(after[0].sha256, pins[0].sha256);
        assert_eq!(after[1], pins[1]);
        // Workers say what is wrong with what can't be looked at.
        std::fs::remove_file(root.join("c.jsonl")).expect("remove");
        std::os::unix::fs::symlink("gone", root.join("c.jsonl")).expect("a link");
        assert!(look().await.keyed.is_none());
    }
}
