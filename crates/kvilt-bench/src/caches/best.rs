//! What no policy can beat: memory spent by somebody who knows how popular each row is, or even which get
//! comes next.

use std::{collections::BinaryHeap, ops::Range};

use super::shape::{PAGE_BYTES, ROW_BYTES, Shape};

/// The part of the gets that miss if the most popular rows that fit are there, with nothing beside key and
/// value: when gets are drawn independently, no cache of as much memory misses less on average.
pub(super) fn best_rows(popularity: &[f64], bytes: u64) -> f64 {
    let is_there = most(popularity, (bytes / ROW_BYTES) as usize);
    missed(popularity, |row| is_there[row])
}

/// The part of the gets that miss if `row_bytes` have the most popular rows, and the rest of memory the
/// pages that are worth most beside them.
pub(super) fn best_rows_and_pages(popularity: &[f64], shape: &Shape, row_bytes: u64, page_bytes: u64) -> f64 {
    let has_row = most(popularity, (row_bytes / ROW_BYTES) as usize);
    let mut worth = vec![0.0; shape.pages()];
    for (row, share) in popularity.iter().enumerate().filter(|(row, _)| !has_row[*row]) {
        let (first, last) = shape.pages_at(row as u32);
        worth[first as usize] += share / 2.0;
        worth[last as usize] += share / 2.0;
    }
    let has_page = most(&worth, (page_bytes / PAGE_BYTES) as usize);
    missed(popularity, |row| {
        let (first, last) = shape.pages_at(row as u32);
        has_row[row] || (has_page[first as usize] && has_page[last as usize])
    })
}

/// Marks the `count` things of the greatest worth.
fn most(worth: &[f64], count: usize) -> Vec<bool> {
    let mut by_worth: Vec<usize> = (0..worth.len()).collect();
    by_worth.sort_unstable_by(|a, b| worth[*b].total_cmp(&worth[*a]));
    let mut is_there = vec![false; worth.len()];
    by_worth.iter().take(count).for_each(|thing| is_there[*thing] = true);
    is_there
}

fn missed(popularity: &[f64], is_there: impl Fn(usize) -> bool) -> f64 {
    popularity
        .iter()
        .enumerate()
        .filter(|(row, _)| !is_there(*row))
        .map(|(_, share)| share)
        .fold(0.0, |a, b| a + b)
}

/// Belady's optimum that may leave a row out: how many of the measured gets of `trace` miss with room for
/// `rows_max` rows. What is asked for again last goes, or does not come in.
pub(super) fn belady(trace: &[u32], rows: u32, rows_max: usize, measured: Range<usize>) -> u64 {
    let never = trace.len() as u32;
    let mut next = vec![never; trace.len()];
    let mut seen = vec![never; rows as usize];
    for (at, row) in trace.iter().enumerate().rev() {
        next[at] = std::mem::replace(&mut seen[*row as usize], at as u32);
    }
    // When each cached row is asked for next; what the heap says of a row is outdated if it is not that.
    let mut cached: Vec<Option<u32>> = vec![None; rows as usize];
    let mut by_next: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut count, mut missed) = (0, 0);
    for (at, row) in trace.iter().enumerate().take(measured.end) {
        let is_there = cached[*row as usize].is_some();
        missed += u64::from(!is_there && at >= measured.start);
        if !is_there && count == rows_max {
            while by_next.peek().is_some_and(|(when, last)| cached[*last as usize] != Some(*when)) {
                by_next.pop();
            }
            match by_next.peek() {
                Some((when, last)) if *when > next[at] => cached[*last as usize] = None,
                _ => continue,
            }
        } else if !is_there {
            count += 1;
        }
        cached[*row as usize] = Some(next[at]);
        by_next.push((next[at], *row));
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caches::shape::Order;

    #[test]
    fn the_optimum_of_a_short_trace_is_as_by_hand() {
        // Two rows fit. 0 and 1 come in; 2 is asked for again later than both, so it is left out; 0 and 1
        // hit; 2 comes in for 0, which is not asked for again; 1 and 2 hit.
        let trace = [0, 1, 2, 0, 1, 2, 1, 2];
        assert_eq!(belady(&trace, 3, 2, 0..8), 4);
        assert_eq!(belady(&trace, 3, 2, 3..8), 1, "what is missed before is not counted");
        assert_eq!(belady(&trace, 3, 3, 0..8), 3, "each is missed once");
        assert_eq!(belady(&trace, 3, 0, 0..8), 8);
    }

    #[test]
    fn the_most_popular_rows_are_there() {
        let popularity = [0.1, 0.4, 0.2, 0.3];
        assert!((best_rows(&popularity, 2 * ROW_BYTES) - 0.3).abs() < 1e-12);
        assert!((best_rows(&popularity, 2 * ROW_BYTES - 1) - 0.6).abs() < 1e-12);
    }

    #[test]
    fn pages_have_what_rows_leave() {
        // A page has rows 0 to 3 and a part of row 4, the next the rest of it and 5 and more.
        let shape = Shape::new(20_000, Order::Keys);
        let mut popularity = vec![0.0; 20_000];
        popularity[..6].copy_from_slice(&[0.1, 0.1, 0.1, 0.2, 0.1, 0.4]);
        let missed =
            |rows, pages| best_rows_and_pages(&popularity, &shape, rows * ROW_BYTES, pages * PAGE_BYTES);
        assert!((missed(0, 1) - 0.5).abs() < 1e-12, "rows 0 to 3 are on one page");
        assert!((missed(1, 1) - 0.1).abs() < 1e-12, "row 5, and the page of 0 to 3");
        assert!(missed(0, 2) < 1e-12);
    }
}
