//! `Output`: results on standard output, as text or JSON, one a line.

use std::io::{self, BufWriter, StdoutLock, Write};

use serde_json::{Value, json};

use crate::{
    globals::Globals,
    notation::{escape, to_hex, to_json},
};

/// Standard output, buffered; [`Output::end`] writes what is left and tells of an error.
pub(crate) struct Output {
    out: BufWriter<StdoutLock<'static>>,
    is_json: bool,
    is_hex: bool,
}

impl Output {
    pub(crate) fn new(globals: &Globals) -> Self {
        Output { out: BufWriter::new(io::stdout().lock()), is_json: globals.json, is_hex: globals.hex }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.is_json
    }

    /// One row: `key TAB value`, or an object; only the key if there is no value.
    pub(crate) fn row(&mut self, key: &[u8], value: Option<&[u8]>) -> io::Result<()> {
        if self.is_json {
            let mut row = json!({ "key": to_json(key, self.is_hex) });
            if let Some(value) = value {
                row["value"] = to_json(value, self.is_hex);
            }
            return self.json(&row);
        }
        self.out.write_all(self.text(key).as_bytes())?;
        if let Some(value) = value {
            self.out.write_all(b"\t")?;
            self.out.write_all(self.text(value).as_bytes())?;
        }
        self.out.write_all(b"\n")
    }

    /// One value by itself.
    pub(crate) fn value(&mut self, value: &[u8]) -> io::Result<()> {
        if self.is_json {
            return self.json(&json!({ "value": to_json(value, self.is_hex) }));
        }
        let text = self.text(value);
        self.line(&text)
    }

    /// Bytes as they are, with nothing around them.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// A JSON value, on a line.
    pub(crate) fn json(&mut self, value: &Value) -> io::Result<()> {
        writeln!(self.out, "{value}")
    }

    /// A report, as lines or as an object, and nothing else.
    pub(crate) fn report(mut self, lines: &[String], object: &Value) -> io::Result<()> {
        if self.is_json {
            self.json(object)?;
        } else {
            lines.iter().try_for_each(|line| self.line(line))?;
        }
        self.end()
    }

    /// For a command that has nothing to show but that it is done.
    pub(crate) fn done(&mut self) -> io::Result<()> {
        if self.is_json { self.json(&json!({ "ok": true })) } else { Ok(()) }
    }

    /// Writes what is buffered, and goes on.
    pub(crate) fn show(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Writes what is buffered.
    pub(crate) fn end(mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Bytes as this output shows them.
    fn text(&self, bytes: &[u8]) -> String {
        if self.is_hex { to_hex(bytes) } else { escape(bytes) }
    }
}
