//! How bytes are written: as they stand, escaped, in hexadecimal digits, in JSON.
//!
//! The escaped notation loses nothing: what is printed reads back (with `--escaped`) as the same bytes, and
//! has neither tabs nor line ends in it, so a row fits on a line.

use std::ffi::OsStr;

use serde_json::{Value, json};

/// How bytes are written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// As they stand.
    Plain,
    /// With backslashes for what cannot be typed; see [`escape`].
    Escaped,
    /// Two hexadecimal digits a byte.
    Hex,
}

impl Notation {
    /// The bytes that `text` means. It need not be UTF-8.
    pub(crate) fn parse(self, text: &OsStr) -> Result<Vec<u8>, String> {
        // On Unix these are the bytes that the caller gave.
        let text = text.as_encoded_bytes();
        match self {
            Notation::Plain => Ok(text.to_vec()),
            Notation::Escaped => unescape(text),
            Notation::Hex => from_hex(text),
        }
    }
}

/// Bytes as text: `\\`, `\n`, `\r`, `\t`, and `\xNN` for every byte that is not part of a printable
/// character.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for piece in bytes.utf8_chunks() {
        for c in piece.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                c if is_printable(c) => text.push(c),
                c => push_hex_escapes(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        push_hex_escapes(&mut text, piece.invalid());
    }
    text
}

/// Not a control character, nor one of those that reorder or hide what stands around them.
fn is_printable(c: char) -> bool {
    !c.is_control()
        && !matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

fn push_hex_escapes(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str(&format!("\\x{byte:02x}"));
    }
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        bytes.extend_from_slice(&rest[..at]);
        let escaped = &rest[at + 1..];
        let (byte, len) = match escaped.first() {
            Some(b'\\') => (b'\\', 1),
            Some(b'n') => (b'\n', 1),
            Some(b'r') => (b'\r', 1),
            Some(b't') => (b'\t', 1),
            Some(b'x') => {
                let digits = escaped.get(1..3).ok_or("`\\x` wants two hexadecimal digits behind it")?;
                (from_hex(digits)?[0], 3)
            }
            Some(_) => {
                let other = String::from_utf8_lossy(escaped).chars().next().unwrap_or_default();
                return Err(format!("`\\{other}` means nothing; write `\\\\` for a backslash"));
            }
            None => return Err("a single backslash at the end; write `\\\\` for a backslash".to_string()),
        };
        bytes.push(byte);
        rest = &escaped[len..];
    }
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &[u8]) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| {
        (byte as char)
            .to_digit(16)
            .ok_or_else(|| format!("`{}` has other characters than hexadecimal digits", escape(text)))
    };
    if !text.len().is_multiple_of(2) {
        return Err(format!("`{}` has an odd number of digits; two make a byte", escape(text)));
    }
    text.chunks(2).map(|pair| Ok((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
}

/// Bytes in JSON: a string if they are UTF-8, else an object with their hexadecimal digits.
pub(crate) fn to_json(bytes: &[u8], as_hex: bool) -> Value {
    match std::str::from_utf8(bytes) {
        _ if as_hex => json!(to_hex(bytes)),
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": to_hex(bytes) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_reads_back_and_fits_on_a_line() {
        let samples: [&[u8]; 8] = [
            b"",
            b"EWR/UA/2013",
            b"a\tb\nc\rd\\e\0f\x7f",
            "schlüssel 🔑".as_bytes(),
            b"\xff\xfe half \xc3",
            "hidden\u{200b}\u{202e}\u{feff}".as_bytes(),
            "\u{85}".as_bytes(),
            &(0..=255).collect::<Vec<u8>>(),
        ];
        for bytes in samples {
            let text = escape(bytes);
            assert_eq!(Notation::Escaped.parse(text.as_ref()).as_deref(), Ok(bytes), "{text}");
            assert!(text.chars().all(is_printable), "{text}");
            assert_eq!(Notation::Hex.parse(to_hex(bytes).as_ref()).as_deref(), Ok(bytes));
        }
        assert_eq!(escape("schlüssel".as_bytes()), "schlüssel");
        assert_eq!(escape(b"\xff\\"), "\\xff\\\\");
    }

    #[test]
    fn what_is_not_utf_8_is_taken_as_it_stands() {
        use std::os::unix::ffi::OsStrExt;
        let text = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
        assert_eq!(Notation::Plain.parse(text(b"a\xff\\n")).unwrap(), b"a\xff\\n");
        assert_eq!(Notation::Escaped.parse(text(b"\xffa\\n\\x00\xfe")).unwrap(), b"\xffa\n\0\xfe");
        assert!(Notation::Hex.parse(text(b"f\xff")).unwrap_err().contains("`f\\xff`"));
        assert!(Notation::Escaped.parse(text(b"\\\xff")).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["\\q", "\\", "\\x", "\\x1", "\\xgg", "\\xé"] {
            assert!(Notation::Escaped.parse(text.as_ref()).is_err(), "{text}");
        }
        for text in ["1", "zz", "é0"] {
            assert!(Notation::Hex.parse(text.as_ref()).is_err(), "{text}");
        }
        assert_eq!(Notation::Plain.parse("\\q".as_ref()).unwrap(), b"\\q");
    }

    #[test]
    fn json_shows_text_as_text_and_the_rest_as_digits() {
        assert_eq!(to_json(b"a\"b", false), json!("a\"b"));
        assert_eq!(to_json(b"\xff\0", false), json!({ "hex": "ff00" }));
        assert_eq!(to_json(b"a", true), json!("61"));
    }
}
