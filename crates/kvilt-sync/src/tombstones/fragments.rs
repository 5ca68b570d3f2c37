//! Fragments: the line of all keys cut at the bounds of range tombstones, each piece with the versions of
//! those that lie over it.
//!
//! A tree in the order of keys, balanced by the hashes of its nodes' keys (a treap). A node stands for the
//! keys from its own to the next node's. What lies over a whole subtree is noted once, at its root, and goes
//! down only where a path is changed: so a range tombstone over a million others costs what one over none
//! costs, a few steps down the tree.
//!
//! Nodes are shared with the trees made before, and never changed once another tree has them.
//!
//! What is always true:
//! - Keys ascend from left to right, and no node's hash is above its parent's.
//! - Marks come newest first, each once; of those that nobody tells apart only the newest is kept, where it
//!   was possible to look.

use std::{cmp::Ordering, sync::Arc};

use kvilt_base::{KeyRange, Version, planted, steps::steps};

use super::bound::Bound;

/// A tree, or none: nothing lies over any key.
pub(super) type Tree = Option<Arc<Node>>;

/// Says whether a mark is needed below a newer one, given both: whether somebody reads between them.
pub(super) type IsNeeded<'a> = &'a dyn Fn(Version, Version) -> bool;

/// Versions of range tombstones that lie over the same keys, newest first.
#[derive(Clone, Debug, Default)]
struct Marks(Option<Arc<[Version]>>);

/// A bound, and what lies over the keys behind it. What a get looks at comes first, and is together.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Node {
    start: Bound,
    left: Tree,
    right: Tree,
    /// Over the keys of the whole subtree. Newer than what is below it.
    all: Marks,
    /// Over those from `start` to the next node's.
    own: Marks,
    /// Of the whole subtree, `all` included.
    summary: Summary,
    hash: u32,
}

/// What is to be known of a subtree without a look into it.
#[derive(Clone, Copy, Debug)]
struct Summary {
    newest: Version,
    /// The lowest of what is the newest over some key.
    least: Version,
    oldest: Version,
    bytes: u64,
}

/// What is found at a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fragment<'t> {
    /// Its first key; none if nothing is before the first bound.
    pub(super) start: Option<&'t Bound>,
    /// The first key behind it.
    pub(super) end: Option<&'t Bound>,
}

impl Marks {
    fn one(version: Version) -> Self {
        Marks(Some(Arc::new([version])))
    }

    fn list(&self) -> &[Version] {
        self.0.as_deref().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn bytes(&self) -> u64 {
        // Most are one: it and the counts of who shares it.
        self.0.as_ref().map_or(0, |list| (size_of_val::<[Version]>(list) + 2 * size_of::<usize>()) as u64)
    }

    /// These and others, of which those go that are not needed.
    fn with(&self, others: &Marks, is_needed: IsNeeded<'_>) -> Marks {
        if others.is_empty() || self.is_empty() {
            return if self.is_empty() { others.clone() } else { self.clone() };
        }
        let mut all: Vec<Version> = [self.list(), others.list()].concat();
        steps(all.len());
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.dedup();
        let mut kept = all[0];
        let mut is_first = true;
        all.retain(|&mark| {
            let stays = std::mem::take(&mut is_first) || is_needed(mark, kept);
            if stays {
                kept = mark;
            }
            stays
        });
        Marks(Some(all.into()))
    }
}

impl Summary {
    /// Of no keys.
    const NONE: Summary =
        Summary { newest: Version::ZERO, least: Version::NEWEST, oldest: Version::NEWEST, bytes: 0 };

    /// Of these keys and others.
    fn beside(self, other: Summary) -> Summary {
        Summary {
            newest: self.newest.max(other.newest),
            least: self.least.min(other.least),
            oldest: self.oldest.min(other.oldest),
            bytes: self.bytes + other.bytes,
        }
    }

    /// Of the same keys, with marks over all of them.
    fn below(self, marks: &Marks) -> Summary {
        let newest = marks.list().first().copied().unwrap_or(Version::ZERO);
        let oldest = marks.list().last().copied().unwrap_or(Version::NEWEST);
        Summary {
            newest: self.newest.max(newest),
            least: self.least.max(newest),
            oldest: self.oldest.min(oldest),
            bytes: self.bytes + marks.bytes(),
        }
    }

    fn of(tree: &Tree) -> Summary {
        tree.as_ref().map_or(Summary::NONE, |node| node.summary)
    }
}

impl Node {
    fn new(start: Bound, own: Marks) -> Tree {
        let hash = start.hash();
        let hash = planted!(TombstonesInAList, hash => 0);
        let mut node =
            Node { start, left: None, right: None, all: Marks::default(), own, summary: Summary::NONE, hash };
        node.sum_up();
        Some(Arc::new(node))
    }

