//! The form of a block: orders, slots and void quads that belong together.

use crate::record::Block;
use crate::stats::{ArmLabel, QuadOrder, SplitMix64, StatsError, balanced_orders};

/// The step of [`SplitMix64`].
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Reasons a quad may be void for.
const VOID_REASONS: [&str; 4] = ["steal", "foreign", "clock", "throttle"];

/// One quad of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quad {
    /// Order of the arms.
    pub order: QuadOrder,
    /// Elapsed time of the four slots in the order they ran, in nanoseconds.
    pub elapsed_ns: [u64; 4],
    /// Whether the quad does not count.
    pub is_void: bool,
    /// The arm a void is blamed on.
    pub blamed: Option<ArmLabel>,
}

/// A block whose parts do not belong together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} {message}")]
pub struct BlockFault {
    /// Field within the block.
    pub field: &'static str,
    /// What does not fit.
    pub message: String,
}

/// The seed of the orders of one block of a cell: draw number `block + 1` of [`SplitMix64`] seeded with the cell's
/// seed.
///
/// Block 0 is the A/B block, block `j + 1` is A/A block `j`, so the orders of the A/B block do not depend on how many
/// A/A blocks there are.
pub fn block_seed(cell_seed: u64, block: u32) -> u64 {
    SplitMix64::new(cell_seed.wrapping_add(STEP.wrapping_mul(u64::from(block)))).next_u64()
}

/// The quad orders of one block of a cell, as a schedule runs them: [`balanced_orders`] of [`block_seed`].
///
/// # Errors
///
/// [`StatsError::TooManyQuads`].
pub fn block_orders(cell_seed: u64, block: u32, quads: usize) -> Result<Vec<QuadOrder>, StatsError> {
    balanced_orders(quads, block_seed(cell_seed, block))
}

/// Orders as a record holds them: `A` for ABBA, `B` for BAAB.
pub fn order_text(orders: &[QuadOrder]) -> String {
    let letter = |order: &QuadOrder| match order {
        QuadOrder::Abba => 'A',
        QuadOrder::Baab => 'B',
    };
    orders.iter().map(letter).collect()
}

/// The quads of a block.
///
/// # Errors
///
/// [`BlockFault`] names the field that does not fit the others: an order that is neither `A` nor `B`, not four slots
/// or not one observation a quad, and void quads that do not exist, stand twice or out of order, or have a reason or an
/// arm that is none.
pub fn block_quads(block: &Block) -> Result<Vec<Quad>, BlockFault> {
    let mut orders = Vec::new();
    for (index, letter) in block.order.chars().enumerate() {
        orders.push(match letter {
            'A' => QuadOrder::Abba,
            'B' => QuadOrder::Baab,
            other => {
                return Err(fault("order", format!("has `{}` for quad {index}, not A or B", other.escape_default())));
            }
        });
    }
    let quads = orders.len();
    for (field, count, expected) in [
        ("slots.elapsed_ns", block.slots.elapsed_ns.len(), quads * 4),
        ("slots.gap_ns", block.slots.gap_ns.len(), quads * 4),
        ("observed", block.observed.len(), quads),
    ] {
        if count != expected {
            return Err(fault(field, format!("has {count} entries, {quads} quads need {expected}")));
        }
    }
    let (slots, _) = block.slots.elapsed_ns.as_chunks::<4>();
    let mut parsed: Vec<Quad> = (orders.into_iter().zip(slots))
        .map(|(order, &elapsed_ns)| Quad { order, elapsed_ns, is_void: false, blamed: None })
        .collect();
    let mut last = None;
    for void in &block.void {
        let index = void.quad;
        if last >= Some(index) {
            return Err(fault("void", format!("names quad {index} twice or out of order")));
        }
        last = Some(index);
        if !VOID_REASONS.contains(&void.reason.as_str()) {
            let reason = void.reason.escape_default();
            return Err(fault("void", format!("gives quad {index} the reason `{reason}`, which is none")));
        }
        let blamed = match void.blamed.as_deref() {
            None => None,
            Some("A") => Some(ArmLabel::A),
            Some("B") => Some(ArmLabel::B),
            Some(other) => {
                let other = other.escape_default();
                return Err(fault("void", format!("blames quad {index} on `{other}`, which is no arm")));
            }
        };
        let Some(quad) = usize::try_from(index).ok().and_then(|index| parsed.get_mut(index)) else {
            return Err(fault("void", format!("names quad {index}, but there are {quads}")));
        };
        quad.is_void = true;
        quad.blamed = blamed;
    }
    Ok(parsed)
}

