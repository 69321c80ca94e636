//! One line of a JSON Lines side input, and the reading of such lines.
//!
//! What a line holds beside its key and its texts does not matter: `NaN`, which Python writes by
//! default, and halves of surrogate pairs are passed over as any other value.

use std::io::BufRead;

use crate::keys::integer_key;

/// A longer line is not a caption but a broken file; it is counted as a bad line.
pub const LONGEST_LINE: u64 = 64 << 20;
/// Members of an object that a message names.
const NAMED_MEMBERS: usize = 20;

/// A key, as the keys of Parquet files are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineKey {
    /// A text.
    Text(String),
    /// An integer, and how many of its bytes count.
    Integer([u8; 9], usize),
}

impl LineKey {
    /// The bytes that are compared.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Integer(bytes, length) => &bytes[..*length],
        }
    }
}

/// What a line has under the name of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineText {
    /// No such member.
    Absent,
    /// Null.
    Null,
    /// A text.
    Text(String),
    /// Something else, or a text that is none: why.
    Unfit(&'static str),
}

/// What a line holds.
#[derive(Debug)]
pub struct ParsedLine {
    /// The key.
    pub key: LineKey,
    /// What it has for each column asked for.
    pub texts: Vec<LineText>,
}

/// Takes the key and the texts out of a line; a line without a usable key is bad.
pub fn parse_line(line: &[u8], key_column: &str, columns: &[String]) -> Result<ParsedLine, String> {
    let mut key = None;
    let mut texts = vec![LineText::Absent; columns.len()];
    each_member(line, |name, value| {
        if let Some(column) = columns.iter().position(|column| *column == name) {
            texts[column] = text_of(value);
        }
        if name == key_column {
            key = Some(key_of(value));
        }
    })?;
    match key {
        Some(key) => Ok(ParsedLine { key: key?, texts }),
        None => {
            let names = member_names(line);
            Err(format!("no member {key_column:?}; its members are {names}"))
        }
    }
}

/// Names of the members of an object, for messages.
pub fn member_names(line: &[u8]) -> String {
    let mut names: Vec<String> = Vec::new();
    // What can be read of a broken line is worth telling.
    let _ = each_member(line, |name, _| {
        if names.len() < NAMED_MEMBERS {
            names.push(name.chars().take(100).collect());
        }
    });
    names.join(", ")
}

fn key_of(value: &[u8]) -> Result<LineKey, String> {
    if value.first() == Some(&b'"') {
        return match serde_json::from_slice::<String>(value) {
            Ok(text) if text.is_empty() => Err("its key is empty".to_owned()),
            Ok(text) => Ok(LineKey::Text(text)),
            Err(error) => Err(format!("its key can't be read: {error}")),
        };
    }
    let number = std::str::from_utf8(value).unwrap_or_default();
    let (value, is_unsigned) = match (number.parse::<i64>(), number.parse::<u64>()) {
        (Ok(value), _) => (value, false),
        (_, Ok(value)) => (value as i64, true),
        _ => return Err("its key is neither a text nor an integer".to_owned()),
    };
    let (bytes, length) = integer_key(value, is_unsigned);
    Ok(LineKey::Integer(bytes, length))
}

fn text_of(value: &[u8]) -> LineText {
    match value {
        b"null" => LineText::Null,
        [b'"', ..] => match serde_json::from_slice(value) {
            Ok(text) => LineText::Text(text),
            Err(_) => LineText::Unfit("the text is not valid Unicode"),
        },
        _ => LineText::Unfit("it is no text"),
    }
}

/// Calls `visit(name, value as written)` for each member of the object that a line is.
fn each_member(line: &[u8], mut visit: impl FnMut(&str, &[u8])) -> Result<(), String> {
    let mut scanner = Scanner { line, at: 0 };
    scanner.expect(b'{', "no JSON object")?;
    if scanner.peek() == Some(b'}') {
        scanner.at += 1;
        return scanner.end();
    }
    loop {
        let name = scanner.string()?;
        // A name that is no Unicode is not one that anybody asks for.
        let name: String = serde_json::from_slice(name).unwrap_or_default();
        scanner.expect(b':', "no value after a name")?;
        visit(&name, scanner.value()?);
        match scanner.peek() {
            Some(b',') => scanner.at += 1,
            Some(b'}') => {
                scanner.at += 1;
                return scanner.end();
            }
            _ => return Err(scanner.broken("no comma or brace after a value")),
        }
    }
}