    fn sum_up(&mut self) {
        // With the counts of who shares it.
        let bytes = (size_of::<Node>() + 2 * size_of::<usize>()) as u64 + self.start.bytes();
        let own = Summary { least: Version::ZERO, bytes, ..Summary::NONE }.below(&self.own);
        let children = Summary::of(&self.left).beside(Summary::of(&self.right));
        self.summary = own.beside(children).below(&self.all);
    }

    /// Notes what lies over the whole subtree one level further down.
    fn hand_down(&mut self, is_needed: IsNeeded<'_>) {
        if self.all.is_empty() {
            return;
        }
        let all = std::mem::take(&mut self.all);
        self.own = all.with(&self.own, is_needed);
        for child in [&mut self.left, &mut self.right].into_iter().flatten() {
            let child = Arc::make_mut(child);
            child.all = all.with(&child.all, is_needed);
            child.sum_up();
        }
    }
}

/// Memory, in bytes.
pub(super) fn bytes(tree: &Tree) -> u64 {
    Summary::of(tree).bytes
}

/// Lays one more over `range`: what is not needed below it goes.
pub(super) fn push(tree: Tree, range: &KeyRange, version: Version, is_needed: IsNeeded<'_>) -> Tree {
    let (start, over_start) = bound_and_marks(&tree, &range.start, None, is_needed);
    let end = range.end.as_deref().map(|end| bound_and_marks(&tree, end, Some(&start), is_needed));
    let (before, from_start) = split(tree, &start, is_needed);
    let (inside, behind) = match &end {
        Some((end, _)) => split(from_start, end, is_needed),
        None => (from_start, None),
    };
    let has_start = first(&inside).is_some_and(|node| node.start == start);
    let inside = if has_start { inside } else { join(Node::new(start, over_start), inside, is_needed) };
    let inside = inside.map(|node| covered(node, version, is_needed));
    let behind = match end {
        Some((end, over_end)) if first(&behind).is_none_or(|node| node.start != end) => {
            join(Node::new(end, over_end), behind, is_needed)
        }
        _ => behind,
    };
    join(join(before, inside, is_needed), behind, is_needed)
}

/// A subtree with one more over all of it. If nobody tells its pieces apart any more, it is one piece again.
fn covered(mut node: Arc<Node>, version: Version, is_needed: IsNeeded<'_>) -> Arc<Node> {
    let there = node.summary;
    let one = Marks::one(version);
    let is_nothing_there = there.newest == Version::ZERO;
    let is_newest = there.newest <= version;
    if is_nothing_there || (is_newest && !is_needed(there.oldest, version)) {
        return Node::new(leftmost(&node).start.clone(), one).expect("a node");
    }
    let is_alike = there.least == there.newest;
    if is_alike && is_newest && (there.oldest == there.newest || !is_needed(there.oldest, there.newest)) {
        let marks = one.with(&Marks::one(there.newest), is_needed);
        return Node::new(leftmost(&node).start.clone(), marks).expect("a node");
    }
    let changed = Arc::make_mut(&mut node);
    if changed.left.is_none() && changed.right.is_none() {
        changed.hand_down(is_needed);
        changed.own = one.with(&changed.own, is_needed);
    } else {
        changed.all = one.with(&changed.all, is_needed);
    }
    changed.sum_up();
    node
}

/// What begins before `key`, and the rest.
fn split(tree: Tree, key: &Bound, is_needed: IsNeeded<'_>) -> (Tree, Tree) {
    let Some(mut node) = tree else { return (None, None) };
    steps(1);
    let changed = Arc::make_mut(&mut node);
    changed.hand_down(is_needed);
    if changed.start < *key {
        let (before, behind) = split(changed.right.take(), key, is_needed);
        changed.right = before;
        changed.sum_up();
        (Some(node), behind)
    } else {
        let (before, behind) = split(changed.left.take(), key, is_needed);
        changed.left = behind;
        changed.sum_up();
        (before, Some(node))
    }
}

/// One tree of two, of which one lies before the other.
fn join(before: Tree, behind: Tree, is_needed: IsNeeded<'_>) -> Tree {
    let (mut left, mut right) = match (before, behind) {
        (Some(left), Some(right)) => (left, right),
        (left, right) => return left.or(right),
    };
    steps(1);
    if left.hash >= right.hash {
        let changed = Arc::make_mut(&mut left);
        changed.hand_down(is_needed);
        changed.right = join(changed.right.take(), Some(right), is_needed);
        changed.sum_up();
        Some(left)
    } else {
        let changed = Arc::make_mut(&mut right);
        changed.hand_down(is_needed);
        changed.left = join(Some(left), changed.left.take(), is_needed);
        changed.sum_up();
        Some(right)
    }
}

fn first(tree: &Tree) -> Option<&Node> {
    tree.as_deref().map(leftmost)
}

fn leftmost(mut node: &Node) -> &Node {
    while let Some(left) = &node.left {
        steps(1);
        node = left;
    }
    node
}

/// Walks to the node whose keys `key` is among; says which that is, and whether anything lies over whole
/// subtrees on the way.
fn descend<'t>(tree: &'t Tree, key: &[u8], fragment: &mut Fragment<'t>) -> (Option<&'t Node>, bool) {
    let (mut found, mut at) = (None, tree);
    let (mut has_over_all, mut has_over_found) = (false, false);
    while let Some(node) = at {
        steps(1);
        has_over_all |= !node.all.is_empty();
        if node.start.cmp_key(key) == Ordering::Greater {
            fragment.end = Some(&node.start);
            at = &node.left;
        } else {
            fragment.start = Some(&node.start);
            found = Some(&**node);
            has_over_found = has_over_all;
            at = &node.right;
        }
    }
    (found, has_over_found)
}

