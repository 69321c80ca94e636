//! Work items: which ranges of the plan's chunks go to whom. A chunk of the operator's plans is a
//! shard.

use crate::model::Item;
use crate::sizing::MOST_SHARDS_OF_AN_ITEM;

/// Number of chunks in an item.
pub fn len(item: Item) -> u64 {
    item.1.saturating_sub(item.0)
}

/// Number of chunks in the largest of these.
pub fn largest(items: &[Item]) -> u64 {
    items.iter().copied().map(len).max().unwrap_or(0)
}

/// Number of chunks in all of these.
pub fn total(items: &[Item]) -> u64 {
    items.iter().copied().map(len).sum()
}

/// The canary's items: `count` of them at most, with `shards` chunks in all, of equal size but for
/// one, spread over a plan of `chunks` from its first to its last. A plan that has no more is
/// covered whole.
pub fn spread(chunks: u64, shards: u64, count: u64) -> Vec<Item> {
    let shards = shards.min(chunks);
    let count = count.clamp(1, shards.max(1));
    if shards == 0 {
        return Vec::new();
    }
    let gaps = chunks - shards;
    (0..count)
        .map(|position| {
            let before = part(shards, position, count);
            let through = part(shards, position + 1, count);
            let skipped = if count == 1 {
                gaps / 2
            } else {
                part(gaps, position, count - 1)
            };
            (before + skipped, through + skipped)
        })
        .collect()
}

/// The chunks of a plan that no item of `handed` has, as the longest ranges there are. Items may
/// come in any order, and may overlap.
pub fn complement(chunks: u64, handed: impl IntoIterator<Item = Item>) -> Vec<Item> {
    let mut handed: Vec<Item> = handed.into_iter().collect();
    handed.sort_unstable();
    let mut gaps = Vec::new();
    let mut next = 0;
    for (first, end) in handed {
        if first >= chunks {
            break;
        }
        if first > next {
            gaps.push((next, first));
        }
        next = next.max(end);
    }
    if next < chunks {
        gaps.push((next, chunks));
    }
    gaps
}

/// Cuts ranges into items of `size` chunks at most, those of a range alike but for one chunk;
/// larger ones if they had less than `least` otherwise. The first `limit` of them.
pub fn cut(gaps: &[Item], size: u64, least: u64, limit: usize) -> Vec<Item> {
    let items = gaps.iter().flat_map(|gap| {
        let (start, length) = (gap.0, len(*gap));
        let wanted = length.div_ceil(size.max(1));
        let count = wanted
            .min((length / least.max(1)).max(1))
            .max(length.div_ceil(MOST_SHARDS_OF_AN_ITEM));
        let end_of = move |position| start + part(length, position, count);
        (0..count).map(move |position| (end_of(position), end_of(position + 1)))
    });
    items.filter(|item| len(*item) > 0).take(limit).collect()
}

/// Where the `position`-th of so many equal parts of a whole begins. A plan may have as many
/// chunks as it likes.
fn part(whole: u64, position: u64, parts: u64) -> u64 {
    (u128::from(whole) * u128::from(position) / u128::from(parts)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_canary_is_spread_from_end_to_end() {
        assert_eq!(
            spread(1000, 20, 5),
            [(0, 4), (249, 253), (498, 502), (747, 751), (996, 1000)]
        );
        assert_eq!(spread(100, 1, 1), [(49, 50)]);
        assert_eq!(spread(100, 20, 3), [(0, 6), (46, 53), (93, 100)]);
    }

    #[test]
    fn a_small_plan_is_all_canary() {
        assert_eq!(total(&spread(7, 20, 3)), 7);
        assert_eq!(spread(1, 20, 100), [(0, 1)]);
        assert_eq!(spread(0, 20, 3), []);
        assert_eq!(spread(100, 0, 3), []);
    }

    #[test]
    fn bulk_items_go_around_the_canary() {
        let gaps = complement(100, [(93, 100), (0, 6), (46, 53)]);
        assert_eq!(gaps, [(6, 46), (53, 93)]);
        assert_eq!(
            cut(&gaps, 25, 1, 10),
            [(6, 26), (26, 46), (53, 73), (73, 93)]
        );
        assert_eq!(cut(&gaps, 25, 1, 3), [(6, 26), (26, 46), (53, 73)]);
        assert_eq!(cut(&gaps, 25, 25, 10), gaps, "no half that is too small");
        assert_eq!(cut(&[(0, 10)], 4, 4, 10), [(0, 5), (5, 10)]);
        assert_eq!(cut(&[(0, 10), (10, 10)], 100, 50, 10), [(0, 10)]);
        let most = MOST_SHARDS_OF_AN_ITEM;
        let two = cut(&[(0, 2 * most - 1)], most, most, 10);
        assert_eq!((two.len(), largest(&two)), (2, most));
    }

    proptest! {
        #[test]
        fn canary_and_bulk_cover_the_plan_once(
            chunks in 1_u64..5_000,
            shards in 0_u64..200,
            workers in 1_u64..300,
            size in 1_u64..600,
            least in 1_u64..600,
            limit in 1_usize..50,
        ) {
            let mut handed = spread(chunks, shards, workers);
            prop_assert!(handed.len() as u64 <= workers);
            prop_assert_eq!(total(&handed), shards.min(chunks));
            let sizes: Vec<u64> = handed.iter().map(|item| len(*item)).collect();
            if let (Some(least), Some(most)) = (sizes.iter().min(), sizes.iter().max()) {
                prop_assert!(*least >= 1 && most - least <= 1);
            }
            loop {
                let gaps = complement(chunks, handed.iter().copied());
                let least = least.min(size);
                let batch = cut(&gaps, size, least, limit);
                prop_assert!(batch.len() <= limit);
                if batch.is_empty() {
                    prop_assert!(gaps.is_empty());
                    break;
                }
                for item in &batch {
                    let gap = gaps.iter().find(|gap| gap.0 <= item.0 && item.1 <= gap.1);
                    let gap = len(*gap.expect("it is in a gap"));
                    prop_assert!((least.min(gap)..size.max(2 * least)).contains(&len(*item))
                        || len(*item) == size);
                }
                handed.extend(batch);
            }
            handed.sort_unstable();
            let mut next = 0;
            for (first, end) in handed {
                prop_assert_eq!(first, next);
                next = end;
            }
            prop_assert_eq!(next, chunks);
        }

        #[test]
        fn huge_plans_do_not_overflow(chunks: u64, shards: u64, workers in 1_u64..10_000) {
            let items = spread(chunks, shards.min(20_000), workers);
            prop_assert!(items.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert!(items.iter().all(|item| item.1 <= chunks));
        }
    }
}
