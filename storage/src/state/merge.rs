//! The manifest as one sorted stream: a merge of its parts that holds only those whose range
//! the stream is in, and reads the next few ahead.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::document::{self, Document};
use super::error::{Result, StateError};
use super::manifest::{Manifest, ManifestPart};
use super::shard_lines::{LINES_WHAT, ShardLine, ShardLines};
use super::{layout, limits};
use crate::store::Store;

/// Parts that are read before they are needed: reading them one by one from an object store
/// would take a round trip each.
const READ_AHEAD: usize = 8;

/// What to do about a part that is gone or has other bytes than the manifest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Warn and go on without its lines, where a missing line costs a look at a footer.
    Skip,
    /// Fail.
    Fail,
}

/// A line, and the part that it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedLine {
    /// The line.
    pub line: ShardLine,
    /// Its part, which knows run and digest.
    pub part: Arc<ManifestPart>,
}

/// The newest line of each path, in ascending byte order of paths.
pub struct MergedLines {
    store: Arc<dyn Store>,
    on_damage: OnDamage,
    /// Not open yet, by first path.
    waiting: VecDeque<Waiting>,
    /// Open, by the path of their current line.
    open: BinaryHeap<Open>,
}

struct Waiting {
    part: Arc<ManifestPart>,
    age: usize,
    read: Option<JoinHandle<Result<Bytes>>>,
}

impl MergedLines {
    /// Merges `parts`, oldest first. Nothing is read before the first line is asked for.
    pub fn new(store: Arc<dyn Store>, parts: Vec<Arc<ManifestPart>>, on_damage: OnDamage) -> Self {
        let mut waiting: Vec<_> = parts
            .into_iter()
            .enumerate()
            .filter(|(_, part)| part.shards > 0)
            .map(|(age, part)| Waiting {
                part,
                age,
                read: None,
            })
            .collect();
        waiting.sort_by(|left, right| left.part.first.cmp(&right.part.first));
        Self {
            store,
            on_damage,
            waiting: waiting.into(),
            open: BinaryHeap::new(),
        }
    }

    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// If a part can't be read or is of another version; if one is damaged and that is to fail.
    pub async fn next_line(&mut self) -> Result<Option<RecordedLine>> {
        while self.must_open() {
            self.open_next().await?;
        }
        let Some(newest) = self.take_smallest()? else {
            return Ok(None);
        };
        while self
            .open
            .peek()
            .is_some_and(|other| other.current.path == newest.line.path)
        {
            self.take_smallest()?;
        }
        Ok(Some(newest))
    }

    /// Whether a part that isn't open may hold a path as small as the smallest of the open ones.
    fn must_open(&self) -> bool {
        match (self.waiting.front(), self.open.peek()) {
            (Some(next), Some(smallest)) => next.part.first <= smallest.current.path,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    async fn open_next(&mut self) -> Result<()> {
        let mut ahead = 0;
        for (position, waiting) in self.waiting.iter_mut().take(READ_AHEAD).enumerate() {
            ahead += waiting.part.size;
            if position > 0 && ahead > limits::READ_AHEAD {
                break;
            }
            if waiting.read.is_none() {
                let (store, part) = (Arc::clone(&self.store), Arc::clone(&waiting.part));
                waiting.read = Some(tokio::spawn(async move { read_part(&*store, &part).await }));
            }
        }
        let Some(Waiting {
            part,
            age,
            read: Some(read),
        }) = self.waiting.pop_front()
        else {
            return Ok(());
        };
        let file = document::uri(&*self.store, &part.key);
        let bytes = read.await.unwrap_or_else(|error| {
            Err(StateError::Damaged {
                file: file.clone(),
                detail: error.to_string(),
            })
        });
        match bytes.and_then(|bytes| Open::new(&file, part, age, bytes)) {
            Ok(Some(open)) => self.keep_open(open),
            Ok(None) => Ok(()),
            Err(error) => self.pass_over(error),
        }
    }

    fn keep_open(&mut self, open: Open) -> Result<()> {
        self.open.push(open);
        let cost: u64 = self.open.iter().map(|open| open.lines.cost()).sum();
        if cost <= limits::OPEN_LINES {
            return Ok(());
        }
        let file = document::uri(&*self.store, layout::MANIFEST);
        let found = format!(
            "{} parts whose ranges overlap, of {cost} bytes together",
            self.open.len()
        );
        Err(document::too_large(
            &file,
            Manifest::WHAT,
            found,
            limits::OPEN_LINES,
        ))
    }

    /// Takes the smallest current line, the newest of several with that path.
    fn take_smallest(&mut self) -> Result<Option<RecordedLine>> {
        let Some(mut open) = self.open.pop() else {
            return Ok(None);
        };
        let part = Arc::clone(&open.part);
        let line = match open.lines.next_line() {
            Ok(Some(next)) => {
                let line = std::mem::replace(&mut open.current, next);
                self.open.push(open);
                line
            }
            Ok(None) => open.current,
            Err(error) => {
                self.pass_over(error)?;
                open.current
            }
        };
        Ok(Some(RecordedLine { line, part }))
    }

    fn pass_over(&self, error: StateError) -> Result<()> {
        if error.is_damage() && self.on_damage == OnDamage::Skip {
            tracing::warn!(%error, "a part of the manifest is passed over");
            return Ok(());
        }
        Err(error)
    }
}

impl Drop for MergedLines {
    fn drop(&mut self) {
        for read in self
            .waiting
            .iter()
            .filter_map(|waiting| waiting.read.as_ref())
        {
            read.abort();
        }
    }
}

async fn read_part(store: &dyn Store, part: &ManifestPart) -> Result<Bytes> {
    let damaged = |detail: String| StateError::Damaged {
        file: document::uri(store, &part.key),
        detail,
    };
    let limit = part.size.min(limits::SHARD_LINES.file);
    let Some((_, bytes)) = document::read_bytes(store, &part.key, LINES_WHAT, limit).await? else {
        return Err(damaged("it is gone".to_owned()));
    };
    if bytes.len() as u64 != part.size {
        return Err(damaged(format!(
            "it has {} bytes, not {}",
            bytes.len(),
            part.size
        )));
    }
    let sha256 = document::sha256(&bytes);
    if sha256 != part.sha256 {
        return Err(damaged(format!(
            "its sha256 is {sha256}, not {}",
            part.sha256
        )));
    }
    Ok(bytes)
}

/// A part at one of its lines.
struct Open {
    part: Arc<ManifestPart>,
    age: usize,
    lines: ShardLines,
    current: ShardLine,
}

impl Open {
    /// `None` if the part has no lines.
    fn new(file: &str, part: Arc<ManifestPart>, age: usize, bytes: Bytes) -> Result<Option<Self>> {
        let (_, mut lines) = ShardLines::open(file, bytes)?;
        let current = lines.next_line()?;
        Ok(current.map(|current| Self {
            part,
            age,
            lines,
            current,
        }))
    }
}

impl Ord for Open {
    /// The greatest is the one to take first: smallest path, and the newest of equal ones.
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .current
            .path
            .cmp(&self.current.path)
            .then(self.age.cmp(&other.age))
    }
}

impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Open {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Open {}