/// Gives `each` the marks over `key`, in groups that come newest first each, until it breaks the search off
/// with an answer.
pub(super) fn find_at<'t, A>(
    tree: &'t Tree,
    key: &[u8],
    mut each: impl FnMut(&'t [Version]) -> Option<A>,
) -> (Fragment<'t>, Option<A>) {
    let mut fragment = Fragment::default();
    let (found, has_over_all) = descend(tree, key, &mut fragment);
    let Some(found) = found else { return (fragment, None) };
    let mut answer = each(found.own.list());
    let mut at = tree;
    while let Some(node) = at.as_ref().filter(|_| answer.is_none() && has_over_all) {
        steps(1);
        answer = each(node.all.list());
        at = match node.start.cmp(&found.start) {
            Ordering::Less => &node.right,
            Ordering::Equal => &None,
            Ordering::Greater => &node.left,
        };
    }
    (fragment, answer)
}

/// A key as the bound of a piece, which shares a beginning with one beside it, and what lies over the key.
fn bound_and_marks(
    tree: &Tree,
    key: &[u8],
    other: Option<&Bound>,
    is_needed: IsNeeded<'_>,
) -> (Bound, Marks) {
    let mut all = Marks::default();
    let (beside, _) = find_at(tree, key, |marks| {
        if !marks.is_empty() {
            all = all.with(&Marks(Some(marks.into())), is_needed);
        }
        None::<()>
    });
    (Bound::new(key, beside.start.into_iter().chain(beside.end).chain(other)), all)
}

/// Gives `each` every piece that has a mark newer than `since`, in order, with these marks, newest first.
pub(super) fn for_each(tree: &Tree, since: Version, each: &mut dyn FnMut(KeyRange, &[Version])) {
    let mut walk = Walk { since, open: None, each };
    walk.visit(tree, &mut Vec::new());
    walk.end_at(None);
}

struct Walk<'w> {
    since: Version,
    /// Where a piece begins whose end is still to be found, and its marks.
    open: Option<(Bound, Vec<Version>)>,
    each: &'w mut dyn FnMut(KeyRange, &[Version]),
}

impl Walk<'_> {
    /// `over` lies over all of the tree.
    fn visit(&mut self, tree: &Tree, over: &mut Vec<Version>) {
        let Some(node) = tree else { return };
        if node.summary.newest <= self.since && over.is_empty() {
            self.end_at(Some(leftmost(node)));
            return;
        }
        let above = over.len();
        over.extend(node.all.list().iter().filter(|mark| **mark > self.since));
        self.visit(&node.left, over);
        self.end_at(Some(node));
        let mut marks = over.clone();
        marks.extend(node.own.list().iter().filter(|mark| **mark > self.since));
        if !marks.is_empty() {
            marks.sort_unstable_by(|a, b| b.cmp(a));
            marks.dedup();
            self.open = Some((node.start.clone(), marks));
        }
        self.visit(&node.right, over);
        over.truncate(above);
    }

    fn end_at(&mut self, next: Option<&Node>) {
        if let Some((start, marks)) = self.open.take() {
            let range = KeyRange { start: start.to_vec(), end: next.map(|node| node.start.to_vec()) };
            (self.each)(range, &marks);
        }
    }
}
