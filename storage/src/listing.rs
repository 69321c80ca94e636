//! Walking a tree of folders in the byte order of whole keys, in parallel.
//!
//! Folders are read ahead by tasks of their own, but only so far: a walk holds at most
//! [`PAGES_AHEAD`] pages beyond one for each folder that it has opened, whatever the number
//! of keys. The order is that of whole keys: `a-b/x` comes before `a/x`, since `-` < `/`, so
//! a folder sorts as its name with a `/`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use tokio::task::JoinHandle;

use crate::error::{Error, Result};
use crate::store::{ListPage, ObjectMeta};

/// How many folders of one parent are opened ahead of the one being read.
const FOLDERS_AHEAD: usize = 32;

/// How many further pages may be read ahead, over all folders.
const PAGES_AHEAD: usize = 64;

/// Shards in a page that is handed out, about.
pub(crate) const PAGE_SHARDS: usize = 1000;

/// Something that lists one folder at a time.
#[async_trait]
pub(crate) trait Source: Send + Sync + 'static {
    /// A folder, or where to go on in one.
    type Cursor: Send + 'static;

    /// The next page, its items in ascending order and after those of earlier pages.
    async fn page(&self, cursor: Self::Cursor) -> Result<Page<Self::Cursor>>;

    /// Takes one or more neighbouring folders from the front, to be listed as one.
    fn group(&self, folders: &mut VecDeque<Self::Cursor>) -> Option<Self::Cursor> {
        folders.pop_front()
    }
}

/// A part of a folder's listing.
#[derive(Debug)]
pub(crate) struct Page<C> {
    pub(crate) items: Vec<Item<C>>,
    pub(crate) skipped: u64,
    pub(crate) nested_locks: Vec<String>,
    pub(crate) next: Option<C>,
}

impl<C> Default for Page<C> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            skipped: 0,
            nested_locks: Vec::new(),
            next: None,
        }
    }
}

/// A shard, or a folder to look into.
#[derive(Debug)]
pub(crate) enum Item<C> {
    Shard(ObjectMeta),
    Folder(C),
}

/// All shards below `root`, as a stream of pages.
pub(crate) fn walk<S: Source>(
    uri: &str,
    source: Arc<S>,
    root: S::Cursor,
) -> BoxStream<'static, Result<ListPage>> {
    let walk = Walk {
        uri: uri.to_string(),
        pages_ahead: Arc::new(AtomicUsize::new(0)),
        levels: vec![Level::new(Head {
            pages: VecDeque::new(),
            next: Some(root),
        })],
        source,
        last_key: String::new(),
    };
    stream::try_unfold(walk, |mut walk| async move {
        let page = walk.next_page().await?;
        Ok(page.map(|page| (page, walk)))
    })
    .boxed()
}

struct Walk<S: Source> {
    uri: String,
    source: Arc<S>,
    levels: Vec<Level<S::Cursor>>,
    pages_ahead: Arc<AtomicUsize>,
    last_key: String,
}

/// The first pages of a folder, and where it goes on.
struct Head<C> {
    pages: VecDeque<Page<C>>,
    next: Option<C>,
}

/// A folder that is being read.
struct Level<C> {
    pages: VecDeque<Page<C>>,
    next: Option<C>,
    /// The page after these, being fetched.
    following: Option<Task<Page<C>>>,
    /// What has been read of the folder and not yet been planned.
    items: VecDeque<Item<C>>,
    /// What comes out next, in order.
    slots: VecDeque<Slot>,
    /// The folders of `slots`, in order, being opened.
    opening: VecDeque<Task<Head<C>>>,
}

enum Slot {
    Shards(ListPage),
    Folder,
}

impl<C> Level<C> {
    fn new(head: Head<C>) -> Self {
        Self {
            pages: head.pages,
            next: head.next,
            following: None,
            items: VecDeque::new(),
            slots: VecDeque::new(),
            opening: VecDeque::new(),
        }
    }
}

