//! Values that do not fit the type that is declared for them: their row is left empty, counted
//! and listed, whichever file they come from.

use std::collections::BTreeSet;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use arrow::datatypes::DataType as Arrow;

use crate::arrow_types::{adapt, empty_array};

/// Reasons that are kept in words.
const IN_WORDS: usize = 3;

/// Rows whose values do not fit.
#[derive(Debug, Clone, Default)]
pub struct Unfit {
    rows: BTreeSet<u32>,
    first: Vec<(u32, String)>,
}

impl Unfit {
    /// Notes a row.
    pub fn add(&mut self, row: u32, reason: impl Into<String>) {
        if self.rows.insert(row) && self.first.len() < IN_WORDS {
            self.first.push((row, reason.into()));
        }
    }

    /// The rows, ascending.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.rows.iter().copied()
    }

    /// Whether there is one.
    pub fn is_any(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Whether a row is one of them.
    pub fn has(&self, row: u32) -> bool {
        self.rows.contains(&row)
    }

    /// Some of them, with the reason in words.
    pub fn first(&self) -> &[(u32, String)] {
        &self.first
    }
}

/// Brings values into `to` as [`adapt`] does. Rows whose value does not fit come out empty, and
/// are noted; the first row of the array is row `base`.
pub fn adapt_or_empty(
    array: &ArrayRef,
    to: &Arrow,
    base: u32,
    unfit: &mut Unfit,
) -> Result<ArrayRef, String> {
    let reason = match adapt(array, to) {
        Ok(adapted) => return Ok(adapted),
        Err(reason) => reason,
    };
    let rows = array.len() as u32;
    if rows < 2 {
        unfit.add(base, reason);
        return Ok(empty_array(to, array.len()));
    }
    // Halves are taken, not cut out: of a list that is cut out the others' items stay behind.
    let half = |from: u32, to: u32| {
        let rows = UInt32Array::from_iter_values(from..to);
        take(array, &rows, None).map_err(|error| error.to_string())
    };
    let middle = rows / 2;
    let left = adapt_or_empty(&half(0, middle)?, to, base, unfit)?;
    let right = adapt_or_empty(&half(middle, rows)?, to, base + middle, unfit)?;
    concat(&[&left, &right]).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array, ListArray};
    use arrow::datatypes::{Field, Int32Type, Int64Type};

    use super::*;

    #[test]
    fn only_the_rows_that_do_not_fit_are_empty() {
        let values = (0..1000).map(|value| if value % 400 == 7 { 1 << 40 } else { value });
        let array: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
        let mut unfit = Unfit::default();
        let adapted = adapt_or_empty(&array, &Arrow::Int32, 50, &mut unfit).unwrap();
        let adapted = adapted.as_primitive::<Int32Type>();
        assert_eq!(unfit.rows().collect::<Vec<_>>(), [57, 457, 857]);
        for row in 0..1000 {
            let expected = (row % 400 != 7).then_some(row as i32);
            let found = adapted.is_valid(row).then(|| adapted.value(row));
            assert_eq!(found, expected, "row {row}");
        }
        assert!(unfit.first()[0].1.contains("1099511627776"), "{unfit:?}");
    }

    #[test]
    fn an_item_that_does_not_fit_costs_its_list_alone() {
        let lists = (0..9).map(|row| Some(vec![Some(row), Some(if row == 4 { -1 } else { 1 })]));
        let array: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
        let target = Arrow::List(Arc::new(Field::new("element", Arrow::UInt8, true)));
        let mut unfit = Unfit::default();
        let adapted = adapt_or_empty(&array, &target, 0, &mut unfit).unwrap();
        assert_eq!(unfit.rows().collect::<Vec<_>>(), [4]);
        let is_null: Vec<usize> = (0..9).filter(|&row| adapted.is_null(row)).collect();
        assert_eq!(is_null, [4]);
    }
}
