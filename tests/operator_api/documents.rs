//! What documents say is what there is.

use operator::metrics::CATALOGUE;

use crate::place::repository;

#[test]
fn the_list_of_metrics_agrees_with_the_code() {
    let path = repository().join("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected: Vec<String> = CATALOGUE
        .iter()
        .map(|metric| {
            let labels: Vec<String> = metric
                .labels
                .iter()
                .map(|label| format!("`{label}`"))
                .collect();
            format!(
                "| `{}` | {} | {} | {} |",
                metric.name,
                metric.kind.word(),
                labels.join(", "),
                metric.help
            )
        })
        .collect();
    assert_eq!(
        rows,
        expected,
        "{} is to have these lines:\n{}",
        path.display(),
        expected.join("\n")
    );
}
