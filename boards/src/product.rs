//! What the problem of a matrix product says, as far as boards need it.

use memra_contract::{BlockFormat, Problem};
use memra_ledger::record::CellKey;

/// Bytes that a stream comes in: a read ceiling of a weight has its bytes rounded up to this.
const STREAM_BYTES: u64 = 16 << 10;

/// A matrix product `[m, k] x [n, k]`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Product {
    /// Rows of the activation.
    pub(crate) m: u64,
    /// Formats of the weights, one after the other; equal neighbours stand once.
    pub(crate) format: String,
    /// Length of a row.
    pub(crate) k: u64,
    /// Columns of the output.
    pub(crate) n: u64,
    /// Type of the activation; empty where the problem does not say.
    pub(crate) activation: String,
    /// What happens to the product before it is stored; empty where the problem does not say.
    pub(crate) epilogue: String,
    /// Bytes of the stored blocks of the weights. Scales that lie beside a weight are not counted.
    pub(crate) weight_bytes: u64,
}

impl Product {
    /// The product of a cell; `None` where it is none, or its problem cannot be read.
    pub(crate) fn of(key: &CellKey) -> Option<Self> {
        if key.contract != "matmul" {
            return None;
        }
        let problem: Problem = key.problem.parse().ok()?;
        let size = |axis| problem.size(&key.contract, axis, 1..=u64::from(u32::MAX)).ok();
        let word = |axis| problem.get(axis).map_or_else(String::new, ToString::to_string);
        let (m, k) = (size("m")?, size("k")?);
        let (mut formats, mut n, mut weight_bytes) = (Vec::new(), 0_u64, 0_u64);
        for segment in word("seg").split('+') {
            let (format, rows) = segment.split_once(':')?;
            let (format, rows) = (BlockFormat::from_name(format)?, rows.parse::<u64>().ok()?);
            if !k.is_multiple_of(format.block_elems) {
                return None;
            }
            n = n.checked_add(rows)?;
            let bytes = (k / format.block_elems).checked_mul(format.block_bytes)?.checked_mul(rows)?;
            weight_bytes = weight_bytes.checked_add(bytes)?;
            formats.push(format.name);
        }
        formats.dedup();
        Some(Self { m, format: formats.join("+"), k, n, activation: word("act"), epilogue: word("epi"), weight_bytes })
    }

    /// Bytes of the read ceiling that belongs to it.
    pub(crate) fn ceiling_bytes(&self) -> Option<u64> {
        self.weight_bytes.checked_next_multiple_of(STREAM_BYTES)
    }
}

/// Bytes that a cell reads and does nothing else with; `None` for other cells.
pub(crate) fn read_ceiling(key: &CellKey) -> Option<u64> {
    if key.contract != "stream" {
        return None;
    }
    let problem: Problem = key.problem.parse().ok()?;
    let is_read = problem.get("op").is_some_and(|op| op.to_string() == "read");
    is_read.then(|| problem.size(&key.contract, "bytes", 1..=u64::MAX).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use memra_ledger::record::Inputs;

    fn key(contract: &str, problem: &str) -> CellKey {
        CellKey {
            contract: contract.to_owned(),
            revision: 1,
            problem: problem.to_owned(),
            inputs: Inputs { generator: String::new(), family: String::new(), seed: 1, weights: None },
            device_key: String::new(),
            cache: String::new(),
            host_mode: String::new(),
            clock: String::new(),
            threads: 1,
        }
    }

    #[test]
    fn products_say_their_weights() {
        let product = Product::of(&key("matmul", "act=q8,epi=none,k=4096,m=8,seg=q4_k:12288")).unwrap();
        assert_eq!((product.m, product.k, product.n, product.format.as_str()), (8, 4096, 12288, "q4_k"));
        assert_eq!((product.weight_bytes, product.ceiling_bytes()), (28_311_552, Some(28_311_552)));
        let product = Product::of(&key("matmul", "act=q8,epi=none,k=64,m=1,seg=nvfp4:3+nvfp4:1+q8_0:5")).unwrap();
        assert_eq!((product.n, product.format.as_str()), (9, "nvfp4+q8_0"));
        assert_eq!((product.weight_bytes, product.ceiling_bytes()), (4 * 36 + 5 * 68, Some(16_384)));
    }

    #[test]
    fn what_is_no_product_or_no_read_says_nothing() {
        for problem in [
            "",
            "m=1,k=64",
            "m=1,k=64,seg=q4_k:8",
            "m=1,k=64,seg=q9:8",
            "m=1,k=64,seg=q8_0:x",
            "m=1,k=64,seg=q8_0:18446744073709551615+q8_0:1",
        ] {
            assert_eq!(Product::of(&key("matmul", problem)), None, "{problem}");
        }
        assert_eq!(Product::of(&key("matvec", "m=1,k=64,seg=q8_0:8")), None);
        assert_eq!(read_ceiling(&key("stream", "bytes=32768,op=read,parts=2")), Some(32_768));
        assert_eq!(read_ceiling(&key("stream", "bytes=32768,op=copy,parts=2")), None);
        assert_eq!(read_ceiling(&key("matmul", "bytes=32768,op=read,parts=2")), None);
    }
}