fn fault(field: &'static str, message: String) -> BlockFault {
    BlockFault { field, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{QuadObservation, Slots, VoidQuad};

    fn block() -> Block {
        let observed = QuadObservation::default();
        Block {
            order: "AB".to_owned(),
            slots: Slots { gap_ns: vec![0; 8], elapsed_ns: (1..=8).collect() },
            observed: vec![observed; 2],
            void: vec![VoidQuad { quad: 1, reason: "clock".to_owned(), blamed: Some("B".to_owned()) }],
        }
    }

    #[test]
    fn quads_are_read_in_order() {
        let first = Quad { order: QuadOrder::Abba, elapsed_ns: [1, 2, 3, 4], is_void: false, blamed: None };
        let second =
            Quad { order: QuadOrder::Baab, elapsed_ns: [5, 6, 7, 8], is_void: true, blamed: Some(ArmLabel::B) };
        assert_eq!(block_quads(&block()), Ok(vec![first, second]));
        assert_eq!(order_text(&[QuadOrder::Abba, QuadOrder::Baab]), "AB");
    }

    type Change = Box<dyn Fn(&mut Block)>;

    #[test]
    fn parts_that_do_not_belong_together_are_named() {
        let void = |quad: u32, reason: &str, blamed: Option<&str>| VoidQuad {
            quad,
            reason: reason.to_owned(),
            blamed: blamed.map(str::to_owned),
        };
        let cases: Vec<(Change, &str)> = vec![
            (Box::new(|b| b.order = "AC".to_owned()), "order has `C` for quad 1"),
            (Box::new(|b| b.order = "A".to_owned()), "slots.elapsed_ns has 8 entries, 1 quads need 4"),
            (Box::new(|b| b.slots.gap_ns.truncate(7)), "slots.gap_ns has 7 entries, 2 quads need 8"),
            (Box::new(|b| b.observed.clear()), "observed has 0 entries, 2 quads need 2"),
            (Box::new(move |b| b.void = vec![void(2, "steal", None)]), "void names quad 2, but there are 2"),
            (Box::new(move |b| b.void = vec![void(0, "mood", None)]), "void gives quad 0 the reason `mood`"),
            (Box::new(move |b| b.void = vec![void(0, "steal", Some("C"))]), "void blames quad 0 on `C`"),
            (
                Box::new(move |b| b.void = vec![void(1, "steal", None), void(1, "steal", None)]),
                "void names quad 1 twice or out of order",
            ),
        ];
        for (change, message) in cases {
            let mut changed = block();
            change(&mut changed);
            let error = block_quads(&changed).unwrap_err().to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn block_seeds_are_draws_of_the_cell_seed() {
        for cell_seed in [0, 7, u64::MAX] {
            let mut random = SplitMix64::new(cell_seed);
            for block in 0..5 {
                assert_eq!(block_seed(cell_seed, block), random.next_u64());
            }
        }
        // The first draw of SplitMix64 from seed 0 is published with the algorithm.
        assert_eq!(block_seed(0, 0), 0xE220_A839_7B1D_CDAF);
        let orders = block_orders(3, 1, 8).unwrap();
        assert_eq!(order_text(&orders).matches('A').count(), 4);
    }
}
