//! `Fence`: which lines of Markdown are inside of a fenced block.

const MARKS: [&str; 2] = ["```", "~~~"];

/// Takes a text line by line.
#[derive(Default)]
pub(super) struct Fence {
    /// What began the block, and alone can end it.
    mark: Option<&'static str>,
}

impl Fence {
    /// Takes the next line; whether it belongs to a block, whose first and last line do.
    pub(super) fn covers(&mut self, line: &str) -> bool {
        let found = MARKS.into_iter().find(|mark| line.trim_start().starts_with(mark));
        let before = self.mark;
        match before {
            None => self.mark = found,
            Some(_) if found == before => self.mark = None,
            Some(_) => {}
        }
        before.or(found).is_some()
    }

    /// Whether a block has begun and not ended.
    pub(super) fn is_open(&self) -> bool {
        self.mark.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_ends_with_the_mark_it_began_with() {
        let text = "a\n```text\nb\n~~~\n```\nc\n  ~~~\n```\n~~~\nd";
        let mut fence = Fence::default();
        let outside: Vec<&str> = text.lines().filter(|line| !fence.covers(line)).collect();
        assert_eq!(outside, ["a", "c", "d"]);
        assert!(!fence.is_open());
        assert!(fence.covers("~~~") && fence.is_open());
    }
}
