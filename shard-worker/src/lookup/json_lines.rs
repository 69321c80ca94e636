//! One line of a JSON Lines side input, and the reading of such lines.

use std::io::BufRead;

use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// A longer line is not a caption but a broken file; it is counted as a bad line.
pub const LONGEST_LINE: u64 = 64 << 20;

/// What a line holds.
pub struct ParsedLine {
    /// The key.
    pub key: String,
    /// A text for each column asked for, where the line has one.
    pub texts: Vec<Option<String>>,
}

/// Takes the key and the texts out of a line. A text of another type counts as absent, as does
/// a missing one; a line without a usable key is bad.
pub fn parse_line(line: &[u8], key_column: &str, columns: &[String]) -> Result<ParsedLine, String> {
    struct Fields<'a> {
        key_column: &'a str,
        columns: &'a [String],
    }
    impl<'de> Visitor<'de> for Fields<'_> {
        type Value = ParsedLine;

        fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(formatter, "an object with the key {:?}", self.key_column)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ParsedLine, A::Error> {
            let mut key = None;
            let mut texts = vec![None; self.columns.len()];
            while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                let column = self.columns.iter().position(|column| *column == name);
                if name == self.key_column || column.is_some() {
                    let value = map.next_value::<serde_json::Value>()?;
                    let text = match value {
                        serde_json::Value::String(text) => Some(text),
                        _ => None,
                    };
                    if let Some(column) = column {
                        texts[column].clone_from(&text);
                    }
                    if name == self.key_column {
                        key = text;
                    }
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            let key = key.filter(|key| !key.is_empty());
            let key = key.ok_or_else(|| {
                serde::de::Error::custom(format_args!("no text under {:?}", self.key_column))
            })?;
            Ok(ParsedLine { key, texts })
        }
    }
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let parsed = deserializer
        .deserialize_map(Fields {
            key_column,
            columns,
        })
        .map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(parsed)
}

/// Passes over the rest of a line.
pub fn skip_line(reader: &mut impl BufRead) -> std::io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        match buffer.iter().position(|&byte| byte == b'\n') {
            Some(end) => {
                reader.consume(end + 1);
                return Ok(());
            }
            None => {
                let length = buffer.len();
                reader.consume(length);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_apart_or_refused() {
        let columns = ["a".to_owned(), "b".to_owned()];
        let good = parse_line(
            br#"{"x":[1,{"a":2}],"b":"text","key":"k","a":7}"#,
            "key",
            &columns,
        )
        .unwrap();
        assert_eq!(good.key, "k");
        assert_eq!(good.texts, [None, Some("text".to_owned())]);
        for bad in [
            &br#"{"key":"k""#[..],
            b"[]",
            b"null",
            b"7",
            br#"{"a":"x"}"#,
            br#"{"key":""}"#,
            br#"{"key":1}"#,
            br#"{"key":"k"} x"#,
            b"{\"key\":\"\xff\"}",
        ] {
            assert!(
                parse_line(bad, "key", &columns).is_err(),
                "{}",
                String::from_utf8_lossy(bad)
            );
        }
    }
}
