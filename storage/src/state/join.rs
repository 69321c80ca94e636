//! The join of three sorted streams (main's listing, the output's listing, the manifest's
//! lines) that tells what is left to do. Holds a page of each listing and the manifest's open
//! parts, whatever the number of shards.

use std::collections::VecDeque;

use futures::StreamExt;
use futures::stream::BoxStream;

use super::diff::{Decision, Policy, decide, with_inputs};
use super::error::{Result, StateError};
use super::merge::{MergedLines, RecordedLine};
use super::side_inputs::{SideInput, versions};
use crate::store::{ListPage, ObjectMeta};

/// A shard of main or of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shard {
    /// A shard of main, and what to do about it.
    Planned(Box<Planned>),
    /// A shard of the output that main doesn't have.
    Orphan(ObjectMeta),
}

/// A shard of main, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The main shard.
    pub main: ObjectMeta,
    /// What is in the place of its sidecar shard.
    pub output: Option<ObjectMeta>,
    /// The manifest's newest line for it.
    pub recorded: Option<RecordedLine>,
    /// What to do.
    pub decision: Decision,
    /// Versions of what is beside main, if they were asked for.
    pub inputs: Option<String>,
}

/// Joins main, output and manifest by path, in ascending byte order of paths.
pub struct Diff<'a> {
    main: Listing<'a>,
    output: Listing<'a>,
    lines: Lines,
    policy: Policy,
    /// The keyed side inputs, and the listings of siblings.
    inputs: Option<(Vec<SideInput>, Vec<Listing<'a>>)>,
}

impl<'a> Diff<'a> {
    /// Joins the listings of the prefixes `main_uri` and `output_uri` (for messages) with the
    /// lines of a manifest. `None` for `output`: there is nothing yet.
    pub fn new(
        (main_uri, main): (&str, BoxStream<'a, crate::error::Result<ListPage>>),
        (output_uri, output): (&str, BoxStream<'a, crate::error::Result<ListPage>>),
        lines: Option<MergedLines>,
        policy: Policy,
    ) -> Self {
        Self {
            main: Listing::new(main_uri, main),
            output: Listing::new(output_uri, output),
            lines: Lines {
                merged: lines,
                next: None,
            },
            policy,
            inputs: None,
        }
    }

    /// Compares what is beside main, too: side inputs that are looked up by key, and the
    /// listings of prefixes with siblings (each with its URI).
    #[must_use]
    pub fn with_inputs(
        mut self,
        keyed: Vec<SideInput>,
        siblings: Vec<(&str, BoxStream<'a, crate::error::Result<ListPage>>)>,
    ) -> Self {
        let siblings = siblings.into_iter();
        let siblings = siblings.map(|(uri, pages)| Listing::new(uri, pages));
        self.inputs = Some((keyed, siblings.collect()));
        self
    }

    /// Versions of what is beside the main shard `key`.
    async fn versions(&mut self, key: &str) -> Result<Option<String>> {
        let Some((keyed, siblings)) = &mut self.inputs else {
            return Ok(None);
        };
        let mut found = Vec::with_capacity(siblings.len());
        for sibling in siblings {
            found.push(sibling.seek(key).await?);
        }
        Ok(versions(keyed, found.iter().map(Option::as_ref)))
    }

    /// The next shard; `None` at the end.
    ///
    /// # Errors
    /// If a listing or the manifest can't be read, or a listing isn't in byte order.
    pub async fn next_shard(&mut self) -> Result<Option<Shard>> {
        let main_is_next = match (self.main.peek().await?, self.output.peek().await?) {
            (None, None) => return Ok(None),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(main), Some(output)) => main.key <= output.key,
        };
        if !main_is_next {
            return Ok(self.output.take().map(Shard::Orphan));
        }
        let Some(main) = self.main.take() else {
            return Ok(None);
        };
        let has_output = self
            .output
            .peek()
            .await?
            .is_some_and(|output| output.key == main.key);
        let output = if has_output { self.output.take() } else { None };
        let recorded = self.lines.seek(&main.key).await?;
        let inputs = self.versions(&main.key).await?;
        let decision = decide(&main, output.as_ref(), recorded.as_ref(), &self.policy);
        let decision = with_inputs(
            decision,
            output.as_ref(),
            recorded.as_ref(),
            inputs.as_deref(),
        );
        let planned = Planned {
            main,
            output,
            recorded,
            decision,
            inputs,
        };
        Ok(Some(Shard::Planned(Box::new(planned))))
    }

    /// Locks of prefixes inside the output, as far as its listing was read.
    pub fn nested_locks(&self) -> &[String] {
        &self.output.nested_locks
    }

    /// Objects of main that are no shards, as far as its listing was read.
    pub fn skipped_in_main(&self) -> u64 {
        self.main.skipped
    }
}

/// A listing, object by object.
struct Listing<'a> {
    uri: String,
    pages: BoxStream<'a, crate::error::Result<ListPage>>,
    page: VecDeque<ObjectMeta>,
    last: Option<String>,
    skipped: u64,
    nested_locks: Vec<String>,
}

impl<'a> Listing<'a> {
    fn new(uri: &str, pages: BoxStream<'a, crate::error::Result<ListPage>>) -> Self {
        Self {
            uri: uri.to_owned(),
            pages,
            page: VecDeque::new(),
            last: None,
            skipped: 0,
            nested_locks: Vec::new(),
        }
    }