impl<S: Source> Walk<S> {
    async fn next_page(&mut self) -> Result<Option<ListPage>> {
        let mut collected = ListPage::default();
        while let Some(mut part) = self.next_part().await? {
            for shard in &part.shards {
                if shard.key <= self.last_key {
                    return Err(Error::bad_answer(
                        &self.uri,
                        format!(
                            "the store lists `{}` after `{}`, which is not the byte order of keys",
                            shard.key, self.last_key
                        ),
                    ));
                }
                self.last_key.clone_from(&shard.key);
            }
            collected.shards.append(&mut part.shards);
            collected.skipped += part.skipped;
            collected.nested_locks.append(&mut part.nested_locks);
            if collected.shards.len() >= PAGE_SHARDS {
                return Ok(Some(collected));
            }
        }
        Ok((collected != ListPage::default()).then_some(collected))
    }

    async fn next_part(&mut self) -> Result<Option<ListPage>> {
        loop {
            let Some(level) = self.levels.last_mut() else {
                return Ok(None);
            };
            if level.following.is_none()
                && let Some(cursor) = level.next.take()
            {
                let source = Arc::clone(&self.source);
                level.following = Some(Task::spawn(async move { source.page(cursor).await }));
            }
            plan(&self.source, &self.pages_ahead, level);
            match level.slots.pop_front() {
                Some(Slot::Shards(page)) => return Ok(Some(page)),
                Some(Slot::Folder) => {
                    let Some(task) = level.opening.pop_front() else {
                        continue;
                    };
                    let head = task.join().await?;
                    self.levels.push(Level::new(head));
                }
                None => {
                    if let Some(page) = level.pages.pop_front() {
                        self.pages_ahead.fetch_sub(1, Ordering::Relaxed);
                        take_page(level, page);
                    } else if let Some(task) = level.following.take() {
                        let mut page = task.join().await?;
                        level.next = page.next.take();
                        take_page(level, page);
                    } else {
                        self.levels.pop();
                    }
                }
            }
        }
    }
}

fn take_page<C>(level: &mut Level<C>, page: Page<C>) {
    level.items.extend(page.items);
    if page.skipped > 0 || !page.nested_locks.is_empty() {
        level.slots.push_back(Slot::Shards(ListPage {
            shards: Vec::new(),
            skipped: page.skipped,
            nested_locks: page.nested_locks,
        }));
    }
}

/// Moves items to slots, and opens folders, as far ahead as is allowed.
fn plan<S: Source>(source: &Arc<S>, pages_ahead: &Arc<AtomicUsize>, level: &mut Level<S::Cursor>) {
    while level.opening.len() < FOLDERS_AHEAD {
        match level.items.pop_front() {
            None => return,
            Some(Item::Shard(first)) => {
                let mut shards = vec![first];
                while let Some(Item::Shard(_)) = level.items.front() {
                    if let Some(Item::Shard(shard)) = level.items.pop_front() {
                        shards.push(shard);
                    }
                }
                level.slots.push_back(Slot::Shards(ListPage {
                    shards,
                    ..ListPage::default()
                }));
            }
            Some(Item::Folder(first)) => {
                let mut folders = VecDeque::from([first]);
                while let Some(Item::Folder(_)) = level.items.front() {
                    if let Some(Item::Folder(folder)) = level.items.pop_front() {
                        folders.push_back(folder);
                    }
                }
                while level.opening.len() < FOLDERS_AHEAD
                    && let Some(cursor) = source.group(&mut folders)
                {
                    let head = open(Arc::clone(source), Arc::clone(pages_ahead), cursor);
                    level.opening.push_back(Task::spawn(head));
                    level.slots.push_back(Slot::Folder);
                }
                for folder in folders.into_iter().rev() {
                    level.items.push_front(Item::Folder(folder));
                }
            }
        }
    }
}

/// Reads a folder's first page, and more of them while few pages are held.
async fn open<S: Source>(
    source: Arc<S>,
    pages_ahead: Arc<AtomicUsize>,
    cursor: S::Cursor,
) -> Result<Head<S::Cursor>> {
    let mut pages = VecDeque::new();
    let mut next = Some(cursor);
    while let Some(cursor) = next.take() {
        let mut page = source.page(cursor).await?;
        next = page.next.take();
        pages.push_back(page);
        if pages_ahead.fetch_add(1, Ordering::Relaxed) >= PAGES_AHEAD {
            break;
        }
    }
    Ok(Head { pages, next })
}

