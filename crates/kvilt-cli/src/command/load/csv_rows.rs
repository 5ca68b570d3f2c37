//! `CsvRows`: CSV records as rows of the store.

use std::{collections::HashMap, io::Read};

use super::{
    BadRow, LoadRow, Reason, UTF_16, checked_row,
    csv_records::{BadRecord, CsvRecords, FIELDS_MAX, Record},
    is_utf_16, unreadable,
};
use crate::{failure::Failure, notation::escape};

/// So many columns are named in an error.
const COLUMNS_SHOWN_MAX: usize = 20;

/// The rows of a CSV file whose first line names the columns.
pub(crate) struct CsvRows<R> {
    records: CsvRecords<R>,
    record: Record,
    /// Each column's name as it stands in the object: a JSON string and a colon.
    names: Vec<Vec<u8>>,
    /// The columns that make the key.
    key_columns: Vec<usize>,
    separator: Vec<u8>,
    record_bytes_max: usize,
    is_done: bool,
}

impl<R: Read> CsvRows<R> {
    /// Reads the first line. It is an error if it lacks a key column, or has a column twice.
    pub(crate) fn new(
        input: R,
        key: &[String],
        separator: &[u8],
        record_bytes_max: usize,
    ) -> Result<Self, Failure> {
        let mut records = CsvRecords::new(input, record_bytes_max);
        let mut record = Record::default();
        let columns = header(&mut records, &mut record, record_bytes_max)?;
        let key_columns = key
            .iter()
            .map(|name| {
                columns.iter().position(|column| column == name).ok_or_else(|| no_column(name, &columns))
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
        let separator = separator.to_vec();
        Ok(CsvRows { records, record, names, key_columns, separator, record_bytes_max, is_done: false })
    }

    fn row(&self) -> Result<LoadRow, BadRow> {
        let (record, line) = (&self.record, self.record.line);
        if record.len() != self.names.len() {
            let fields = if record.len() == 1 { "field" } else { "fields" };
            let message =
                format!("the row has {} {fields}, the first line has {}", record.len(), self.names.len());
            return Err(BadRow::Malformed { line, reason: Reason::FieldCount, message });
        }
        let mut value = Vec::with_capacity(record.bytes() * 2);
        for (i, (name, field)) in self.names.iter().zip(record.fields()).enumerate() {
            let text = std::str::from_utf8(field).map_err(|_| BadRow::Malformed {
                line,
                reason: Reason::NotUtf8,
                message: format!("field {} is not UTF-8", i + 1),
            })?;
            value.push(if i == 0 { b'{' } else { b',' });
            value.extend_from_slice(name);
            if is_json_number(text) {
                value.extend_from_slice(field);
            } else {
                push_json_string(&mut value, text);
            }
        }
        value.push(b'}');
        let parts: Vec<&[u8]> = self.key_columns.iter().map(|&column| record.field(column)).collect();
        checked_row(line, parts.join(self.separator.as_slice()), value)
    }
}

impl<R: Read> Iterator for CsvRows<R> {
    type Item = Result<LoadRow, BadRow>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        match self.records.read(&mut self.record) {
            Ok(true) => Some(self.row()),
            Ok(false) => None,
            Err(bad) => {
                let bad = bad_row(bad, self.record_bytes_max);
                self.is_done = matches!(bad, BadRow::Unreadable(_));
                Some(Err(bad))
            }
        }
    }
}

/// The names of the columns.
fn header<R: Read>(
    records: &mut CsvRecords<R>,
    record: &mut Record,
    record_bytes_max: usize,
) -> Result<Vec<String>, Failure> {
    let bad = |bad| match bad_row(bad, record_bytes_max) {
        BadRow::Malformed { line, message, .. } => Failure::Input(format!("line {line}: {message}")),
        BadRow::Unreadable(message) => Failure::Input(message),
    };
    let first = records.begin().map_err(|error| bad(BadRecord::Unreadable { line: 0, error }))?;
    if is_utf_16(first) {
        return Err(Failure::Input(UTF_16.to_string()));
    }
    if !records.read(record).map_err(bad)? {
        let message = "the input is empty; the first line of a CSV file names the columns";
        return Err(Failure::Input(message.to_string()));
    }
    let line = record.line;
    if record.len() > FIELDS_MAX {
        let message =
            format!("line {line}: there are {} columns; up to {FIELDS_MAX} are allowed", record.len());
        return Err(Failure::Input(message));
    }
    let columns: Vec<String> = record
        .fields()
        .map(|field| String::from_utf8(field.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|_| Failure::Input(format!("line {line}: the names of the columns are not UTF-8")))?;
    let mut places = HashMap::new();
    for (i, column) in columns.iter().enumerate() {
        if let Some(first) = places.insert(column.as_str(), i + 1) {
            let (again, name) = (i + 1, escape(column.as_bytes()));
            let message = format!("line {line}: columns {first} and {again} have the same name, `{name}`");
            return Err(Failure::Input(message));
        }
    }
    Ok(columns)
}

fn no_column(name: &str, columns: &[String]) -> Failure {
    let in_quotes = |column: &String| format!("`{}`", escape(column.as_bytes()));
    let shown: Vec<String> = columns.iter().take(COLUMNS_SHOWN_MAX).map(in_quotes).collect();
    let (name, shown) = (escape(name.as_bytes()), shown.join(", "));
    let more = match columns.len().saturating_sub(COLUMNS_SHOWN_MAX) {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    Failure::Usage(format!("there is no column `{name}`; there are: {shown}{more}"))
}

/// A record that could not be read, in words.
fn bad_row(bad: BadRecord, record_bytes_max: usize) -> BadRow {
    let (line, reason, message) = match bad {
        BadRecord::QuoteOpen { line } => {
            (line, Reason::OpenQuote, "the quote that opens on this line is never closed".to_string())
        }
        BadRecord::QuoteTooLong { line } => (
            line,
            Reason::OpenQuote,
            format!(
                "the quote that opens on this line is not closed within {record_bytes_max} bytes of its record; \
                 --record-max raises the limit"
            ),
        ),
        BadRecord::QuoteMisplaced { line, closed_on } => (
            line,
            Reason::OpenQuote,
            format!(
                "the quote that opens on this line is closed on line {closed_on}, where no field ends; a quote \
                 inside of quotes is written twice"
            ),
        ),
        BadRecord::TooLong { line } => (
            line,
            Reason::LongRecord,
            format!(
                "the row that begins on this line has more than {record_bytes_max} bytes; --record-max raises \
                 the limit"
            ),
        ),
        BadRecord::Unreadable { line, error } => return unreadable(line, &error),
    };
    BadRow::Malformed { line, reason, message }
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
        let rows = CsvRows::new(input, &["b".to_string(), "a".to_string()], b"/", 1000).unwrap();
        rows.map(|row| match row {
            Ok(row) => format!("{}={}", row.key.escape_ascii(), String::from_utf8(row.value).unwrap()),
            Err(BadRow::Malformed { line, message, .. }) => format!("line {line}: {message}"),
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
                "line 3: the row has 1 field, the first line has 2",
                "line 4: the row has 3 fields, the first line has 2",
                "line 6: field 2 is not UTF-8",
                r#"9/8={"a":8,"b":9}"#,
            ]
        );
    }

    #[test]
    fn a_header_without_a_key_column_is_refused() {
        let key = ["zip".to_string()];
        let error = |input: &'static [u8]| match CsvRows::new(input, &key, b"/", 1000) {
            Err(Failure::Usage(message) | Failure::Input(message)) => message,
            _ => panic!("accepted"),
        };
        assert_eq!(error(b"a,b\n"), "there is no column `zip`; there are: `a`, `b`");
        assert_eq!(error(b" zip,\n"), "there is no column `zip`; there are: ` zip`, ``");
        assert_eq!(error(b""), "the input is empty; the first line of a CSV file names the columns");
        assert_eq!(error(b"\xff\xfez\0i\0p\0"), "the input is UTF-16; convert it to UTF-8 first");
        assert_eq!(error(b"zip,\xff\n"), "line 1: the names of the columns are not UTF-8");
        assert!(error(b"\"zip\n1\n2\n").starts_with("line 1: the quote that opens on this line is never"));
        assert!(
            error(&[b'a'; 2000]).starts_with("line 1: the row that begins on this line has more than 1000")
        );
        assert_eq!(error(b"zip,a,zip\n"), "line 1: columns 1 and 3 have the same name, `zip`");
        assert_eq!(error(b"zip,,\n"), "line 1: columns 2 and 3 have the same name, ``");
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
