//! `CsvRecords`: an input cut into CSV records of limited length, and those into fields.
//!
//! Fields are separated by commas; a field that begins with a quote ends with one, and may hold commas, line
//! ends and doubled quotes. A quote that was left open would swallow whatever comes behind it, so two things
//! bound the harm: a record has a limit, and a closing quote must be the end of its field. After a malformed
//! quote the next record begins at the line behind the one where the quote opened.
//!
//! Always true here: at most one record and a piece of the input are in memory. A byte is looked at a few
//! times at most: what a quote swallowed has no other quote that could swallow it again, or the first would
//! have ended there.

use std::io::{self, Read};

/// Input is read in pieces of this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// So many fields of a record are kept; of those behind it only the number.
pub(super) const FIELDS_MAX: usize = 1 << 16;

/// What some programs write before text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The fields of one record.
#[derive(Default)]
pub(super) struct Record {
    bytes: Vec<u8>,
    /// Where each field ends, of the first [`FIELDS_MAX`].
    ends: Vec<usize>,
    len: usize,
    /// Where the record began; lines are counted from one.
    pub(super) line: u64,
}

impl Record {
    /// How many fields it has, [`FIELDS_MAX`] or more.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of all fields.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn field(&self, number: usize) -> &[u8] {
        let start = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[start..self.ends[number]]
    }

    pub(super) fn fields(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).map(|number| self.field(number))
    }

    fn end_field(&mut self) {
        self.len += 1;
        if self.ends.len() < FIELDS_MAX {
            self.ends.push(self.bytes.len());
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.len = 0;
    }
}

/// Why there is no record.
#[derive(Debug)]
pub(super) enum BadRecord {
    /// The quote that opened on this line is never closed.
    QuoteOpen { line: u64 },
    /// The quote that opened on this line is not closed within the limit.
    QuoteTooLong { line: u64 },
    /// The quote that opened on this line is closed where no field ends, on that one.
    QuoteMisplaced { line: u64, closed_on: u64 },
    /// The record that begins on this line is longer than the limit.
    TooLong { line: u64 },
    /// The input cannot be read; this was the last line of the last record, or zero.
    Unreadable { line: u64, error: io::Error },
}

/// Records as they are read.
pub(super) struct CsvRecords<R> {
    input: R,
    /// What was read and not yet used up.
    window: Vec<u8>,
    /// Where in the window the next record begins, and on which line.
    start: usize,
    line: u64,
    is_at_end: bool,
    record_bytes_max: usize,
}

/// A record on its way.
struct Scan {
    /// Bytes of it that were looked at.
    at: usize,
    line: u64,
    /// Whether the byte before was a carriage return, whose line feed is no line end of its own.
    was_return: bool,
}

/// Why a scan could not go on.
enum Stop {
    TooLong,
    Io(io::Error),
}

impl<R: Read> CsvRecords<R> {
    pub(super) fn new(input: R, record_bytes_max: usize) -> Self {
        CsvRecords { input, window: Vec::new(), start: 0, line: 1, is_at_end: false, record_bytes_max }
    }

    /// Passes over a byte order mark, and gives the first bytes of the input, a few.
    pub(super) fn begin(&mut self) -> io::Result<&[u8]> {
        while self.window.len() < BYTE_ORDER_MARK.len() && !self.is_at_end {
            self.read_piece()?;
        }
        if self.window.starts_with(BYTE_ORDER_MARK) {
            self.start = BYTE_ORDER_MARK.len();
        }
        Ok(&self.window[self.start..self.window.len().min(self.start + BYTE_ORDER_MARK.len())])
    }

    /// Reads the next record, empty lines passed over; false at the end.
    pub(super) fn read(&mut self, record: &mut Record) -> Result<bool, BadRecord> {
        record.clear();
        let mut scan = Scan { at: 0, line: self.line, was_return: false };
        while let Some(line_end @ (b'\n' | b'\r')) = self.next_byte(&scan)? {
            self.pass_line_end(0, line_end)?;
            self.line += 1;
            scan.line = self.line;
        }
        record.line = self.line;
        if self.next_byte(&scan)?.is_none() {
            return Ok(false);
        }
        loop {
            if self.next_byte(&scan)? == Some(b'"') {
                self.quoted(&mut scan, record)?;
            } else {
                self.unquoted(&mut scan, record)?;
            }
            record.end_field();
            match self.next_byte(&scan)? {
                Some(b',') => scan.at += 1,
                Some(line_end) => {
                    self.line = scan.line + 1;
                    self.pass_line_end(scan.at, line_end)?;
                    return Ok(true);
                }
                None => {
                    self.start += scan.at;
                    self.line = scan.line;
                    return Ok(true);
                }
            }
        }
    }

    /// The rest of a field without quotes.
    fn unquoted(&mut self, scan: &mut Scan, record: &mut Record) -> Result<(), BadRecord> {
        loop {
            let rest = self.rest(scan);
            let end = rest.iter().position(|byte| *byte == b',' || is_line_end(*byte));
            let plain = end.unwrap_or(rest.len());
            record.bytes.extend_from_slice(&rest[..plain]);
            scan.at += plain;
            if end.is_some() || self.next_byte(scan)?.is_none() {
                return Ok(());
            }
        }
    }