/// Walks over JSON, and `NaN` and infinities beside it, without recursion.
struct Scanner<'a> {
    line: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.line.get(self.at) {
            self.at += 1;
        }
        self.line.get(self.at).copied()
    }

    fn broken(&self, what: &str) -> String {
        format!("{what} at byte {}", self.at)
    }

    fn expect(&mut self, byte: u8, otherwise: &str) -> Result<(), String> {
        if self.peek() != Some(byte) {
            return Err(self.broken(otherwise));
        }
        self.at += 1;
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.broken("something follows the object")),
        }
    }

    /// A string with its quotes.
    fn string(&mut self) -> Result<&'a [u8], String> {
        self.expect(b'"', "no string")?;
        let start = self.at - 1;
        loop {
            let rest = self.line.get(self.at..).unwrap_or_default();
            let Some(next) = memchr::memchr2(b'"', b'\\', rest) else {
                return Err(self.broken("a string does not end"));
            };
            self.at += next + 1;
            if rest[next] == b'"' {
                return Ok(&self.line[start..self.at]);
            }
            self.at += 1;
        }
    }

    /// Any value.
    fn value(&mut self) -> Result<&'a [u8], String> {
        self.peek();
        let start = self.at;
        let mut depth = 0_u64;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.at += 1;
                    continue;
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                Some(b',' | b':') if depth > 0 => {
                    self.at += 1;
                    continue;
                }
                _ => self.bare()?,
            }
            if depth == 0 {
                return Ok(&self.line[start..self.at]);
            }
        }
    }

    /// A number or a word.
    fn bare(&mut self) -> Result<(), String> {
        let rest = self.line.get(self.at..).unwrap_or_default();
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        let word = &rest[..length];
        let is_number = matches!(word, [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..])
            && word.iter().all(|byte| b"0123456789+-.eE".contains(byte));
        let is_word = [
            &b"true"[..],
            b"false",
            b"null",
            b"NaN",
            b"Infinity",
            b"-Infinity",
        ]
        .contains(&word);
        if !(is_number || is_word) {
            return Err(self.broken("no value"));
        }
        self.at += length;
        Ok(())
    }
}

/// What a file holds that is no JSON Lines in UTF-8, by its first bytes; also the length of a
/// byte order mark to pass over.
pub fn beginning(bytes: &[u8]) -> Result<usize, &'static str> {
    match bytes {
        [0xef, 0xbb, 0xbf, ..] => Ok(3),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Err("it is UTF-16; write it as UTF-8"),
        [0x1f, 0x8b, ..] => Err("it is compressed by gzip; name it .jsonl.gz"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err("it is compressed by zstd; name it .jsonl.zst"),
        [b'P', b'A', b'R', b'1', ..] => Err("it is Parquet; name it .parquet"),
        _ if bytes.trim_ascii_start().first() == Some(&b'[') => {
            Err("it is a JSON array; write an object a line")
        }
        _ => Ok(0),
    }
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

    fn text(text: &str) -> LineText {
        LineText::Text(text.to_owned())
    }

    #[test]
    fn lines_are_taken_apart_or_refused() {
        let columns = ["a".to_owned(), "b".to_owned()];
        let table: [(&[u8], &[u8], [LineText; 2]); 9] = [
            (
                br#"{"x":[1,{"a":2}],"b":"text","key":"k","a":7}"#,
                b"k",
                [LineText::Unfit("it is no text"), text("text")],
            ),
            (
                br#"{"key":"k"}"#,
                b"k",
                [LineText::Absent, LineText::Absent],
            ),
            (
                b" { \"key\" : \"k\" , \"a\" : null } \r\n",
                b"k",
                [LineText::Null, LineText::Absent],
            ),
            (
                br#"{"s":NaN,"t":[-Infinity,{"u":Infinity}],"key":"k","a":"x"}"#,
                b"k",
                [text("x"), LineText::Absent],
            ),
            (
                br#"{"s":"\ud83d","key":"k","a":"\ud83d\ude00"}"#,
                b"k",
                [text("\u{1f600}"), LineText::Absent],
            ),
            (
                br#"{"key":"k","a":"half \ud83d","b":"whole"}"#,
                b"k",
                [
                    LineText::Unfit("the text is not valid Unicode"),
                    text("whole"),
                ],
            ),
            (
                b"{\"key\":\"k\",\"a\":\"\xff\",\"z\":\"\xff\"}",
                b"k",
                [
                    LineText::Unfit("the text is not valid Unicode"),
                    LineText::Absent,
                ],
            ),
            (
                br#"{"key":-1,"a":"\"}{\\"}"#,
                &[0xff; 8],
                [text("\"}{\\"), LineText::Absent],
            ),
            (
                br#"{"key":18446744073709551615}"#,
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                [LineText::Absent, LineText::Absent],
            ),
        ];
        for (line, key, texts) in table {
            let shown = String::from_utf8_lossy(line);
            let parsed = parse_line(line, "key", &columns)
                .unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(parsed.key.bytes(), key, "{shown}");
            assert_eq!(parsed.texts, texts, "{shown}");
        }
        for bad in [
            &br#"{"key":"k""#[..],
            b"[]",
            b"null",
            b"7",
            b"",
            b"{",
            br#"{"a":"x"}"#,
            br#"{"key":""}"#,
            br#"{"key":1.5}"#,
            br#"{"key":null}"#,
            br#"{"key":["k"]}"#,
            br#"{"key":"k"} x"#,
            br#"{"key":"k","x":nonsense}"#,
            br#"{"key":"k","x":"cut off"#,
            br#"{"key":"k\"#,
            b"{\"key\":\"\xff\"}",
        ] {
            let outcome = parse_line(bad, "key", &columns);
            assert!(outcome.is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn what_is_no_json_lines_is_named() {
        let table: [(&[u8], Result<usize, &str>); 7] = [
            (b"{}", Ok(0)),
            (b"", Ok(0)),
            (b"\xef\xbb\xbf{}", Ok(3)),
            (b"\xff\xfe{\0", Err("UTF-16")),
            (b"\x1f\x8b\x08", Err("gzip")),
            (b"\x28\xb5\x2f\xfd", Err("zstd")),
            (b"\n [\n{}", Err("array")),
        ];
        for (bytes, expected) in table {
            match (beginning(bytes), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{bytes:?}"),
                (Err(found), Err(word)) => assert!(found.contains(word), "{found}"),
                other => panic!("{bytes:?}: {other:?}"),
            }
        }
    }
}
