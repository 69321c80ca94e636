//! The page about conditions names every word, and no others.

use std::collections::BTreeSet;

use rules::reasons;

const PAGE: &str = include_str!("../../docs/conditions.md");

/// First cells of the tables below a heading that begins with this, without code marks.
fn first_cells(heading: &str) -> BTreeSet<String> {
    let mut cells = BTreeSet::new();
    let mut is_below = false;
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            is_below = title.starts_with(heading);
        }
        let is_row = is_below && line.starts_with("| `");
        if let Some(cell) = line.split('|').nth(1).filter(|_| is_row) {
            cells.insert(cell.trim().trim_matches('`').to_owned());
        }
    }
    cells
}

fn words(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn every_condition_is_on_the_page() {
    assert_eq!(first_cells("Conditions"), words(&reasons::types::ALL));
}

#[test]
fn every_reason_is_on_the_page() {
    assert_eq!(first_cells("Reasons"), words(reasons::ALL));
}

#[test]
fn every_column_is_on_the_page() {
    let definition = crds::definition::to_yaml().unwrap();
    let columns = definition
        .lines()
        .skip_while(|line| !line.contains("additionalPrinterColumns"))
        .take_while(|line| !line.trim_start().starts_with("name: v1alpha1"))
        .filter_map(|line| line.trim_start().strip_prefix("name: "))
        .map(|name| name.trim_matches('"').to_uppercase());
    let columns: BTreeSet<String> = columns.collect();
    let on_the_page: BTreeSet<String> = PAGE
        .lines()
        .skip_while(|line| *line != "## Columns")
        .take_while(|line| *line != "## Conditions")
        .filter(|line| line.starts_with("| ") && !line.starts_with("| column"))
        .filter_map(|line| line.split('|').nth(1))
        .map(|cell| cell.trim().to_owned())
        .collect();
    assert!(!columns.is_empty());
    assert_eq!(on_the_page, columns);
}
