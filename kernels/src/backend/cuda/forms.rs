//! The last large forms: an arm is laid out for its check, for its seat and for its twin's, and its weights are repacked once.

use std::sync::{Arc, Mutex, PoisonError};

use memra_contract::digest::Digest;
use memra_contract::{Problem, TensorSet};
use xxhash_rust::xxh3::Xxh3;

use crate::contract::{Contract, PrepareError, Variant};
use crate::form::DeviceForm;

/// Bytes from which on a form is kept: smaller ones are made quickly, and checks make many of them.
const LEAST_BYTES: usize = 1 << 20;

/// Bytes of all forms that are kept.
const MOST_BYTES: usize = 4 << 30;

/// Forms that are kept.
const MOST_FORMS: usize = 16;

/// What a form is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    contract: &'static str,
    variant: &'static str,
    source: Digest,
    problem: String,
    inputs: u128,
}

/// Forms, the least recently asked for first.
#[derive(Debug, Default)]
pub(super) struct Forms {
    kept: Mutex<Vec<(Key, Arc<DeviceForm>)>>,
}

impl Forms {
    /// The form of a variant for a problem with these inputs, made where it is not among the last.
    pub(super) fn get(
        &self,
        contract: &dyn Contract,
        variant: &Variant,
        problem: &Problem,
        inputs: &TensorSet,
    ) -> Result<Arc<DeviceForm>, PrepareError> {
        if input_bytes(inputs) < LEAST_BYTES {
            return contract.device_form(variant, problem, inputs).map(Arc::new);
        }
        let key = Key {
            contract: contract.info().id,
            variant: variant.name,
            source: variant.source_sha256(),
            problem: problem.to_string(),
            inputs: fingerprint(inputs),
        };
        // A poisoned lock only says that a form panicked; what stands in the list is whole.
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| *known == key) {
            let found = kept.remove(at);
            let form = Arc::clone(&found.1);
            kept.push(found);
            return Ok(form);
        }
        let form = contract.device_form(variant, problem, inputs).map(Arc::new)?;
        kept.push((key, Arc::clone(&form)));
        trim(&mut kept, MOST_FORMS, MOST_BYTES);
        Ok(form)
    }
}

fn input_bytes(inputs: &TensorSet) -> usize {
    inputs.iter().map(|tensor| tensor.bytes.len()).sum()
}

fn form_bytes(form: &DeviceForm) -> usize {
    form.fixed.iter().chain(&form.rotating).map(Vec::len).sum()
}

/// Drops the oldest until what is left is within both limits.
fn trim(kept: &mut Vec<(Key, Arc<DeviceForm>)>, forms: usize, bytes: usize) {
    let mut left = bytes;
    let newest = kept.iter().rev().take(forms).take_while(|(_, form)| {
        let fits = left.checked_sub(form_bytes(form));
        left = fits.unwrap_or_default();
        fits.is_some()
    });
    let keep = newest.count();
    kept.drain(..kept.len() - keep);
}

/// 128 bits of everything in the inputs, at the speed of memory. Inputs are seeded or come from files; nobody makes two with
/// one fingerprint by chance, and what a seat computes is held against what the check saw.
fn fingerprint(inputs: &TensorSet) -> u128 {
    let mut hash = Xxh3::new();
    for tensor in inputs.iter() {
        hash.update(format!("{} {} {:?} {}\n", tensor.name, tensor.dtype, tensor.shape, tensor.bytes.len()).as_bytes());
        hash.update(&tensor.bytes);
    }
    hash.digest128()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;
    use memra_contract::Tensor;
    use proptest::prelude::*;

    fn inputs(bytes: Vec<u8>) -> TensorSet {
        TensorSet::new(vec![Tensor::u8("weight", &[bytes.len()], bytes)])
    }

    proptest! {
        #[test]
        fn one_changed_byte_or_length_changes_the_fingerprint(
            bytes in proptest::collection::vec(any::<u8>(), 1..300), at in any::<usize>(), by in 1_u8..255,
        ) {
            let mut changed = bytes.clone();
            let at = at % bytes.len();
            changed[at] = changed[at].wrapping_add(by);
            let fingerprint_of = |bytes: &[u8]| fingerprint(&inputs(bytes.to_vec()));
            prop_assert_eq!(fingerprint_of(&bytes), fingerprint_of(&bytes));
            prop_assert_ne!(fingerprint_of(&bytes), fingerprint_of(&changed));
            changed.push(0);
            prop_assert_ne!(fingerprint_of(&changed[..bytes.len()]), fingerprint_of(&changed));
        }
    }

    #[test]
    fn names_and_shapes_are_part_of_the_fingerprint() {
        let of = |name: &str, shape: &[usize]| fingerprint(&TensorSet::new(vec![Tensor::u8(name, shape, vec![7; 64])]));
        assert_ne!(of("a", &[64]), of("b", &[64]));
        assert_ne!(of("a", &[64]), of("a", &[8, 8]));
        assert_ne!(fingerprint(&inputs(vec![1, 2])), fingerprint(&inputs(vec![2, 1])));
    }

    #[test]
    fn large_forms_are_made_once_and_small_ones_each_time() {
        let contract = registry::contract("matmul").unwrap();
        let variant = registry::variant(contract, "cuda_stored_q8_0").unwrap();
        let forms = Forms::default();
        for (n, is_kept) in [(8, false), (4096, true)] {
            let problem = contract.normalise(&format!("m=1,k=512,seg=q8_0:{n}").parse().unwrap()).unwrap();
            let inputs = contract.inputs(&problem, "normal", 1).unwrap();
            let others = contract.inputs(&problem, "normal", 2).unwrap();
            let first = forms.get(contract, variant, &problem, &inputs).unwrap();
            assert_eq!(Arc::ptr_eq(&first, &forms.get(contract, variant, &problem, &inputs).unwrap()), is_kept);
            assert_eq!(*first, contract.device_form(variant, &problem, &inputs).unwrap());
            assert_ne!(*first, *forms.get(contract, variant, &problem, &others).unwrap());
        }
        assert_eq!(forms.kept.lock().unwrap().len(), 2, "of two inputs");
    }

    #[test]
    fn the_oldest_go_first() {
        let entry = |inputs: u128, bytes: usize| {
            let key = Key {
                contract: "c",
                variant: "v",
                source: Digest::from_bytes(&[0; 32]),
                problem: String::new(),
                inputs,
            };
            (key, Arc::new(DeviceForm { rotating: vec![vec![0; bytes]], ..DeviceForm::default() }))
        };
        let left = |forms, bytes| {
            let mut kept = vec![entry(0, 10), entry(1, 20), entry(2, 30)];
            trim(&mut kept, forms, bytes);
            kept.iter().map(|(key, _)| key.inputs).collect::<Vec<_>>()
        };
        assert_eq!(left(4, 60), [0, 1, 2]);
        assert_eq!(left(2, 60), [1, 2]);
        assert_eq!(left(4, 59), [1, 2]);
        assert_eq!(left(4, 29), [] as [u128; 0]);
    }
}
