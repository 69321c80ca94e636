//! A manifest made ready to run: stores open, side inputs checked, output prefix decided.

use std::sync::Arc;

use arrow::datatypes::FieldRef;
use crds::{ChecksumMode, ComputeFilters, SidecarJob, SidecarJobSpec};
use storage::state::join::Diff;
use storage::state::side_inputs::SideInput;
use storage::{Location, StorageConfig, Store, Stores};
use time::OffsetDateTime;
use tokio::runtime::Handle;

use crate::arrow_types::arrow_field;
use crate::error::{Error, Result};
use crate::lookup::Lookup;
use crate::ops::{self, Op, OpContext, Sibling};
use crate::parquet_file::TailHint;
use crate::sources::Sources;

/// Where the output prefix came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputOrigin {
    /// `--output-prefix`.
    CommandLine,
    /// `spec.output.prefix`.
    Manifest,
    /// Nobody named one: a new folder beside the sidecar prefix, or beside main.
    Timestamped,
}

/// The effective output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPrefix {
    /// URI, ends in `/`.
    pub uri: String,
    /// Who named it.
    pub origin: OutputOrigin,
}

/// A job that can run.
#[derive(Debug)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// Its spec.
    pub spec: SidecarJobSpec,
    /// Digest of what decides the bytes of a shard.
    pub digest: String,
    /// Effective output.
    pub output_prefix: OutputPrefix,
    /// All stores.
    pub stores: Arc<Stores>,
    /// Main shards.
    pub main: Arc<dyn Store>,
    /// Sidecar shards.
    pub output: Arc<dyn Store>,
    /// Key column of main.
    pub key: String,
    /// Image column of main.
    pub image: Option<String>,
    /// Declared columns.
    pub declared: Vec<FieldRef>,
    /// Source inference.
    pub sources: Sources,
    /// The pipeline.
    pub ops: Vec<Box<dyn Op>>,
    /// Its lookups, in order.
    pub lookups: Vec<Box<dyn Lookup>>,
    /// What the lookups look into, in their order: as it was opened.
    pub keyed: Vec<SideInput>,
    /// Its siblings, in order.
    pub siblings: Vec<Sibling>,
    /// Its filters, a list for each step that has some.
    pub filters: Vec<ComputeFilters>,
    /// How much of a file's end to read: main's, then each sibling's.
    pub hints: Vec<TailHint>,
}

/// Decides the output prefix: the command line wins over the manifest; with neither, nothing
/// that exists is written to.
///
/// # Errors
/// If a prefix that was named is none, or none is and there is no place for a new one.
pub fn output_prefix(
    spec: &SidecarJobSpec,
    named: Option<&str>,
    now: OffsetDateTime,
) -> Result<OutputPrefix> {
    let place = |what: &str, uri: &str| match Location::parse(uri) {
        Ok(location) => Ok(location.to_prefix_uri()),
        Err(error) if error.is_invalid() => Err(Error::Usage(format!("{what}: {error}"))),
        Err(error) => Err(error.into()),
    };
    if let Some(uri) = named {
        return Ok(OutputPrefix {
            uri: place("--output-prefix", uri)?,
            origin: OutputOrigin::CommandLine,
        });
    }
    if let Some(uri) = &spec.output.prefix {
        return Ok(OutputPrefix {
            uri: place("spec.output.prefix", uri)?,
            origin: OutputOrigin::Manifest,
        });
    }
    let beside = spec
        .dataset
        .sidecar_prefix
        .as_ref()
        .unwrap_or(&spec.dataset.main_prefix);
    let stem = crds::prefix::sibling_stem(beside)
        .ok_or_else(|| Error::Usage(crds::prefix::no_sibling(beside)))?;
    let stamp = format!(
        "{:04}{:02}{:02}_{:02}{:02}{:02}",
        now.year(),
        u8::from(now.month()),
        now.day(),
        now.hour(),
        now.minute(),
        now.second()
    );
    Ok(OutputPrefix {
        uri: place("the output beside it", &format!("{stem}{stamp}/"))?,
        origin: OutputOrigin::Timestamped,
    })
}

/// An output inside an input, or the reverse, would feed the job its own files. Compares the
/// folders themselves, whatever leads to them.
///
/// # Errors
/// If two of them lie inside one another, or one is no location.
pub fn check_apart(spec: &SidecarJobSpec, output: &str) -> Result<()> {
    let dataset = &spec.dataset;
    let mut inputs = vec![("dataset.mainPrefix", dataset.main_prefix.as_str())];
    for step in &spec.pipeline {
        if let Some(join) = &step.join_from_parquet {
            inputs.push(("joinFromParquet.source", &join.source));
        }
        if let Some(merge) = &step.merge_from_sidecar {
            inputs.push(("mergeFromSidecar.sourcePrefix", &merge.source_prefix));
        }
        if let Some(recaption) = &step.recaption_merge {
            inputs.push(("recaptionMerge.source", &recaption.source));
        }
    }
    let place = Location::parse(output)?;
    for (field, input) in inputs {
        if place.overlaps(&Location::parse(input)?) {
            return Err(Error::Usage(format!(
                "the output {output} and {field} {input} lie inside one another; choose another output prefix"
            )));
        }
    }
    if let Some(sidecar) = &dataset.sidecar_prefix {
        let beside = Location::parse(sidecar)?;
        // The sidecar itself may be what is written.
        let is_the_same = place.contains(&beside) && beside.contains(&place);
        if place.overlaps(&beside) && !is_the_same {
            return Err(Error::Usage(format!(
                "the output {output} and dataset.sidecarPrefix {sidecar} lie inside one another; choose another output prefix"
            )));
        }
    }
    Ok(())
}

