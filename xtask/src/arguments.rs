//! `Arguments`: the words behind a command, taken apart: `--name VALUE` and bare flags.

use anyhow::{Context as _, Result, bail};

/// Options given as `--name VALUE`, and flags given as `--name`; nothing else is accepted.
#[derive(Debug)]
pub(crate) struct Arguments<'a> {
    options: Vec<(&'a str, &'a str)>,
    flags: Vec<&'a str>,
}

impl<'a> Arguments<'a> {
    /// Takes `words` apart; fails at a word that is neither one of `options` with its value nor one of
    /// `flags`.
    pub(crate) fn of(words: &[&'a str], options: &[&str], flags: &[&str]) -> Result<Self> {
        let mut arguments = Arguments { options: Vec::new(), flags: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if options.contains(word) {
                let value = words.next().with_context(|| format!("{word} needs a value"))?;
                arguments.options.push((word, value));
            } else if flags.contains(word) {
                arguments.flags.push(word);
            } else {
                bail!("unknown word `{word}`; options here: {} {}", options.join(" "), flags.join(" "));
            }
        }
        Ok(arguments)
    }

    /// The value of an option, if it was given.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        self.options.iter().rev().find(|(option, _)| *option == name).map(|(_, value)| *value)
    }

    /// The value of an option as a number, or `default`.
    pub(crate) fn number(&self, name: &str, default: u64) -> Result<u64> {
        let parse = |text: &str| text.parse().with_context(|| format!("{name} {text}: not a number"));
        self.text(name).map_or(Ok(default), parse)
    }

    /// Whether a flag was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.flags.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_flags_and_everything_else_are_told_apart() {
        let arguments = Arguments::of(&["--seconds", "5", "--json"], &["--seconds"], &["--json"]).unwrap();
        assert_eq!(arguments.number("--seconds", 20).unwrap(), 5);
        assert_eq!(arguments.number("--runs", 7).unwrap(), 7);
        assert!(arguments.has("--json") && arguments.text("--target").is_none());
        assert!(Arguments::of(&["--what"], &["--seconds"], &[]).is_err());
        assert!(Arguments::of(&["--seconds"], &["--seconds"], &[]).is_err());
        assert!(
            Arguments::of(&["--seconds", "x"], &["--seconds"], &[]).unwrap().number("--seconds", 1).is_err()
        );
    }
}
