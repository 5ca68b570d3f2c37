//! `Lists`: numbered things in lists that are linked both ways, each thing in one list or in none. Every
//! policy is built of them: the front is where things come in, the back is where they go.

/// No thing.
const NONE: u32 = u32::MAX;
/// No list.
const NOWHERE: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Ends {
    front: u32,
    back: u32,
    len: usize,
}

/// Some lists over the things `0..things`.
pub(super) struct Lists {
    /// Towards the front, and towards the back.
    links: Vec<(u32, u32)>,
    home: Vec<u8>,
    ends: Vec<Ends>,
}

impl Lists {
    /// Empty lists, as many as `lists` says.
    pub(super) fn new(lists: usize, things: usize) -> Self {
        Lists {
            links: vec![(NONE, NONE); things],
            home: vec![NOWHERE; things],
            ends: vec![Ends { front: NONE, back: NONE, len: 0 }; lists],
        }
    }

    /// Whether the thing is in this list.
    pub(super) fn has(&self, list: usize, thing: u32) -> bool {
        usize::from(self.home[thing as usize]) == list
    }

    /// Things in this list.
    pub(super) fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }

    /// The thing at the back.
    pub(super) fn back(&self, list: usize) -> Option<u32> {
        let back = self.ends[list].back;
        (back != NONE).then_some(back)
    }

    /// Puts it at the front of this list, wherever it is.
    pub(super) fn lead(&mut self, list: usize, thing: u32) {
        self.remove(thing);
        let ends = &mut self.ends[list];
        self.links[thing as usize] = (NONE, ends.front);
        match ends.front {
            NONE => ends.back = thing,
            second => self.links[second as usize].0 = thing,
        }
        ends.front = thing;
        ends.len += 1;
        self.home[thing as usize] = list as u8;
    }

    /// Takes the thing at the back out.
    pub(super) fn pop(&mut self, list: usize) -> Option<u32> {
        let back = self.back(list)?;
        self.remove(back);
        Some(back)
    }

    /// Takes it out of whichever list it is in.
    pub(super) fn remove(&mut self, thing: u32) {
        let home = self.home[thing as usize];
        if home == NOWHERE {
            return;
        }
        let (before, behind) = self.links[thing as usize];
        let ends = &mut self.ends[usize::from(home)];
        match before {
            NONE => ends.front = behind,
            before => self.links[before as usize].1 = behind,
        }
        match behind {
            NONE => ends.back = before,
            behind => self.links[behind as usize].0 = before,
        }
        ends.len -= 1;
        self.home[thing as usize] = NOWHERE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_leave_in_the_order_in_which_they_came_unless_they_are_moved() {
        let mut lists = Lists::new(2, 5);
        (0..4).for_each(|thing| lists.lead(0, thing));
        lists.lead(0, 1);
        lists.lead(1, 2);
        lists.remove(4);
        assert!(lists.has(1, 2) && !lists.has(0, 2) && !lists.has(0, 4));
        assert_eq!([lists.len(0), lists.len(1)], [3, 1]);
        assert_eq!(
            [lists.pop(0), lists.pop(0), lists.pop(0), lists.pop(0)],
            [Some(0), Some(3), Some(1), None]
        );
        assert_eq!([lists.pop(1), lists.back(1)], [Some(2), None]);
    }
}
