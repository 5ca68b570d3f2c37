//! `JsonRows`: lines with a JSON object each as rows of the store.

use std::{
    collections::{HashMap, HashSet},
    io::{self, BufRead, Read},
};

use serde_json::{error::Category, value::RawValue};

use super::{BadRow, LoadRow, Reason, UTF_16, checked_row, is_utf_16, unreadable};
use crate::notation::escape;

/// What some programs write before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The rows of a file of JSON objects, one a line.
pub(super) struct JsonRows<R> {
    input: R,
    key: Vec<String>,
    separator: Vec<u8>,
    line_bytes_max: usize,
    line: u64,
    is_done: bool,
}

impl<R: BufRead> JsonRows<R> {
    pub(super) fn new(input: R, key: &[String], separator: &[u8], line_bytes_max: usize) -> Self {
        let (key, separator) = (key.to_vec(), separator.to_vec());
        JsonRows { input, key, separator, line_bytes_max, line: 0, is_done: false }
    }

    /// The next line, with its end; none at the end of the input. Of a line that is too long, only so much
    /// that this shows.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        // With room for a byte order mark, for the line end, and for one byte too many.
        let mark = if self.line == 0 { BYTE_ORDER_MARK.len() } else { 0 };
        let limit = (self.line_bytes_max + mark) as u64 + 2;
        self.input.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        self.line += 1;
        if line.len() as u64 == limit && line.last() != Some(&b'\n') {
            self.input.skip_until(b'\n')?;
        }
        if mark > 0 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..mark);
        }
        Ok(Some(line))
    }

    fn row(&self, line: &[u8]) -> Result<LoadRow, BadRow> {
        let malformed = |reason, message: String| BadRow::Malformed { line: self.line, reason, message };
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // White space counts: of a line that was cut, nobody knows what stands behind it.
        if line.len() > self.line_bytes_max {
            let max = self.line_bytes_max;
            let message = format!("the line has more than {max} bytes; --record-max raises the limit");
            return Err(malformed(Reason::LongRecord, message));
        }
        let line = line.trim_ascii();
        let columns: HashMap<String, &RawValue> = serde_json::from_slice(line)
            .map_err(|error| malformed(Reason::NotAnObject, not_an_object(line, &error)))?;
        // Of a name that is there twice the last value would count, here and not everywhere.
        let names = member_names(line);
        if names.len() > columns.len() {
            let message = format!("the object has the name `{}` twice", escape(repeated(&names).as_bytes()));
            return Err(malformed(Reason::RepeatedName, message));
        }
        let mut key = Vec::new();
        for (i, name) in self.key.iter().enumerate() {
            let Some(value) = columns.get(name) else {
                let message = format!("there is no `{}`, which is part of the key", escape(name.as_bytes()));
                return Err(malformed(Reason::NoKey, message));
            };
            if i > 0 {
                key.extend_from_slice(&self.separator);
            }
            let Some(part) = key_part(value.get()) else {
                let is_text = value.get().starts_with('"');
                let what = if is_text { "text that is not Unicode" } else { "no string, number or boolean" };
                let message = format!("`{}` is part of the key, but {what}", escape(name.as_bytes()));
                return Err(malformed(Reason::NoKey, message));
            };
            key.extend_from_slice(part.as_bytes());
        }
        checked_row(self.line, key, line.to_vec())
    }
}

/// What is wrong and where. The error's own text speaks of line 1, since it was given one line, and of types
/// of this program.
fn not_an_object(line: &[u8], error: &serde_json::Error) -> String {
    let text = error.to_string();
    let what = text.split(" at line ").next().unwrap_or_default();
    match (error.classify(), line.first()) {
        (Category::Data, Some(b'[')) => {
            "not a JSON object, but an array; write one object a line, with no array around them".to_string()
        }
        (Category::Data, Some(b'"')) => "not a JSON object, but a string".to_string(),
        (Category::Data, Some(b'0'..=b'9' | b'-')) => "not a JSON object, but a number".to_string(),
        (Category::Data, Some(b't' | b'f' | b'n')) => {
            "not a JSON object, but true, false or null".to_string()
        }
        (Category::Eof, _) => "not a JSON object: the line ends before the object does".to_string(),
        _ => format!("not a JSON object: {what} at column {}", error.column()),
    }
}

