//! `CsvRows`: CSV records as rows of the store.

use std::io::Read;

use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};

use super::{BadRow, LoadRow, checked_row};
use crate::failure::Failure;

/// The rows of a CSV file whose first line names the columns.
pub(crate) struct CsvRows<R> {
    reader: Reader<R>,
    record: ByteRecord,
    /// Each column's name as it stands in the object: a JSON string and a colon.
    names: Vec<Vec<u8>>,
    /// The columns that make the key.
    key_columns: Vec<usize>,
    separator: Vec<u8>,
    is_done: bool,
}

impl<R: Read> CsvRows<R> {
    /// Reads the first line. It is an error if it lacks a key column, or has a column twice.
    pub(crate) fn new(input: R, key: &[String], separator: &str) -> Result<Self, Failure> {
        let mut reader = ReaderBuilder::new().from_reader(input);
        let header = reader.headers().map_err(|error| Failure::Input(format!("line 1: {error}")))?.clone();
        let columns: Vec<&str> = header.iter().collect();
        for (i, column) in columns.iter().enumerate() {
            if columns[..i].contains(column) {
                return Err(Failure::Input(format!("line 1: the column `{column}` is there twice")));
            }
        }
        let key_columns = key
            .iter()
            .map(|name| {
                columns.iter().position(|column| column == name).ok_or_else(|| {
                    Failure::Usage(format!("there is no column `{name}`; there are: {}", columns.join(", ")))
                })
            })
            .collect::<Result<_, _>>()?;
        let names = columns
            .iter()
            .map(|column| {
                let mut name = Vec::new();
                push_json_string(&mut name, column);
                name.push(b':');
                name
            })
            .collect();
        let separator = separator.as_bytes().to_vec();
        Ok(CsvRows { reader, record: ByteRecord::new(), names, key_columns, separator, is_done: false })
    }

    fn row(&self) -> Result<LoadRow, BadRow> {
        let line = self.record.position().map_or(0, csv::Position::line);
        let mut value = Vec::with_capacity(self.record.as_slice().len() * 2);
        for (i, (name, field)) in self.names.iter().zip(&self.record).enumerate() {
            let text = std::str::from_utf8(field)
                .map_err(|_| BadRow::Malformed { line, message: format!("field {} is not UTF-8", i + 1) })?;
            value.push(if i == 0 { b'{' } else { b',' });
            value.extend_from_slice(name);
            if is_json_number(text) {
                value.extend_from_slice(field);
            } else {
                push_json_string(&mut value, text);
            }
        }
        value.push(b'}');
        let parts: Vec<&[u8]> = self.key_columns.iter().map(|&column| &self.record[column]).collect();
        checked_row(line, parts.join(self.separator.as_slice()), value)
    }
}

impl<R: Read> Iterator for CsvRows<R> {
    type Item = Result<LoadRow, BadRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => Some(self.row()),
            Ok(false) => None,
            Err(error) => Some(Err(match error.kind() {
                ErrorKind::UnequalLengths { pos, expected_len, len } => BadRow::Malformed {
                    line: pos.as_ref().map_or(0, csv::Position::line),
                    message: format!("the row has {len} fields, the first line has {expected_len}"),
                },
                _ => {
                    self.is_done = true;
                    let line = self.reader.position().line();
                    BadRow::Unreadable(format!("cannot read on after line {line}: {error}"))
                }
            })),
        }
    }
}

fn push_json_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("a string goes into a vector");
}

/// Whether the text is a number as JSON writes numbers: no leading zeros, no plus sign, no bare point.
fn is_json_number(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(input: &[u8]) -> Vec<String> {
        let rows = CsvRows::new(input, &["b".to_string(), "a".to_string()], "/").unwrap();
        rows.map(|row| match row {
            Ok(row) => format!("{}={}", row.key.escape_ascii(), String::from_utf8(row.value).unwrap()),
            Err(BadRow::Malformed { line, message }) => format!("line {line}: {message}"),
            Err(BadRow::Unreadable(message)) => message,
        })
        .collect()
    }

    #[test]
    fn fields_become_an_object_with_columns_in_order() {
        let rows = read(b"a,b,\"c \"\"d\"\"\"\n1,x,-2.50e7\n007,\"y,\nz\",\n");
        assert_eq!(
            rows,
            [r#"x/1={"a":1,"b":"x","c \"d\"":-2.50e7}"#, r#"y,\nz/007={"a":"007","b":"y,\nz","c \"d\"":""}"#]
        );
    }

    #[test]
    fn a_malformed_row_is_named_by_its_line_and_the_next_is_read() {
        let rows = read(b"a,b\n1,2\n3\n\"4\n\",5,6\n7,\xff\n8,9\n");
        assert_eq!(
            rows,
            [
                r#"2/1={"a":1,"b":2}"#,
                "line 3: the row has 1 fields, the first line has 2",
                "line 4: the row has 3 fields, the first line has 2",
                "line 6: field 2 is not UTF-8",
                r#"9/8={"a":8,"b":9}"#,
            ]
        );
    }

    #[test]
    fn a_header_without_a_key_column_is_refused() {
        let key = ["zip".to_string()];
        let error = |input: &'static [u8]| match CsvRows::new(input, &key, "/") {
            Err(Failure::Usage(message) | Failure::Input(message)) => message,
            _ => panic!("accepted"),
        };
        assert_eq!(error(b"a,b\n"), "there is no column `zip`; there are: a, b");
        assert_eq!(error(b""), "there is no column `zip`; there are: ");
        assert_eq!(error(b"zip,a,zip\n"), "line 1: the column `zip` is there twice");
    }

    #[test]
    fn numbers_are_what_json_calls_numbers() {
        for number in
            ["0", "-0", "10", "1.5", "0.25", "1e5", "-1.5E-07", "1e+3", "123456789012345678901234567890"]
        {
            assert!(is_json_number(number), "{number}");
            assert!(serde_json::from_str::<serde_json::Value>(number).is_ok(), "{number}");
        }
        for text in ["", "-", "00", "01", "1.", ".5", "+1", "1e", "1e+", "NaN", "0x1", " 1", "1 ", "1,0", "٣"]
        {
            assert!(!is_json_number(text), "{text}");
        }
    }
}
