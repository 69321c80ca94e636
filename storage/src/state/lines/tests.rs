use serde_json::{Value, json};

use super::*;
use crate::state::{StateError, limits};

const WHAT: &str = "file of tests";
const LIMIT: LinesLimit = LinesLimit {
    file: 1 << 20,
    text: 8 << 20,
};

fn compressed(text: &[u8]) -> Bytes {
    zstd::encode_all(text, 3).unwrap().into()
}

fn open(bytes: Bytes) -> Result<LinesReader> {
    LinesReader::open::<Value>("file", WHAT, LIMIT, bytes).map(|(_, reader)| reader)
}

/// Reads to the end, or to what is too large.
fn drain(mut reader: LinesReader) -> Result<usize> {
    let mut lines = 0;
    while reader.next::<Value>()?.is_some() {
        lines += 1;
    }
    Ok(lines)
}

fn is_too_large<T: std::fmt::Debug>(result: Result<T>, words: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error, StateError::TooLarge { .. }), "{error}");
    assert!(error.is_damage());
    let text = error.to_string();
    assert!(text.contains(words) && text.contains("file"), "{text}");
}

#[test]
fn few_lines_and_many_are_read_alike() {
    for count in [0, 1, 20_000] {
        let mut writer = LinesWriter::new("file", WHAT, LIMIT, &json!({"version": 1})).unwrap();
        for line in 0..count {
            writer
                .push(&json!({"path": format!("{line:08}.parquet")}))
                .unwrap();
        }
        let reader = open(writer.finish().unwrap().into()).unwrap();
        assert_eq!(reader.cost() < SMALL, count < 20_000, "{count}");
        assert_eq!(drain(reader).unwrap(), count);
    }
}

#[test]
fn a_file_that_inflates_without_end_is_left() {
    let mut text = b"{\"version\":1}\n".to_vec();
    text.extend(b"{\"path\":\"a\"}\n".repeat(1 << 20));
    let bomb = compressed(&text);
    assert!(bomb.len() < 64 << 10, "{}", bomb.len());
    is_too_large(
        drain(open(bomb).unwrap()),
        "lines of more than 8388608 bytes",
    );
}

#[test]
fn a_line_that_never_ends_is_left_before_it_is_held() {
    let mut text = b"{\"version\":1}\n".to_vec();
    text.resize(text.len() + (64 << 20), b' ');
    let reader = open(compressed(&text)).unwrap();
    is_too_large(drain(reader), "a line of more than 1048576 bytes");
    // As the header, too.
    let header = compressed(&vec![b' '; 64 << 20]);
    is_too_large(open(header).map(drop), "a line of more than 1048576 bytes");
}

#[test]
fn a_file_that_wants_a_large_window_is_none_of_ours() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(b"{\"version\":1}\n").unwrap();
    encoder.write_all(&vec![b'\n'; 4 << 20]).unwrap();
    let bytes = encoder.finish().unwrap();
    let error = open(bytes.into()).map(drop).unwrap_err();
    assert!(matches!(error, StateError::Malformed { .. }), "{error}");
}

#[test]
fn nothing_is_written_that_would_not_be_read() {
    let begin = || LinesWriter::new("file", WHAT, LIMIT, &json!({"version": 1})).unwrap();
    is_too_large(
        begin().push(&"x".repeat(limits::LINE)),
        "a line of more than",
    );
    let mut writer = begin();
    let line = "x".repeat(limits::LINE - 8);
    let pushed = (0..9).try_for_each(|_| writer.push(&line));
    is_too_large(pushed, "no more than 8388608 are read");
}
