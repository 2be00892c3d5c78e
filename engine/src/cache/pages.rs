//! Which pages are free, and which belong to a sequence.

/// Hands out pages; a page belongs to one table at a time.
#[derive(Debug)]
pub struct PageAllocator {
    free: Vec<u32>,
    total: usize,
}

/// The pages of one sequence, in order of their positions.
#[derive(Debug)]
#[must_use = "pages that are dropped are lost: give them back"]
pub struct PageTable {
    pages: Vec<u32>,
}

impl PageAllocator {
    /// All of `total` pages free.
    pub fn new(total: usize) -> Self {
        // The last page is handed out first, so the list is in falling order.
        Self { free: (0..total as u32).rev().collect(), total }
    }

    /// Pages there are.
    pub const fn total(&self) -> usize {
        self.total
    }

    /// Pages nobody has.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Takes `count` pages, all or none.
    pub fn take(&mut self, count: usize) -> Option<PageTable> {
        let rest = self.free.len().checked_sub(count)?;
        let mut pages = self.free.split_off(rest);
        pages.reverse();
        Some(PageTable { pages })
    }

    /// Takes a sequence's pages back.
    pub fn give_back(&mut self, table: PageTable) {
        self.free.extend(table.pages.into_iter().rev());
        debug_assert!(self.free.len() <= self.total);
    }
}

impl PageTable {
    /// Page numbers in order of positions.
    pub fn pages(&self) -> &[u32] {
        &self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_page_is_handed_out_twice_and_none_is_lost(total in 0_usize..40, wishes in prop::collection::vec((0_usize..12, any::<bool>()), 0..60)) {
            let mut allocator = PageAllocator::new(total);
            let mut held: Vec<PageTable> = Vec::new();
            for (count, is_return) in wishes {
                if is_return && !held.is_empty() {
                    let table = held.swap_remove(count % held.len());
                    allocator.give_back(table);
                } else {
                    let before = allocator.free();
                    match allocator.take(count) {
                        Some(table) => {
                            prop_assert_eq!(table.pages().len(), count);
                            held.push(table);
                        }
                        None => prop_assert!(count > before && allocator.free() == before),
                    }
                }
                let mut all: Vec<u32> = held.iter().flat_map(|table| table.pages().to_vec()).collect();
                all.extend(&allocator.free);
                all.sort_unstable();
                prop_assert_eq!(all, (0..total as u32).collect::<Vec<_>>());
            }
        }
    }
}
