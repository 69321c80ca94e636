//! Noticing a listing that does not come to an end.

/// Pages without anything on them that a listing may have in a row: of a bucket with versions
/// there are many where much was deleted.
const MOST_EMPTY: u32 = 10_000;

/// The pages of one listing so far. Holds two tokens, whatever the number of pages.
#[derive(Debug, Default)]
pub(super) struct Pages {
    last: Option<String>,
    /// The token at the last power of two: one that comes again is a round.
    mark: Option<String>,
    turned: u64,
    empty: u32,
}

impl Pages {
    /// Turns to the page that `next` asks for, after one with `found` names on it.
    ///
    /// # Errors
    /// In words, if that page was there before, or too many had nothing on them.
    pub(super) fn turn(
        &mut self,
        next: Option<String>,
        found: usize,
    ) -> Result<Option<String>, String> {
        self.empty = if found == 0 { self.empty + 1 } else { 0 };
        if next.is_none() {
            return Ok(None);
        }
        if next == self.last || next == self.mark {
            return Err("it lists the same page again and again".to_owned());
        }
        if self.empty > MOST_EMPTY {
            return Err(format!(
                "it lists {MOST_EMPTY} pages without anything on them"
            ));
        }
        self.turned += 1;
        if self.turned.is_power_of_two() {
            self.mark.clone_from(&next);
        }
        self.last.clone_from(&next);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages_until_refused(token: impl Fn(u64) -> String, found: usize) -> Option<u64> {
        let mut pages = Pages::default();
        (0..100_000).find(|number| pages.turn(Some(token(*number)), found).is_err())
    }

    #[test]
    fn rounds_are_noticed_and_long_listings_are_not() {
        assert_eq!(pages_until_refused(|_| "same".to_owned(), 1000), Some(1));
        for (straight, round) in [(0, 2), (0, 7), (1000, 1), (1000, 3), (5, 900)] {
            let token = |number: u64| match number.checked_sub(straight) {
                Some(turned) => format!("{}", straight + turned % round),
                None => format!("{number}"),
            };
            let pages = pages_until_refused(token, 1000).expect("a round");
            assert!(
                pages <= 4 * (straight + round),
                "{straight} {round}: {pages}"
            );
        }
        assert_eq!(pages_until_refused(|number| number.to_string(), 1), None);
        let empty = pages_until_refused(|number| number.to_string(), 0);
        assert_eq!(empty, Some(u64::from(MOST_EMPTY)));
    }
}