    async fn peek(&mut self) -> Result<Option<&ObjectMeta>> {
        while self.page.is_empty() {
            let Some(page) = self.pages.next().await else {
                return Ok(None);
            };
            let ListPage {
                shards,
                skipped,
                nested_locks,
            } = page?;
            self.check_order(&shards)?;
            self.page = shards.into();
            self.skipped += skipped;
            self.nested_locks.extend(nested_locks);
        }
        Ok(self.page.front())
    }

    fn take(&mut self) -> Option<ObjectMeta> {
        self.page.pop_front()
    }

    /// The object of this key; those of smaller keys are passed over.
    async fn seek(&mut self, key: &str) -> Result<Option<ObjectMeta>> {
        while self
            .peek()
            .await?
            .is_some_and(|object| object.key.as_str() < key)
        {
            self.take();
        }
        let is_it = self.peek().await?.is_some_and(|object| object.key == key);
        Ok(if is_it { self.take() } else { None })
    }

    /// A listing in another order would silently look like missing and orphaned shards.
    fn check_order(&mut self, shards: &[ObjectMeta]) -> Result<()> {
        let mut last = self.last.as_deref();
        for shard in shards {
            if let Some(before) = last.filter(|before| *before >= shard.key.as_str()) {
                return Err(StateError::Unordered {
                    prefix: self.uri.clone(),
                    before: before.to_owned(),
                    after: shard.key.clone(),
                });
            }
            last = Some(&shard.key);
        }
        if let Some(shard) = shards.last() {
            self.last = Some(shard.key.clone());
        }
        Ok(())
    }
}

/// The manifest's lines, passed up to a path.
struct Lines {
    merged: Option<MergedLines>,
    next: Option<RecordedLine>,
}

impl Lines {
    /// The line of `path`; lines of smaller paths are passed over.
    async fn seek(&mut self, path: &str) -> Result<Option<RecordedLine>> {
        loop {
            if self.next.is_none() {
                let Some(merged) = &mut self.merged else {
                    return Ok(None);
                };
                self.next = merged.next_line().await?;
                if self.next.is_none() {
                    self.merged = None;
                    return Ok(None);
                }
            }
            match &self.next {
                Some(next) if next.line.path.as_str() > path => return Ok(None),
                Some(next) if next.line.path == path => return Ok(self.next.take()),
                _ => self.next = None,
            }
        }
    }
}
