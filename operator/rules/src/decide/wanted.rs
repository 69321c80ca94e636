//! Which pipeline and prefix the spec asks for, and whether a run is that.

use crds::{OnSpecChange, RunStatus, SidecarJobSpec, StorageAccess, digest, prefix};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;

use crate::model::frozen;

/// Digits of a digest in the name of a folder.
const DIGITS_OF_A_FOLDER: usize = 12;

/// What the spec asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Digest of the pipeline, which covers the main prefix too.
    pub(super) digest: String,
    /// Hash of the spec as it is written.
    pub(super) written: String,
    /// How object storage is reached, but for the credentials.
    pub(super) storage: StorageAccess,
    pub(super) main_prefix: String,
    pub(super) looks_up: bool,
    /// `output.prefix`, normalised.
    base: Option<String>,
    /// What the names of outputs begin with that the spec doesn't name.
    stem: String,
    pub(super) on_change: OnSpecChange,
}

/// Where a run writes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Place {
    pub(super) prefix: String,
    /// Whether nobody named it.
    pub(super) is_chosen: bool,
}

impl Wanted {
    /// # Errors
    /// In words, if a type or a step is faulty in a way that no schema finds.
    pub(super) fn of(spec: &SidecarJobSpec) -> Result<Self, String> {
        let digest = digest::pipeline_digest(spec).map_err(|error| error.to_string())?;
        let dataset = &spec.dataset;
        let beside = dataset.sidecar_prefix.as_ref();
        let beside = beside.unwrap_or(&dataset.main_prefix);
        let base = spec.output.prefix.as_deref().map(prefix::normalize);
        let stem = prefix::sibling_stem(beside);
        if base.is_none() && stem.is_none() {
            return Err(prefix::no_sibling(beside));
        }
        Ok(Self {
            digest,
            written: digest::written_hash(spec),
            storage: frozen::without_credentials(spec.storage.clone().unwrap_or_default()),
            main_prefix: dataset.main_prefix.clone(),
            looks_up: frozen::has_lookups(spec),
            base,
            stem: stem.unwrap_or_default(),
            on_change: spec.on_spec_change,
        })
    }

    /// Where a run that begins now writes. `last` is the output of the run before: what the
    /// operator chose itself stays, unless every change is to have a folder of its own.
    pub(super) fn place(&self, last: Option<&str>, now: Timestamp) -> Place {
        if let Some(base) = &self.base {
            let prefix = match self.on_change {
                OnSpecChange::NewPrefix => folder(base, &self.digest),
                OnSpecChange::Reject | OnSpecChange::Rerun => base.clone(),
            };
            return Place {
                prefix,
                is_chosen: false,
            };
        }
        let stem = &self.stem;
        let kept =
            last.filter(|last| last.starts_with(stem) && self.on_change != OnSpecChange::NewPrefix);
        let prefix = match kept {
            Some(last) => last.to_owned(),
            None => {
                let now = now.to_zoned(TimeZone::UTC);
                format!("{stem}{}/", now.strftime("%Y%m%d_%H%M%S"))
            }
        };
        Place {
            prefix,
            is_chosen: true,
        }
    }

    /// Whether a run with this output is what the spec asks for. The spec as it was written
    /// decides: what another release has made of it may have had another digest. To write the
    /// same in other words is no change, either.
    pub(super) fn is(&self, run: &RunStatus, output: &str) -> bool {
        let digest = run.pipeline_digest.as_deref().unwrap_or_default();
        self.is_pipeline(run) && self.is_place(output, digest)
    }

    pub(super) fn is_pipeline(&self, run: &RunStatus) -> bool {
        run.spec_hash.as_ref() == Some(&self.written)
            || run.pipeline_digest.as_ref() == Some(&self.digest)
    }

    /// Whether a run reaches object storage as the spec says now.
    pub(super) fn reaches(&self, run: &RunStatus) -> bool {
        frozen::is_recorded(run) && self.storage == run.storage.clone().unwrap_or_default()
    }

    /// Completes what a run keeps that an operator began which did not keep it, or not in a way
    /// that this one understands. To be asked while the spec is what it was then.
    pub(super) fn complete(&self, run: &mut RunStatus) {
        run.spec_hash = Some(self.written.clone());
        run.main_prefix = Some(self.main_prefix.clone());
        run.storage = (self.storage != StorageAccess::default()).then(|| self.storage.clone());
        run.looks_up = Some(self.looks_up);
    }

    fn is_place(&self, output: &str, digest: &str) -> bool {
        match &self.base {
            Some(base) => output == base || output == folder(base, digest),
            None => output.starts_with(&self.stem),
        }
    }
}

fn folder(base: &str, digest: &str) -> String {
    let digits = digest.get(..DIGITS_OF_A_FOLDER).unwrap_or(digest);
    format!("{base}run={digits}/")
}
