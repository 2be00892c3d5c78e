//! Bodies of the fuzz targets. The functions here panic where a reader breaks its promises; they are for fuzzing and tests.

use sha2::{Digest as _, Sha256};

use crate::backend::cuda::bundle::{Bundle, BundleError, Packed, pack, with_digest};
use crate::out_of_tree::ArmHeader;

/// Reads `bytes` as a bundle of cubins as they are, and again with the digest that their table should have.
///
/// # Panics
/// A fault is located outside the file; an entry is not found by its key; a cubin has not the digest of the table; what was read
/// is not what is packed anew.
pub fn cubin_bundle(bytes: &[u8]) {
    read(bytes);
    if let Some(signed) = with_digest(bytes) {
        read(&signed);
    }
}

fn read(bytes: &[u8]) {
    let bundle = match Bundle::parse("fuzz.cubins", bytes.to_vec()) {
        Ok(bundle) => bundle,
        Err(BundleError::Malformed { offset, field, .. }) => {
            assert!(offset <= bytes.len(), "the fault at byte {offset} lies past the end");
            assert!(!field.is_empty(), "the fault names no field");
            return;
        }
        Err(other) => panic!("parsing bytes gave another error than a malformed file: {other}"),
    };
    let mut packed = Vec::new();
    for entry in bundle.entries() {
        assert_eq!(bundle.find(entry.key, Some(entry.nvrtc)), Some(entry));
        assert!(bundle.find(entry.key, None).is_some_and(|newest| newest.nvrtc >= entry.nvrtc));
        let Ok(cubin) = bundle.cubin(entry) else { continue };
        let digest = Sha256::digest(cubin);
        assert!(bytes.windows(32).any(|window| window == digest.as_slice()), "the table has no such digest");
        packed.push(Packed { key: entry.key, arch: entry.arch, nvrtc: entry.nvrtc, cubin: cubin.to_vec() });
    }
    if packed.len() == bundle.entries().len() {
        assert_eq!(pack(&packed), bytes, "a bundle that was read is packed as it was");
    }
}

/// Reads `bytes` as a file that is an arm, and lays out a small problem of its contract with what its header says.
///
/// # Panics
/// An error does not name the file; a form that was given is one that no backend takes, or its buffers are not in proportion to
/// those of the problem.
pub fn arm_header(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let header = match ArmHeader::parse("fuzz.cu", &text) {
        Ok(header) => header,
        Err(error) => {
            assert!(error.to_string().starts_with("fuzz.cu"), "the error names no file: {error}");
            return;
        }
    };
    let contract = header.contract;
    for case in contract.cases().cases.iter().take(2) {
        let Ok(problem) = case.problem().and_then(|problem| contract.normalise(&problem)) else { continue };
        let Ok(inputs) = contract.inputs(&problem, &case.families[0], 1) else { continue };
        let Some(form) = header.form(&problem, &inputs, 132) else { continue };
        assert_eq!(form.fault(), None, "a form was given that does not fit together");
        let most = 8 * inputs.total_bytes() + (1 << 21);
        assert!(form.copy_bytes() <= most, "{} bytes rotate", form.copy_bytes());
    }
}

#[cfg(test)]
mod tests {
    use memra_contract::device::CudaArch;

    use super::*;
    use crate::backend::cuda::key::SourceKey;

    #[test]
    fn whole_and_damaged_bundles_keep_the_promises() {
        let cubin = |byte: u8| Packed {
            key: SourceKey([byte; 32]),
            arch: CudaArch::ALL[byte as usize % 6],
            nvrtc: (13, u32::from(byte)),
            cubin: vec![byte; byte as usize],
        };
        let whole = pack(&(0..9).map(cubin).collect::<Vec<_>>());
        cubin_bundle(&whole);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x81;
            cubin_bundle(&bytes);
        }
        for length in 0..whole.len() {
            cubin_bundle(&whole[..length]);
        }
    }
}
