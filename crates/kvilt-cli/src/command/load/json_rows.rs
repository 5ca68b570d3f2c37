//! `JsonRows`: lines with a JSON object each as rows of the store.

use std::{
    collections::HashMap,
    io::{self, BufRead, Read},
};

use kvilt::VALUE_BYTES_MAX;
use serde_json::value::RawValue;

use super::{BadRow, LoadRow, checked_row};

/// The rows of a file of JSON objects, one a line.
pub(super) struct JsonRows<R> {
    input: R,
    key: Vec<String>,
    separator: String,
    line: u64,
    is_done: bool,
}

impl<R: BufRead> JsonRows<R> {
    pub(super) fn new(input: R, key: &[String], separator: &str) -> Self {
        JsonRows { input, key: key.to_vec(), separator: separator.to_string(), line: 0, is_done: false }
    }

    /// The next line; none at the end. Of a line that is too long, only so much that this shows.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        let limit = VALUE_BYTES_MAX as u64 + 2;
        self.input.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if line.len() as u64 == limit && line.last() != Some(&b'\n') {
            self.input.skip_until(b'\n')?;
        }
        Ok(Some(line))
    }

    fn row(&self, line: &[u8]) -> Result<LoadRow, BadRow> {
        let malformed = |message: String| BadRow::Malformed { line: self.line, message };
        if line.len() > VALUE_BYTES_MAX {
            return Err(malformed(format!("the line has more than {VALUE_BYTES_MAX} bytes")));
        }
        let columns: HashMap<String, &RawValue> =
            serde_json::from_slice(line).map_err(|error| malformed(not_an_object(&error)))?;
        let mut key = String::new();
        for (i, name) in self.key.iter().enumerate() {
            let Some(value) = columns.get(name) else {
                return Err(malformed(format!("there is no `{name}`, which is part of the key")));
            };
            if i > 0 {
                key.push_str(&self.separator);
            }
            key.push_str(&key_part(value.get()).ok_or_else(|| {
                malformed(format!("`{name}` is part of the key, but no string, number or boolean"))
            })?);
        }
        checked_row(self.line, key.into_bytes(), line.to_vec())
    }
}

/// What is wrong and where. The error's own text speaks of line 1, since it was given one line.
fn not_an_object(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    format!("not a JSON object: {what} at column {}", error.column())
}

/// The text of a string, number or boolean.
fn key_part(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'"' => serde_json::from_str(json).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(json.to_string()),
    }
}

impl<R: BufRead> Iterator for JsonRows<R> {
    type Item = Result<LoadRow, BadRow>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_done {
            match self.read_line() {
                Ok(Some(line)) if line.trim_ascii().is_empty() => {}
                Ok(Some(line)) => return Some(self.row(line.trim_ascii())),
                Ok(None) => self.is_done = true,
                Err(error) => {
                    self.is_done = true;
                    let message = format!("cannot read on after line {}: {error}", self.line);
                    return Some(Err(BadRow::Unreadable(message)));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &str) -> Vec<String> {
        let rows = JsonRows::new(input.as_bytes(), &["a".to_string(), "b".to_string()], "|");
        rows.map(|row| match row {
            Ok(row) => format!("{}={}", row.key.escape_ascii(), String::from_utf8(row.value).unwrap()),
            Err(BadRow::Malformed { line, message }) => format!("line {line}: {message}"),
            Err(BadRow::Unreadable(message)) => message,
        })
        .collect()
    }

    #[test]
    fn objects_are_stored_as_they_stand() {
        let rows = read(
            "{\"a\": 1.50, \"z\": 1e400, \"b\": \"x\\n\"}  \r\n\n{\"b\":true,\"a\":12345678901234567890123}",
        );
        assert_eq!(
            rows,
            [
                r#"1.50|x\n={"a": 1.50, "z": 1e400, "b": "x\n"}"#,
                r#"12345678901234567890123|true={"b":true,"a":12345678901234567890123}"#,
            ]
        );
    }

    #[test]
    fn a_malformed_line_is_named_and_the_next_is_read() {
        let rows =
            read("{\"a\":1,\n[1]\n{\"a\":1}\n{\"a\":1,\"b\":null}\n{\"a\":1,\"b\":2} x\n{\"a\":1,\"b\":2}\n");
        let starts =
            ["line 1: not a JSON", "line 2: not a JSON", "line 3: there is no `b`", "line 4: `b` is part"];
        for (row, start) in rows.iter().zip(starts) {
            assert!(row.starts_with(start), "{row}");
        }
        assert!(rows[4].starts_with("line 5: not a JSON object"), "{}", rows[4]);
        assert_eq!(rows[5], r#"1|2={"a":1,"b":2}"#);
    }
}
