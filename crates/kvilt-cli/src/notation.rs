//! How bytes are written: as they stand, escaped, in hexadecimal digits, in JSON.
//!
//! The escaped notation loses nothing: what is printed reads back (with `--escaped`) as the same bytes, and has
//! neither tabs nor line ends in it, so a row fits on a line.

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
    /// The bytes that `text` means.
    pub(crate) fn parse(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Notation::Plain => Ok(text.as_bytes().to_vec()),
            Notation::Escaped => unescape(text),
            Notation::Hex => from_hex(text),
        }
    }
}

/// Bytes as text: `\\`, `\n`, `\r`, `\t`, and `\xNN` for every byte that is not part of a printable character.
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

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        let mut chars = escaped.chars();
        let byte = match chars.next() {
            Some('\\') => b'\\',
            Some('n') => b'\n',
            Some('r') => b'\r',
            Some('t') => b'\t',
            Some('x') => {
                let digits = escaped.get(1..3).ok_or("`\\x` wants two hexadecimal digits behind it")?;
                chars = escaped[3..].chars();
                from_hex(digits)?[0]
            }
            Some(other) => return Err(format!("`\\{other}` means nothing; write `\\\\` for a backslash")),
            None => return Err("a single backslash at the end; write `\\\\` for a backslash".to_string()),
        };
        bytes.push(byte);
        rest = chars.as_str();
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digit = |byte: u8| {
        (byte as char)
            .to_digit(16)
            .ok_or_else(|| format!("`{text}` has other characters than hexadecimal digits"))
    };
    if !text.len().is_multiple_of(2) {
        return Err(format!("`{text}` has an odd number of digits; two make a byte"));
    }
    text.as_bytes().chunks(2).map(|pair| Ok((digit(pair[0])? * 16 + digit(pair[1])?) as u8)).collect()
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
            assert_eq!(Notation::Escaped.parse(&text).as_deref(), Ok(bytes), "{text}");
            assert!(text.chars().all(is_printable), "{text}");
            assert_eq!(Notation::Hex.parse(&to_hex(bytes)).as_deref(), Ok(bytes));
        }
        assert_eq!(escape("schlüssel".as_bytes()), "schlüssel");
        assert_eq!(escape(b"\xff\\"), "\\xff\\\\");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["\\q", "\\", "\\x", "\\x1", "\\xgg", "\\xé"] {
            assert!(Notation::Escaped.parse(text).is_err(), "{text}");
        }
        for text in ["1", "zz", "é0"] {
            assert!(Notation::Hex.parse(text).is_err(), "{text}");
        }
        assert_eq!(Notation::Plain.parse("\\q").unwrap(), b"\\q");
    }

    #[test]
    fn json_shows_text_as_text_and_the_rest_as_digits() {
        assert_eq!(to_json(b"a\"b", false), json!("a\"b"));
        assert_eq!(to_json(b"\xff\0", false), json!({ "hex": "ff00" }));
        assert_eq!(to_json(b"a", true), json!("61"));
    }
}