/// A task that ends when nobody waits for it any more.
struct Task<T>(JoinHandle<Result<T>>);

impl<T: Send + 'static> Task<T> {
    fn spawn(future: impl Future<Output = Result<T>> + Send + 'static) -> Self {
        Self(tokio::spawn(future))
    }

    async fn join(mut self) -> Result<T> {
        match (&mut self.0).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(Error::Unavailable {
                uri: "listing".to_string(),
                reason: "the program is shutting down".to_string(),
                attempts: 1,
                seconds: 0.0,
                source: Some(Box::new(error)),
            }),
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folders of folders of shards, and how many keys of them are in memory.
    struct Mock {
        folders: usize,
        pages: usize,
        handed_out: AtomicUsize,
        requests: AtomicUsize,
    }

    enum At {
        Root,
        Folder(usize, usize),
    }

    fn shard(key: String) -> ObjectMeta {
        ObjectMeta {
            key,
            size: 1,
            etag: crate::store::ETag(Arc::from("x")),
        }
    }

    #[async_trait]
    impl Source for Mock {
        type Cursor = At;

        async fn page(&self, at: At) -> Result<Page<At>> {
            self.requests.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            let mut page = Page::default();
            match at {
                At::Root => {
                    let folders = (0..self.folders).map(|folder| At::Folder(folder, 0));
                    page.items = folders.map(Item::Folder).collect();
                }
                At::Folder(folder, number) => {
                    let key = |index| format!("{folder:05}/{number:03}/{index:04}");
                    let shards = (0..1000).map(|index| Item::Shard(shard(key(index))));
                    page.items = shards.collect();
                    self.handed_out.fetch_add(1000, Ordering::SeqCst);
                    let more = number + 1 < self.pages;
                    page.next = more.then_some(At::Folder(folder, number + 1));
                }
            }
            Ok(page)
        }
    }

    async fn walk_mock(folders: usize, pages: usize) -> (usize, usize) {
        let mock = Arc::new(Mock {
            folders,
            pages,
            handed_out: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
        });
        let mut stream = walk("mock", Arc::clone(&mock), At::Root);
        let mut received = 0;
        let mut most_held = 0;
        while let Some(page) = stream.next().await {
            // A slow consumer: whatever reads ahead does so now.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            received += page.expect("a page").shards.len();
            most_held = most_held.max(mock.handed_out.load(Ordering::SeqCst) - received);
        }
        assert_eq!(received, folders * pages * 1000);
        assert_eq!(mock.requests.load(Ordering::SeqCst), folders * pages + 1);
        (received, most_held)
    }

    #[tokio::test]
    async fn three_hundred_thousand_keys_are_held_a_few_pages_at_a_time() {
        for (folders, pages) in [(300, 1), (30, 10), (3, 100), (1, 300)] {
            let (received, most_held) = walk_mock(folders, pages).await;
            assert_eq!(received, 300_000);
            let bound = (PAGES_AHEAD + FOLDERS_AHEAD + 3) * 1000;
            assert!(most_held <= bound, "{folders} folders: {most_held}");
        }
    }

    #[tokio::test]
    async fn the_bound_does_not_grow_with_the_listing() {
        let (_, most_held) = walk_mock(100, 20).await;
        assert!(most_held <= (PAGES_AHEAD + FOLDERS_AHEAD + 3) * 1000);
    }

    struct Unordered;

    #[async_trait]
    impl Source for Unordered {
        type Cursor = ();

        async fn page(&self, (): ()) -> Result<Page<()>> {
            let keys = ["b.parquet", "a.parquet"].map(str::to_string);
            Ok(Page {
                items: keys.map(|key| Item::Shard(shard(key))).into(),
                ..Page::default()
            })
        }
    }

    #[tokio::test]
    async fn a_server_that_lists_out_of_order_is_found_out() {
        let mut stream = walk("mock", Arc::new(Unordered), ());
        let error = stream.next().await.expect("an item").expect_err("order");
        assert!(error.to_string().contains("byte order"), "{error}");
    }
}