/// The names of an object's members as they are written, quotes included. The text must be an object, and
/// nothing else.
fn member_names(object: &[u8]) -> Vec<&[u8]> {
    let mut names = Vec::new();
    let (mut at, mut depth, mut is_name) = (0, 0u32, false);
    while let Some(byte) = object.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while object[at] != b'"' {
                    at += 1 + usize::from(object[at] == b'\\');
                }
                at += 1;
                if is_name {
                    names.push(&object[start..at]);
                }
                is_name = false;
            }
            b'{' | b'[' => {
                depth += 1;
                is_name = depth == 1;
            }
            b'}' | b']' => depth -= 1,
            b',' => is_name = depth == 1,
            _ => {}
        }
    }
    names
}

/// The first of these names that is there before; the same name may be written in several ways.
fn repeated(names: &[&[u8]]) -> String {
    let mut seen = HashSet::new();
    let mut names = names.iter().map(|name| serde_json::from_slice::<String>(name).unwrap_or_default());
    names.find(|name| !seen.insert(name.clone())).unwrap_or_default()
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
                Ok(Some(line)) if line.trim_ascii().is_empty() && line.len() <= self.line_bytes_max => {}
                Ok(Some(line)) if self.line == 1 && is_utf_16(&line) => {
                    self.is_done = true;
                    return Some(Err(BadRow::Unreadable(UTF_16.to_string())));
                }
                Ok(Some(line)) => return Some(self.row(&line)),
                Ok(None) => self.is_done = true,
                Err(error) => {
                    self.is_done = true;
                    return Some(Err(unreadable(self.line, &error)));
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
        let rows = JsonRows::new(input.as_bytes(), &["a".to_string(), "b".to_string()], b"|", 100);
        rows.map(|row| match row {
            Ok(row) => format!("{}={}", row.key.escape_ascii(), String::from_utf8(row.value).unwrap()),
            Err(BadRow::Malformed { line, message, .. }) => format!("line {line}: {message}"),
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
    fn a_line_has_a_limit_and_a_byte_order_mark_is_passed_over() {
        let fits = format!("{{\"a\":1,\"b\":\"{}\"}}", "x".repeat(86));
        assert_eq!(fits.len(), 100);
        let mut rows = read(&format!("\u{feff}{fits}\n{fits} x\n{}\n{fits}\r\n{fits}", "[".repeat(1000)));
        assert!(rows[0].starts_with("1|xxx") && rows[3] == rows[0] && rows[4] == rows[0], "{rows:?}");
        let spaces = " ".repeat(200);
        rows.extend(read(&format!("\n\n\n{{\"a\":1,\"b\":2}}{spaces}junk\n{spaces}\n")));
        for (row, line) in [(&rows[1], 2), (&rows[2], 3), (&rows[5], 4), (&rows[6], 5)] {
            assert!(row.starts_with(&format!("line {line}: the line has more than 100 bytes")), "{row}");
        }
    }

    #[test]
    fn an_object_that_has_a_name_twice_is_malformed() {
        let rows = read(concat!(
            r#"{"a":1,"b":2,"a":3}"#,
            "\n",
            r#"{"a":1,"b":2,"x\"y":[{},"a"],"\u0078\"y":0}"#,
            "\n",
            r#"{"a":"\"\\","b":2,"c":{"d":1,"d":",\"a\":"},"":["b",{"a":{}},"a"]}"#,
            "\n",
            r#"{"":1,"a":1,"b":1,"":1}"#,
        ));
        assert_eq!(rows[0], "line 1: the object has the name `a` twice");
        assert_eq!(rows[1], "line 2: the object has the name `x\"y` twice");
        assert!(rows[2].contains("|2={"), "what is inside of values is no member: {}", rows[2]);
        assert_eq!(rows[3], "line 4: the object has the name `` twice");
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