/// How storage is reached: as the manifest says, and where it says nothing as `otherwise` says.
pub fn storage_config(spec: &SidecarJobSpec, otherwise: &StorageConfig) -> StorageConfig {
    let mut config = otherwise.clone();
    if let Some(access) = &spec.storage {
        let checksum = access.request_checksums.map(|mode| match mode {
            ChecksumMode::WhenSupported => storage::ChecksumMode::WhenSupported,
            ChecksumMode::WhenRequired => storage::ChecksumMode::WhenRequired,
        });
        config.endpoint = access.endpoint.clone().or(config.endpoint);
        config.region = access.region.clone().or(config.region);
        config.path_style = access.path_style.or(config.path_style);
        config.request_checksum = checksum.or(config.request_checksum);
    }
    config
}

impl Job {
    /// Opens everything that a run needs besides the shards.
    pub async fn open(manifest: SidecarJob, named_output: Option<&str>) -> Result<Self> {
        let config = storage_config(&manifest.spec, &StorageConfig::default());
        Self::open_in(Arc::new(Stores::new(&config)), manifest, named_output).await
    }

    /// As [`Job::open`], with stores that are reached as the manifest says.
    pub async fn open_in(
        stores: Arc<Stores>,
        manifest: SidecarJob,
        named_output: Option<&str>,
    ) -> Result<Self> {
        let name = manifest
            .metadata
            .name
            .clone()
            .unwrap_or_else(|| "unnamed".to_owned());
        let spec = manifest.spec;
        let output_prefix = output_prefix(&spec, named_output, OffsetDateTime::now_utc())?;
        check_apart(&spec, &output_prefix.uri)?;
        let usage = |error: &dyn std::fmt::Display| Error::Usage(error.to_string());
        let digest = crds::digest::pipeline_digest(&spec).map_err(|error| usage(&error))?;
        let columns = spec.resolved_columns().map_err(|error| usage(&error))?;
        let declared: Vec<FieldRef> = columns
            .iter()
            .map(|column| arrow_field(&column.name, &column.data_type))
            .collect();
        let sources = match &spec.dataset.sources {
            Some(sources) => Sources::new(
                sources
                    .markers
                    .iter()
                    .map(|marker| (marker.contains.as_str(), marker.source.as_str())),
                sources.default.as_deref(),
            ),
            None => Sources::default(),
        };
        let main = stores.open(&spec.dataset.main_prefix)?;
        let output = stores.open(&output_prefix.uri)?;
        let mut job = Self {
            name,
            digest,
            output_prefix,
            main,
            output,
            key: spec.dataset.key_column.clone(),
            image: spec.dataset.image_column.clone(),
            declared,
            sources,
            ops: Vec::new(),
            lookups: Vec::new(),
            keyed: Vec::new(),
            siblings: Vec::new(),
            filters: Vec::new(),
            hints: vec![TailHint::default()],
            stores,
            spec,
        };
        job.open_ops().await?;
        Ok(job)
    }

    async fn open_ops(&mut self) -> Result<()> {
        for (step, definition) in self.spec.pipeline.iter().enumerate() {
            let context = OpContext {
                stores: &self.stores,
                dataset: &self.spec.dataset,
                declared: &self.declared,
                sources: &self.sources,
                runtime: Handle::current(),
                next_lookup: self.lookups.len(),
                next_sibling: self.siblings.len(),
                next_filters: self.filters.len(),
            };
            let opened = ops::open(definition, &context)
                .await
                .map_err(|error| match error {
                    Error::Usage(reason) => {
                        Error::Usage(format!("spec.pipeline[{step}]: {reason}"))
                    }
                    other => other,
                })?;
            self.ops.push(opened.op);
            if let Some((lookup, pin)) = opened.lookup {
                self.lookups.push(lookup);
                self.keyed.push(pin);
            }
            self.filters.extend(opened.filters);
            if let Some(sibling) = opened.sibling {
                self.siblings.push(sibling);
                self.hints.push(TailHint::default());
            }
        }
        Ok(())
    }

    /// The lookups whose hits count as matches: the joins, or all if there is no join.
    pub fn match_lookups(&self) -> Vec<usize> {
        let joins: Vec<usize> = (0..self.lookups.len())
            .filter(|&lookup| self.lookups[lookup].decides_match())
            .collect();
        if joins.is_empty() {
            (0..self.lookups.len()).collect()
        } else {
            joins
        }
    }

    /// Has a comparison look at what is beside main, too.
    pub fn compare_inputs<'a>(&'a self, diff: Diff<'a>) -> Diff<'a> {
        let siblings = self.siblings.iter();
        let listings = siblings.map(|sibling| (sibling.store.uri(), sibling.store.list_shards()));
        diff.with_inputs(self.keyed.clone(), listings.collect())
    }

    /// What people should know of the side inputs, though they can be used.
    pub fn warnings(&self) -> Vec<String> {
        let lookups = self.lookups.iter();
        lookups.flat_map(|lookup| lookup.warnings()).collect()
    }

    /// Whether images are judged and nothing is matched with anything.
    pub fn only_judges_images(&self) -> bool {
        !self.filters.is_empty() && !self.has_lookups() && self.siblings.is_empty()
    }

    /// Whether a run has a pass over a side input, which a chunk of many shards shares.
    pub fn has_lookups(&self) -> bool {
        !self.lookups.is_empty()
    }
}
