//! Selections over numbers of rows: a short ladder, resolved once.

use memra_contract::{DeviceKey, Problem};

use super::{SelectError, Selection, Tables, select};
use crate::contract::Contract;

/// Numbers of rows a choice is made for; a launch takes the choice of the next one up.
pub const LADDER: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// One value for every number of rows up to a largest.
#[derive(Debug, Clone)]
pub struct ByRows<T> {
    /// Largest number of rows and the value up to it, rising.
    entries: Vec<(usize, T)>,
}

impl<T> ByRows<T> {
    /// The same value for every number of rows.
    pub fn always(value: T) -> Self {
        Self { entries: vec![(usize::MAX, value)] }
    }

    /// The value for `rows` rows; the last one where there are more than any entry is for.
    pub fn get(&self, rows: usize) -> &T {
        let last = self.entries.len() - 1;
        let place = self.entries.iter().position(|(most, _)| rows <= *most).unwrap_or(last);
        &self.entries[place].1
    }

    /// Largest number of rows and value of each entry, rising.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.entries.iter().map(|(most, value)| (*most, value))
    }

    /// Other values for the same numbers of rows.
    ///
    /// # Errors
    /// What `f` returns.
    pub fn try_map<U, E>(&self, mut f: impl FnMut(usize, &T) -> Result<U, E>) -> Result<ByRows<U>, E> {
        let entries =
            self.entries.iter().map(|(most, value)| Ok((*most, f(*most, value)?))).collect::<Result<_, E>>()?;
        Ok(ByRows { entries })
    }
}

/// Selects for every step of the ladder up to `most` rows; `problem` gives the problem of a number of rows.
///
/// # Errors
/// [`SelectError`] when a problem is wrong or nothing serves it.
pub fn by_rows(
    contract: &'static dyn Contract,
    problem: impl Fn(u64) -> Problem,
    key: DeviceKey,
    tables: &Tables,
    most: usize,
) -> Result<ByRows<Selection>, SelectError> {
    let mut entries = Vec::new();
    for rows in LADDER {
        entries.push((*rows as usize, select(contract, &problem(*rows), key, tables)?));
        if *rows as usize >= most {
            break;
        }
    }
    Ok(ByRows { entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_step_up_is_taken() {
        let table = ByRows { entries: vec![(1, 'a'), (8, 'b'), (64, 'c')] };
        let got: String = [1, 2, 8, 9, 64, 65].into_iter().map(|rows| *table.get(rows)).collect();
        assert_eq!(got, "abbccc");
        assert_eq!(*ByRows::always(7).get(123), 7);
    }
}
