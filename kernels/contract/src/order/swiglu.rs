//! The gate of a feed-forward layer, alone and followed by quantisation.

use super::{OrderClass, QUANT_BLOCK, exp, quantise_block};

/// A gated product, element by element.
pub const SWIGLU: OrderClass = OrderClass {
    id: "swiglu",
    text: "e = exp(-gate) by the shared exponential, s = gate / (1 + e), y = s * up; every operation rounds by itself",
};

/// [`SWIGLU`], then [`super::QUANTISE_BLOCK32`].
pub const SWIGLU_QUANTISE_BLOCK32: OrderClass = OrderClass {
    id: "swiglu_quantise_block32",
    text: "swiglu, element by element, then quantise_block32 of its f32 values",
};

/// [`SWIGLU`] for one element.
pub fn swiglu(gate: f32, up: f32) -> f32 {
    let e = exp(-gate);
    (gate / (1.0 + e)) * up
}

/// [`SWIGLU_QUANTISE_BLOCK32`] for one block.
pub fn swiglu_quantise_block(gate: &[f32; QUANT_BLOCK], up: &[f32; QUANT_BLOCK]) -> ([i8; QUANT_BLOCK], f32, i16) {
    quantise_block(&std::array::from_fn(|i| swiglu(gate[i], up[i])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_open_and_close() {
        assert_eq!(swiglu(0.0, 3.0), 0.0);
        assert_eq!(swiglu(100.0, 2.0), 200.0);
        assert!(swiglu(-100.0, 2.0).abs() < 1e-34);
        assert!((swiglu(1.0, 1.0) - 0.731_058_6).abs() < 1e-6);
    }
}
