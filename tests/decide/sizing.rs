//! The arithmetic of workers and items.

use proptest::prelude::*;
use rules::sizing::{
    Cost, FIRST_WORKERS, Inputs, ItemCosts, Limit, MOST_SHARDS_OF_AN_ITEM, MOST_WORKERS,
    shards_per_item, size, target_shards_per_second, wanted_workers,
};

#[test]
fn the_worked_example() {
    let target = target_shards_per_second(10_000_000, 512.0).unwrap();
    assert_eq!((target * 3600.0).ceil(), 19_532.0);
    assert_eq!((target * 100.0).round() / 100.0, 5.43);
    // One worker makes a shard in ten seconds: 55 are needed.
    assert_eq!(wanted_workers(target, 0.1, 1.0), Some(55));
    // Forty workers together make four shards a second: so they do.
    assert_eq!(wanted_workers(target, 4.0, 40.0), Some(55));
}

#[test]
fn what_is_not_known_gives_no_number() {
    assert_eq!(target_shards_per_second(10_000_000, 0.0), None);
    assert_eq!(target_shards_per_second(10_000_000, f64::NAN), None);
    assert_eq!(wanted_workers(5.0, 0.0, 4.0), None);
    assert_eq!(wanted_workers(5.0, f64::NAN, 4.0), None);
    assert_eq!(wanted_workers(5.0, 1.0, 0.0), None);
    assert_eq!(wanted_workers(f64::MAX, 1e-300, 1e9), Some(u32::MAX));
    assert_eq!(Cost::default().speed(100), None);
}

fn inputs() -> Inputs {
    Inputs {
        target_rows_per_hour: Some(10_000_000),
        target_before: Some(10_000_000),
        rows_per_shard: 512.0,
        window_shards: 300,
        window_seconds: 300.0,
        window_workers: 10.0,
        speed: Some(0.1),
        current: Some(10),
        max_workers: 1_600,
        items_left: 10_000,
        pending: 0,
        is_settled: true,
    }
}

#[test]
fn each_rule_by_itself() {
    let unchanged = inputs();
    let cases = [
        ("the formula", unchanged, 55, None),
        (
            "the canary's speed comes first",
            Inputs {
                current: None,
                window_shards: 0,
                ..unchanged
            },
            55,
            None,
        ),
        (
            "nothing is known at first",
            Inputs {
                current: None,
                window_shards: 0,
                speed: None,
                ..unchanged
            },
            FIRST_WORKERS,
            Some(Limit::WarmingUp),
        ),
        (
            "too few samples",
            Inputs {
                window_shards: 7,
                ..unchanged
            },
            10,
            Some(Limit::WarmingUp),
        ),
        (
            "nobody finished anything",
            Inputs {
                window_workers: 0.0,
                ..unchanged
            },
            10,
            Some(Limit::WarmingUp),
        ),
        (
            "pods pending",
            Inputs {
                pending: 1,
                ..unchanged
            },
            10,
            Some(Limit::PodsPending),
        ),
        (
            "pods pending hold back growth only",
            Inputs {
                pending: 1,
                current: Some(80),
                window_workers: 80.0,
                window_shards: 2_400,
                ..unchanged
            },
            55,
            None,
        ),
        (
            "nor a lowered target",
            Inputs {
                pending: 1,
                is_settled: false,
                target_rows_per_hour: Some(1_000_000),
                ..unchanged
            },
            6,
            None,
        ),
        (
            "one step a window",
            Inputs {
                is_settled: false,
                ..unchanged
            },
            10,
            Some(Limit::OneStepAWindow),
        ),
        (
            "another target",
            Inputs {
                is_settled: false,
                target_before: Some(1),
                ..unchanged
            },
            55,
            None,
        ),
        (
            "dead band",
            Inputs {
                current: Some(50),
                ..unchanged
            },
            50,
            Some(Limit::DeadBand),
        ),
        (
            "the spec's limit",
            Inputs {
                max_workers: 20,
                ..unchanged
            },
            20,
            Some(Limit::MaxWorkers),
        ),
        (
            "the spec's limit comes before patience",
            Inputs {
                max_workers: 5,
                pending: 3,
                ..unchanged
            },
            5,
            Some(Limit::MaxWorkers),
        ),
        (
            "items left",
            Inputs {
                items_left: 12,
                ..unchanged
            },
            12,
            Some(Limit::ItemsLeft),
        ),
        (
            "no target",
            Inputs {
                target_rows_per_hour: None,
                ..unchanged
            },
            1_600,
            Some(Limit::MaxWorkers),
        ),
        (
            "the API's limit",
            Inputs {
                target_rows_per_hour: Some(1_000_000_000_000),
                max_workers: u32::MAX,
                items_left: u64::MAX,
                ..unchanged
            },
            MOST_WORKERS,
            Some(Limit::JobApi),
        ),
        (
            "no footer could be read",
            Inputs {
                rows_per_shard: 0.0,
                ..unchanged
            },
            10,
            Some(Limit::RowsPerShardUnknown),
        ),
    ];
    for (what, inputs, workers, limit) in cases {
        let sized = size(&inputs);
        assert_eq!((sized.workers, sized.limit), (workers, limit), "{what}");
    }
}

