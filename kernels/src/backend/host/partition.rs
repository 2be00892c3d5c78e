//! One output buffer, handed to the tasks of a launch in parts that do not overlap.
//!
//! The buffer is a row-major matrix; a part is a range of its columns. The ranges are fixed and checked when the partition is
//! described, and each part can be taken once a launch, so the parts never overlap and the interface is safe.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Column ranges of a matrix, in order and without overlap.
#[derive(Debug)]
pub struct Partition {
    bounds: Vec<usize>,
    taken: Vec<AtomicBool>,
}

impl Partition {
    /// The ranges between consecutive bounds.
    ///
    /// # Panics
    /// When the bounds are fewer than two or fall.
    pub fn new(bounds: Vec<usize>) -> Self {
        assert!(bounds.len() >= 2 && bounds.is_sorted(), "bounds of a partition must rise: {bounds:?}");
        let taken = bounds.windows(2).map(|_| AtomicBool::new(true)).collect();
        Self { bounds, taken }
    }

    /// `columns` columns in about `parts` ranges, each a multiple of `unit` columns but the last.
    pub fn even(columns: usize, parts: usize, unit: usize) -> Self {
        let step = columns.div_ceil(parts.max(1)).next_multiple_of(unit.max(1)).max(1);
        let mut bounds: Vec<usize> = (0..columns).step_by(step).collect();
        bounds.push(columns);
        if bounds.len() == 1 {
            bounds.push(columns);
        }
        Self::new(bounds)
    }

    /// Number of ranges.
    pub fn parts(&self) -> usize {
        self.taken.len()
    }

    /// Lends a matrix of `height` rows for one launch.
    ///
    /// # Panics
    /// When the slice is not `height` rows of the partition's last bound.
    pub fn lend<'a, T>(&'a mut self, values: &'a mut [T], height: usize) -> Lent<'a, T> {
        let width = self.bounds[self.bounds.len() - 1];
        assert_eq!(values.len(), width * height, "a matrix of {height} rows of {width} is needed");
        for taken in &mut self.taken {
            *taken.get_mut() = false;
        }
        Lent { partition: self, start: values.as_mut_ptr(), height, width, values: PhantomData }
    }
}

/// A matrix lent to the tasks of a launch.
#[derive(Debug)]
pub struct Lent<'a, T> {
    partition: &'a Partition,
    start: *mut T,
    height: usize,
    width: usize,
    values: PhantomData<&'a mut [T]>,
}

#[expect(unsafe_code, reason = "tasks on other threads take disjoint parts of one buffer")]
// SAFETY: a shared `Lent` only gives out parts, and `take` gives each out once; parts do not overlap.
unsafe impl<T: Send> Sync for Lent<'_, T> {}

impl<T> Lent<'_, T> {
    /// Takes one part.
    ///
    /// # Panics
    /// When the part was taken before in this launch, or does not exist.
    pub fn take(&self, part: usize) -> Part<'_, T> {
        assert!(!self.partition.taken[part].swap(true, Ordering::Relaxed), "part {part} was taken twice in a launch");
        let (first, end) = (self.partition.bounds[part], self.partition.bounds[part + 1]);
        Part { start: self.start, height: self.height, width: self.width, first, end, values: PhantomData }
    }
}

/// The columns `first..end` of every row.
#[derive(Debug)]
pub struct Part<'a, T> {
    start: *mut T,
    height: usize,
    width: usize,
    first: usize,
    end: usize,
    values: PhantomData<&'a mut [T]>,
}

impl<T> Part<'_, T> {
    /// First column of the part in the whole matrix.
    pub const fn first(&self) -> usize {
        self.first
    }

    /// Number of columns.
    pub const fn columns(&self) -> usize {
        self.end - self.first
    }

    /// The part of one row.
    ///
    /// # Panics
    /// When there is no such row.
    #[expect(unsafe_code, reason = "the part's columns of a row, as a slice")]
    #[inline]
    pub fn row(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.height, "row {row} of {}", self.height);
        // SAFETY: `lend` checked that the matrix is height x width elements, `Partition::new` that the range lies within the
        // width, and `take` that no other part holds these columns; the borrow of `self` keeps this the only slice of the part.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.width + self.first), self.end - self.first) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn parts_cover_the_matrix_once() {
        for (columns, parts, unit) in [(10, 3, 4), (16, 4, 4), (1, 8, 16), (100, 1, 16), (33, 7, 1)] {
            let mut partition = Partition::even(columns, parts, unit);
            let mut values = vec![0_u8; columns * 3];
            let lent = partition.lend(&mut values, 3);
            for part in 0..lent.partition.parts() {
                let mut part = lent.take(part);
                for row in 0..3 {
                    part.row(row).iter_mut().for_each(|value| *value += 1);
                }
            }
            assert!(values.iter().all(|value| *value == 1));
        }
    }

    #[test]
    fn a_part_cannot_be_taken_twice_and_rows_are_checked() {
        let mut partition = Partition::new(vec![0, 2, 3]);
        let mut values = [0_u8; 6];
        let lent = partition.lend(&mut values, 2);
        let mut part = lent.take(1);
        assert_eq!((part.first(), part.columns()), (2, 1));
        assert!(catch_unwind(AssertUnwindSafe(|| lent.take(1).columns())).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| part.row(2).len())).is_err());
        assert!(catch_unwind(|| Partition::new(vec![0, 3, 2])).is_err());
    }
}
