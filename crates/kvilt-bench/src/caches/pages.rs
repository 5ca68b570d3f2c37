//! `Pages`: the page cache, by recency. A get needs the page of its row, or the two on which the row lies.

use super::lists::Lists;

const THERE: usize = 0;
/// Pages that were read once of late and not kept.
const READ_ONCE: usize = 1;

/// Which pages that are read stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// All of them.
    All,
    /// Those that are read a second time while as many others as there is room for are read once: the first
    /// read goes past the page cache.
    SecondRead,
}

/// Pages in memory.
pub(super) struct Pages {
    lists: Lists,
    pages_max: usize,
    admission: Admission,
}

impl Pages {
    pub(super) fn new(pages: usize, pages_max: usize, admission: Admission) -> Self {
        Pages { lists: Lists::new(2, pages), pages_max, admission }
    }

    /// Reads the pages of a row; whether all were there.
    pub(super) fn read(&mut self, (first, last): (u32, u32)) -> bool {
        let has_first = self.touch(first);
        let has_last = first == last || self.touch(last);
        has_first && has_last
    }

    /// Reads a page; whether it was there.
    pub(super) fn touch(&mut self, page: u32) -> bool {
        if self.lists.has(THERE, page) {
            self.lists.lead(THERE, page);
            return true;
        }
        let has_room = self.lists.len(THERE) < self.pages_max;
        let is_admitted = match self.admission {
            Admission::All => true,
            Admission::SecondRead => self.lists.has(READ_ONCE, page),
        };
        if has_room || is_admitted {
            self.lists.lead(THERE, page);
        } else {
            self.lists.lead(READ_ONCE, page);
        }
        self.resize(self.pages_max);
        false
    }

    /// Changes its room.
    pub(super) fn resize(&mut self, pages_max: usize) {
        self.pages_max = pages_max;
        for list in [THERE, READ_ONCE] {
            while self.lists.len(list) > pages_max {
                self.lists.pop(list);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(pages: &mut Pages, trace: &[u32]) -> Vec<bool> {
        trace.iter().map(|page| pages.touch(*page)).collect()
    }

    #[test]
    fn the_page_that_was_not_read_for_longest_goes() {
        let mut pages = Pages::new(4, 2, Admission::All);
        assert_eq!(hits(&mut pages, &[0, 1, 0, 2, 1, 0]), [false, false, true, false, false, false]);
        assert!(!pages.read((0, 3)) && pages.read((0, 3)), "a row on two pages needs both");
    }

    #[test]
    fn a_page_comes_in_when_it_is_read_a_second_time() {
        let mut pages = Pages::new(6, 2, Admission::SecondRead);
        // 0 and 1 find room; 2 is remembered, then comes in for 0, so 1 is still there.
        let found = hits(&mut pages, &[0, 1, 2, 2, 1, 2, 0]);
        assert_eq!(found, [false, false, false, false, true, true, false]);
        // 3 and 4 push what was remembered of 0 out.
        assert_eq!(hits(&mut pages, &[3, 4, 0, 0, 1, 2]), [false, false, false, false, false, true]);
    }
}
