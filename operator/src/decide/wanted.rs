//! Which pipeline and prefix the spec asks for, and whether a run is that.

use crds::{OnSpecChange, RunStatus, SidecarJobSpec, digest, prefix};
use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;

/// Digits of a digest in the name of a folder.
const DIGITS_OF_A_FOLDER: usize = 12;

/// What the spec asks for.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// Digest of the pipeline, which covers the main prefix too.
    pub(super) digest: String,
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

    /// Whether a run with this output is what the spec asks for.
    pub(super) fn is(&self, run: &RunStatus, output: &str) -> bool {
        let digest = run.pipeline_digest.as_deref().unwrap_or_default();
        digest == self.digest && self.is_place(output, digest)
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