    /// A field in quotes, from the opening one on.
    fn quoted(&mut self, scan: &mut Scan, record: &mut Record) -> Result<(), BadRecord> {
        let (opened, line) = (scan.at, scan.line);
        scan.at += 1;
        scan.was_return = false;
        loop {
            let rest = self.rest(scan);
            let quote = rest.iter().position(|byte| *byte == b'"');
            let plain = &rest[..quote.unwrap_or(rest.len())];
            record.bytes.extend_from_slice(plain);
            scan.pass_quoted(plain);
            let behind = scan.at + usize::from(quote.is_some());
            let bad = match (self.byte(behind), quote) {
                (Ok(Some(_)), None) => continue,
                (Ok(Some(b'"')), Some(_)) => {
                    record.bytes.push(b'"');
                    scan.at += 2;
                    scan.was_return = false;
                    continue;
                }
                (Ok(Some(b',' | b'\n' | b'\r') | None), Some(_)) => {
                    scan.at += 1;
                    return Ok(());
                }
                (Ok(Some(_)), Some(_)) => BadRecord::QuoteMisplaced { line, closed_on: scan.line },
                (Ok(None), None) => BadRecord::QuoteOpen { line },
                (Err(Stop::TooLong), _) => BadRecord::QuoteTooLong { line },
                (Err(Stop::Io(error)), _) => return Err(self.unreadable(error)),
            };
            // What the quote swallowed is read again.
            self.pass_rest_of_line(opened, line)?;
            return Err(bad);
        }
    }

    /// What is in the window of the record from the scan's place on, and not beyond the limit.
    fn rest(&self, scan: &Scan) -> &[u8] {
        let end = self.window.len().min(self.start + self.record_bytes_max + 1);
        &self.window[(self.start + scan.at).min(end)..end]
    }

    /// The byte at the scan's place, outside quotes; none at the end of the input. If the record is too long,
    /// the next one begins at the line behind.
    fn next_byte(&mut self, scan: &Scan) -> Result<Option<u8>, BadRecord> {
        match self.byte(scan.at) {
            Ok(byte) => Ok(byte),
            Err(Stop::TooLong) => {
                let line = self.line;
                self.pass_rest_of_line(scan.at, scan.line)?;
                Err(BadRecord::TooLong { line })
            }
            Err(Stop::Io(error)) => Err(self.unreadable(error)),
        }
    }

    /// The byte so far from the record's beginning, read if need be; none at the end of the input.
    fn byte(&mut self, at: usize) -> Result<Option<u8>, Stop> {
        // The line end behind a record of just the limit is no part of it.
        if at > self.record_bytes_max {
            return Err(Stop::TooLong);
        }
        while self.start + at >= self.window.len() {
            if self.is_at_end {
                return Ok(None);
            }
            self.window.drain(..self.start);
            self.start = 0;
            self.read_piece().map_err(Stop::Io)?;
        }
        Ok(Some(self.window[self.start + at]))
    }

    /// Has the next record begin behind the line end that is `at` so many bytes from here.
    fn pass_line_end(&mut self, at: usize, line_end: u8) -> Result<(), BadRecord> {
        self.start += at + 1;
        let is_pair = line_end == b'\r'
            && self.byte(0).map_err(|stop| match stop {
                Stop::TooLong => BadRecord::TooLong { line: self.line },
                Stop::Io(error) => self.unreadable(error),
            })? == Some(b'\n');
        self.start += usize::from(is_pair);
        Ok(())
    }

    /// Has the next record begin behind the end of a line, of whatever length: of the line with this number,
    /// which is in the window from `at` bytes behind the record's beginning on.
    fn pass_rest_of_line(&mut self, at: usize, line: u64) -> Result<(), BadRecord> {
        self.line = line;
        self.start = (self.start + at).min(self.window.len());
        loop {
            if let Some(end) = self.window[self.start..].iter().position(|byte| is_line_end(*byte)) {
                self.line += 1;
                return self.pass_line_end(end, self.window[self.start + end]);
            }
            self.window.clear();
            self.start = 0;
            if self.is_at_end {
                return Ok(());
            }
            self.read_piece().map_err(|error| self.unreadable(error))?;
        }
    }

    /// The input ends in the midst of a record, the next one.
    fn unreadable(&self, error: io::Error) -> BadRecord {
        BadRecord::Unreadable { line: self.line.saturating_sub(1), error }
    }

    /// Appends a piece of the input to the window.
    fn read_piece(&mut self) -> io::Result<()> {
        let len = self.window.len();
        self.window.resize(len + PIECE_BYTES, 0);
        let read = loop {
            match self.input.read(&mut self.window[len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.window.truncate(len + read.as_ref().map_or(0, |count| *count));
        self.is_at_end |= read? == 0;
        Ok(())
    }
}

impl Scan {
    /// Passes over bytes inside quotes, and counts the line ends among them.
    fn pass_quoted(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.line += u64::from(*byte == b'\r' || (*byte == b'\n' && !self.was_return));
            self.was_return = *byte == b'\r';
        }
        self.at += bytes.len();
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r')
}

#[cfg(test)]
mod tests;
