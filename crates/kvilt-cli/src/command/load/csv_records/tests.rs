//! Records of every shape, in pieces of every size.

use super::*;
use crate::notation::escape;

/// Gives what it has in small pieces.
struct Pieces<'i> {
    input: &'i [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.min(buffer.len()).min(self.input.len());
        buffer[..count].copy_from_slice(&self.input[..count]);
        self.input = &self.input[count..];
        Ok(count)
    }
}

/// Each record as `line: fields`, each error as `line! kind`.
fn read_with(input: &[u8], piece: usize, max: usize) -> Vec<String> {
    let mut records = CsvRecords::new(Pieces { input, piece }, max);
    records.begin().unwrap();
    let mut record = Record::default();
    let mut read = Vec::new();
    loop {
        read.push(match records.read(&mut record) {
            Ok(true) => {
                let fields: Vec<_> = record.fields().map(escape).collect();
                format!("{}: {}", record.line, fields.join("|"))
            }
            Ok(false) => return read,
            Err(BadRecord::QuoteOpen { line }) => format!("{line}! open"),
            Err(BadRecord::QuoteTooLong { line }) => format!("{line}! quote too long"),
            Err(BadRecord::QuoteMisplaced { line, closed_on }) => format!("{line}! misplaced on {closed_on}"),
            Err(BadRecord::TooLong { line }) => format!("{line}! too long"),
            Err(BadRecord::Unreadable { .. }) => panic!("slices can be read"),
        });
        assert!(records.window.len() <= max + 1 + PIECE_BYTES, "{} bytes kept", records.window.len());
    }
}

#[track_caller]
fn check(input: &str, max: usize, expected: &[&str]) {
    for piece in [1, 2, 3, 7, 100_000] {
        assert_eq!(read_with(input.as_bytes(), piece, max), expected, "in pieces of {piece}");
    }
}

#[test]
fn fields_quotes_and_line_ends_are_what_others_take_them_for() {
    check("a,b\n1,2\n", 100, &["1: a|b", "2: 1|2"]);
    check("a,b\r\n1,\r\n,2", 100, &["1: a|b", "2: 1|", "3: |2"]);
    check("\u{feff}a\r\"b\"\r\n\r\n\n\rc", 100, &["1: a", "2: b", "6: c"]);
    check("\"a,\"\"b\"\"\",\"\"\n\"1\r\n2\n3\",x\n4", 100, &["1: a,\"b\"|", "2: 1\\r\\n2\\n3|x", "5: 4"]);
    check("5\" disk,a\"b\"\n", 100, &["1: 5\" disk|a\"b\""]);
    check("", 100, &[]);
    check("\n\r\n", 100, &[]);
    check(",", 100, &["1: |"]);
    check("a\0b,\0\n", 100, &["1: a\\x00b|\\x00"]);
}

#[test]
fn what_a_quote_swallowed_that_is_never_closed_is_read_again() {
    check("1,\"open\n2,b\n3,c", 100, &["1! open", "2: 2|b", "3: 3|c"]);
    check("1,\"a\nb\",\"open\n2,b\n", 100, &["2! open", "3: 2|b"]);
    check("\"", 100, &["1! open"]);
    check("1,\"open\r\n2,b\r\n", 100, &["1! open", "2: 2|b"]);
}

#[test]
fn a_quote_that_is_closed_by_the_next_field_in_quotes_is_found() {
    check("1,\"open\n2,\"b\"\n3,c\n", 100, &["1! misplaced on 2", "2: 2|b", "3: 3|c"]);
    check("1,\"a\"b\n2,c\n", 100, &["1! misplaced on 1", "2: 2|c"]);
    check("1,\"a\" ,2\n", 100, &["1! misplaced on 1"]);
}

#[test]
fn a_record_has_a_limit_and_the_next_line_is_read() {
    check("12345,789\n1234567,9\n", 9, &["1: 12345|789", "2: 1234567|9"]);
    check("12345,7890\n1,2\n", 9, &["1! too long", "2: 1|2"]);
    check("1,\"345\",89\n1,2\n", 9, &["1! too long", "2: 1|2"]);
    check("1,\"34567\"\n1,2\n", 9, &["1: 1|34567", "2: 1|2"]);
    check("1,\"345678\"\n1,2\n", 9, &["1! quote too long", "2: 1|2"]);
    check("1,\"a\n\n22,b\n333,c\n4,d", 9, &["1! quote too long", "3: 22|b", "4: 333|c", "5: 4|d"]);
    check("1,2,3,4,5,6,7\n8", 9, &["1! too long", "2: 8"]);
    check("a\n1,\"2\n3\",4,5,6,7,8\n9", 9, &["1: a", "2! too long", "4: 9"]);
    check("long without a line end", 9, &["1! too long"]);
}

#[test]
fn an_open_quote_in_each_line_is_found_in_each_line() {
    let input = "1,\"abc\n".repeat(2000);
    let read = read_with(input.as_bytes(), 4096, 1 << 20);
    assert_eq!(read.len(), 2000);
    assert_eq!((read[0].as_str(), read[1999].as_str()), ("1! misplaced on 2", "2000! open"));
}

#[test]
fn fields_beyond_the_limit_are_counted_and_not_kept() {
    let input = vec![b','; FIELDS_MAX + 10];
    let mut records = CsvRecords::new(&input[..], 1 << 20);
    let mut record = Record::default();
    assert!(records.read(&mut record).unwrap());
    assert_eq!((record.len(), record.fields().count()), (FIELDS_MAX + 11, FIELDS_MAX));
}