/// A pass that takes 0.4 s and 0.1 ms a key on top: of an item of 600 shards with 16 keys each
/// 0.96 s are its shards', which no larger item would save.
#[test]
fn what_grows_with_an_item_is_a_cost_of_its_shards() {
    let pass = |shards: u64| 0.4 + 0.0016 * shards as f64;
    let mut costs = ItemCosts::default();
    for shards in [2, 2, 3, 2] {
        costs.add(shards, pass(shards), shards, 0.006 * shards as f64);
    }
    // Items of one size don't tell.
    let guess = costs.cost();
    assert!((guess.fixed - 0.4036).abs() < 1e-9, "{guess:?}");
    assert!((guess.shard - 0.006).abs() < 1e-9, "{guess:?}");
    assert!(costs.foresees(48) && !costs.foresees(49));
    // 2.6 s of shards to 0.4 s; 15.8 s are enough.
    assert!(!costs.foresees(2_600) && costs.foresees(2_700));
    for _ in 0..3 {
        costs.add(600, pass(600), 600, 0.006 * 600.0);
    }
    let known = costs.cost();
    assert!((known.fixed - 0.4).abs() < 1e-6, "{known:?}");
    assert!((known.shard - 0.0076).abs() < 1e-9, "{known:?}");
    assert!(costs.foresees(9_600));
    assert_eq!(shards_per_item(known, 1.0, u64::MAX, 1), 632);
}

/// Where a larger item took less, or no base is left, nothing becomes negative.
#[test]
fn noise_in_the_costs_of_items_is_borne() {
    let fit = |items: &[(u64, f64)]| {
        let mut costs = ItemCosts::default();
        for (shards, seconds) in items {
            costs.add(*shards, *seconds, *shards, *shards as f64);
        }
        costs.cost()
    };
    let falling = fit(&[(1, 3.0), (100, 1.0)]);
    assert_eq!((falling.fixed, falling.shard), (2.0, 1.0));
    let convex = fit(&[(10, 0.1), (100, 11.9)]);
    assert!(convex.fixed.abs() < 1e-9, "{convex:?}");
    assert!(
        (convex.shard - 1.0 - 12.0 / 110.0).abs() < 1e-9,
        "{convex:?}"
    );
    assert_eq!(fit(&[]), Cost::default());
    let mut costs = ItemCosts::default();
    costs.add(10, f64::NAN, 10, 1.0);
    costs.add(10, 1.0, 0, 1.0);
    costs.add(10, 1.0, 10, -1.0);
    assert_eq!(costs, ItemCosts::default());
}

#[test]
fn items_by_time_by_workers_and_by_fixed_cost() {
    let cost = |fixed: f64, shard: f64| Cost { fixed, shard };
    let cases = [
        ("by time", cost(1.0, 2.0), 1_000_000, 10, 150),
        ("nothing known", Cost::default(), 1_000_000, 10, 100),
        ("enough for all", cost(0.0, 0.1), 1_000, 50, 5),
        ("a fixed cost pays off", cost(80.0, 2.0), 1_000_000, 10, 480),
        ("also where few are left", cost(20.0, 2.0), 100, 50, 120),
        ("slow shards", cost(0.0, 1e6), 1_000_000, 10, 1),
        (
            "fast shards",
            cost(0.0, 1e-9),
            u64::MAX,
            1,
            MOST_SHARDS_OF_AN_ITEM,
        ),
        ("none left", cost(0.0, 1.0), 0, 10, 1),
    ];
    for (what, cost, left, workers, shards) in cases {
        assert_eq!(
            shards_per_item(cost, 300.0, left, workers),
            shards,
            "{what}"
        );
    }
}

fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        Just(0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(-1.0),
        1e-6..1e9,
    ]
}

prop_compose! {
    fn any_inputs()(
        target in prop::option::of(1_u64..1_000_000_000_000),
        before in prop::option::of(1_u64..1_000_000_000_000),
        rows_per_shard in any_number(),
        window_shards in 0_u64..1_000_000,
        window_seconds in any_number(),
        window_workers in any_number(),
        speed in prop::option::of(any_number()),
        current in prop::option::of(1_u32..10_000),
        max_workers in 1_u32..10_000,
        items_left in 0_u64..1_000_000,
        pending in 0_u32..3,
        is_settled: bool,
    ) -> Inputs {
        Inputs {
            target_rows_per_hour: target,
            target_before: before,
            rows_per_shard,
            window_shards,
            window_seconds,
            window_workers,
            speed,
            current,
            max_workers,
            items_left,
            pending,
            is_settled,
        }
    }
}

proptest! {
    #[test]
    fn never_above_a_limit_and_never_no_number(inputs in any_inputs()) {
        let sized = size(&inputs);
        prop_assert!(sized.workers <= inputs.max_workers.min(MOST_WORKERS));
        prop_assert!(u64::from(sized.workers) <= inputs.items_left);
        for number in [sized.target_shards_per_second, sized.observed_shards_per_second] {
            prop_assert!(number.is_none_or(f64::is_finite));
        }
        // Without news there is no step.
        let again = Inputs { current: Some(sized.workers.max(1)), is_settled: false, ..inputs };
        let again = Inputs { target_before: again.target_rows_per_hour, ..again };
        if sized.workers > 0 {
            prop_assert_eq!(size(&again).workers, sized.workers);
        }
    }

    #[test]
    fn more_wanted_is_never_fewer_workers(inputs in any_inputs(), more in 1_u64..1_000_000_000) {
        if let Some(target) = inputs.target_rows_per_hour {
            // What the target was before must be as different from the one as from the other.
            let one = Inputs { target_before: None, ..inputs };
            let other = Inputs { target_rows_per_hour: Some(target + more), ..one };
            prop_assert!(size(&one).workers <= size(&other).workers);
        }
    }

    #[test]
    fn faster_workers_are_never_more(inputs in any_inputs(), more in 1_u64..1_000_000) {
        if inputs.target_rows_per_hour.is_some() && inputs.window_shards >= 8 {
            let faster = Inputs { window_shards: inputs.window_shards + more, ..inputs };
            prop_assert!(size(&inputs).workers >= size(&faster).workers);
        }
    }

    #[test]
    fn more_room_is_never_fewer_workers(inputs in any_inputs(), more in 1_u32..10_000) {
        let roomier = Inputs { max_workers: inputs.max_workers + more, ..inputs };
        prop_assert!(size(&inputs).workers <= size(&roomier).workers);
        let longer = Inputs { items_left: inputs.items_left + u64::from(more), ..inputs };
        prop_assert!(size(&inputs).workers <= size(&longer).workers);
    }

    #[test]
    fn an_item_has_a_bearable_size(
        fixed in any_number(),
        shard in any_number(),
        seconds in any_number(),
        left: u64,
        workers in 0_u32..20_000,
    ) {
        let mut costs = ItemCosts::default();
        costs.add(1, fixed, 1, shard);
        let cost = costs.cost();
        let shards = shards_per_item(cost, seconds, left, workers);
        prop_assert!((1..=MOST_SHARDS_OF_AN_ITEM).contains(&shards));
        // A fixed cost of at most a tenth, unless that would be too many shards.
        if cost.shard > 0.0 && shards < MOST_SHARDS_OF_AN_ITEM {
            let share = cost.fixed / (cost.fixed + shards as f64 * cost.shard);
            prop_assert!(share <= 0.1 + 1e-9, "{share}");
        }
    }
}
