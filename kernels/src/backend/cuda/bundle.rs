//! A bundle: one file of many cubins, so that kernels run where there is no compiler.
//!
//! Little-endian. Header: magic (8 bytes), version (u32), entries (u32), sha256 of what was before and of the table (32). Table,
//! for each cubin: source key (32), architecture as text filled up with zeros (8), major and minor version of the compiler (u32
//! each), offset (u64), length (u64), sha256 of the cubin (32). The table is sorted by key and version; the cubins follow it in
//! the order of the table without gaps, and the file ends with the last.

use std::path::{Path, PathBuf};
use std::{fs, io};

use memra_contract::device::CudaArch;
use sha2::{Digest as _, Sha256};

use super::files::Beside;
use super::key::SourceKey;

const MAGIC: &[u8; 8] = b"memrabdl";
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 4 + 32;
/// Bytes of the header before its digest.
const BEFORE: usize = 16;
const ENTRY: usize = 32 + 8 + 4 + 4 + 8 + 8 + 32;

/// A bundle cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The system refused.
    #[error("bundle {file}: {source}")]
    File {
        /// The file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
    /// The bytes are no bundle.
    #[error("bundle {file}, byte {offset}: {field} {why}")]
    Malformed {
        /// The file.
        file: String,
        /// Where the field begins.
        offset: usize,
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// One cubin on its way into a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// What it was made from.
    pub key: SourceKey,
    /// What it was made for.
    pub arch: CudaArch,
    /// Version of the compiler.
    pub nvrtc: (u32, u32),
    /// Machine code.
    pub cubin: Vec<u8>,
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleEntry {
    /// What the cubin was made from.
    pub key: SourceKey,
    /// What it was made for.
    pub arch: CudaArch,
    /// Version of the compiler.
    pub nvrtc: (u32, u32),
    offset: usize,
    length: usize,
    sha256: [u8; 32],
}

/// A bundle in memory. The table was checked when it was read; a cubin is checked when it is taken out.
#[derive(Debug, Clone)]
pub struct Bundle {
    name: String,
    bytes: Vec<u8>,
    entries: Vec<BundleEntry>,
}

impl Bundle {
    /// Reads a bundle.
    ///
    /// # Errors
    /// [`BundleError`] naming the file, and where it is malformed the byte and the field.
    pub fn open(path: &Path) -> Result<Self, BundleError> {
        let name = path.display().to_string();
        let refused = |source| BundleError::File { file: name.clone(), source };
        if !fs::metadata(path).map_err(refused)?.is_file() {
            return Err(refused(io::Error::new(io::ErrorKind::InvalidInput, "is no plain file")));
        }
        let bytes = fs::read(path).map_err(refused)?;
        Self::parse(&name, bytes)
    }

    /// Reads a bundle out of bytes.
    ///
    /// # Errors
    /// [`BundleError::Malformed`] naming the byte and the field.
    pub fn parse(name: &str, bytes: Vec<u8>) -> Result<Self, BundleError> {
        let fault = |offset, field, why: String| BundleError::Malformed { file: name.to_owned(), offset, field, why };
        let mut reader = Reader { bytes: &bytes, at: 0 };
        let short = |offset| fault(offset, "header", format!("needs {HEADER} bytes, the file has {}", bytes.len()));
        let magic = reader.take(8).ok_or_else(|| short(0))?;
        if magic != MAGIC {
            return Err(fault(0, "magic", "is not that of a bundle".to_owned()));
        }
        let version = reader.u32().ok_or_else(|| short(8))?;
        if version != VERSION {
            return Err(fault(8, "version", format!("is {version}; {VERSION} is read")));
        }
        let count = reader.u32().ok_or_else(|| short(12))? as usize;
        let digest = reader.take(32).ok_or_else(|| short(BEFORE))?;
        let table_bytes = count.checked_mul(ENTRY).filter(|length| *length <= bytes.len() - HEADER);
        let Some(table_bytes) = table_bytes else {
            return Err(fault(12, "number of entries", format!("is {count}, more than the file has room for")));
        };
        let table = &bytes[HEADER..HEADER + table_bytes];
        if digest != digest_of(&bytes[..BEFORE], table) {
            return Err(fault(BEFORE, "sha256", "is not that of the table".to_owned()));
        }
        // At most as many as the file itself has bytes for.
        let mut entries: Vec<BundleEntry> = Vec::with_capacity(count);
        let mut end = HEADER + table_bytes;
        for index in 0..count {
            let at = HEADER + index * ENTRY;
            let entry = reader.entry().map_err(|(field, why)| fault(at, field, why))?;
            if entries.last().is_some_and(|last| (last.key, last.nvrtc) >= (entry.key, entry.nvrtc)) {
                return Err(fault(at, "key", "does not come after the one before".to_owned()));
            }
            if entry.offset != end {
                return Err(fault(at, "offset", format!("is {}, not the end of what was before, {end}", entry.offset)));
            }
            end = end.checked_add(entry.length).filter(|end| *end <= bytes.len()).ok_or_else(|| {
                fault(at, "length", format!("is {}, and the file ends at {}", entry.length, bytes.len()))
            })?;
            entries.push(entry);
        }
        if end != bytes.len() {
            return Err(fault(end, "end", format!("is not that of the file, which has {} bytes", bytes.len())));
        }
        Ok(Self { name: name.to_owned(), bytes, entries })
    }

    /// The file, as it was opened.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table.
    pub fn entries(&self) -> &[BundleEntry] {
        &self.entries
    }

    /// The entry of a key, made by this version of the compiler; by the newest where none is said.
    pub fn find(&self, key: SourceKey, nvrtc: Option<(u32, u32)>) -> Option<&BundleEntry> {
        let begin = self.entries.partition_point(|entry| entry.key < key);
        let of_key = self.entries.get(begin..)?.iter().take_while(|entry| entry.key == key);
        of_key.filter(|entry| nvrtc.is_none_or(|version| version == entry.nvrtc)).last()
    }

    /// The cubin of an entry of this bundle.
    ///
    /// # Errors
    /// [`BundleError::Malformed`] where its bytes are not those that were put in.
    pub fn cubin(&self, entry: &BundleEntry) -> Result<&[u8], BundleError> {
        let end = entry.offset.saturating_add(entry.length);
        let bytes = self.bytes.get(entry.offset..end).filter(|bytes| Sha256::digest(bytes).as_slice() == entry.sha256);
        bytes.ok_or_else(|| BundleError::Malformed {
            file: self.name.clone(),
            offset: entry.offset,
            field: "cubin",
            why: "has another digest than the table says".to_owned(),
        })
    }
}

/// The bytes of a bundle. Of two cubins with equal key and version the first is taken.
pub fn pack(cubins: &[Packed]) -> Vec<u8> {
    let mut sorted: Vec<&Packed> = cubins.iter().collect();
    sorted.sort_by_key(|packed| (packed.key, packed.nvrtc));
    sorted.dedup_by_key(|packed| (packed.key, packed.nvrtc));
    let mut table = Vec::with_capacity(sorted.len() * ENTRY);
    let mut offset = HEADER + sorted.len() * ENTRY;
    for packed in &sorted {
        let mut arch = [0_u8; 8];
        for (to, from) in arch.iter_mut().zip(packed.arch.name().bytes()) {
            *to = from;
        }
        table.extend_from_slice(&packed.key.0);
        table.extend_from_slice(&arch);
        table.extend_from_slice(&packed.nvrtc.0.to_le_bytes());
        table.extend_from_slice(&packed.nvrtc.1.to_le_bytes());
        table.extend_from_slice(&(offset as u64).to_le_bytes());
        table.extend_from_slice(&(packed.cubin.len() as u64).to_le_bytes());
        table.extend_from_slice(&Sha256::digest(&packed.cubin));
        offset += packed.cubin.len();
    }
    let mut bytes = Vec::with_capacity(offset);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(sorted.len() as u32).to_le_bytes());
    let digest = digest_of(&bytes, &table);
    bytes.extend_from_slice(&digest);
    bytes.extend_from_slice(&table);
    for packed in sorted {
        bytes.extend_from_slice(&packed.cubin);
    }
    bytes
}

/// Writes a bundle; the file appears whole.
///
/// # Errors
/// [`BundleError::File`] naming the file.
pub fn save(path: &Path, cubins: &[Packed]) -> Result<(), BundleError> {
    let target = if path.is_absolute() { path.to_owned() } else { PathBuf::from(".").join(path) };
    Beside::write(&target, &pack(cubins))
        .and_then(|beside| beside.place(&target))
        .map_err(|source| BundleError::File { file: path.display().to_string(), source })
}

/// The digest of a header and a table.
pub(crate) fn digest_of(before: &[u8], table: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(table);
    hash.finalize().into()
}

/// The bytes with the digest that their table should have, so that what comes behind it can be fuzzed.
pub(crate) fn with_digest(bytes: &[u8]) -> Option<Vec<u8>> {
    let count = u32::from_le_bytes(bytes.get(12..16)?.try_into().ok()?) as usize;
    let end = HEADER.checked_add(count.checked_mul(ENTRY)?)?;
    let digest = digest_of(bytes.get(..BEFORE)?, bytes.get(HEADER..end)?);
    let mut bytes = bytes.to_vec();
    bytes[BEFORE..HEADER].copy_from_slice(&digest);
    Some(bytes)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(length)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn size(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.array()?)).ok()
    }

    fn entry(&mut self) -> Result<BundleEntry, (&'static str, String)> {
        let short = |field| (field, "does not fit".to_owned());
        let key = SourceKey(self.array().ok_or_else(|| short("key"))?);
        let name: [u8; 8] = self.array().ok_or_else(|| short("architecture"))?;
        let text = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
        let arch = CudaArch::from_name(&text).ok_or_else(|| ("architecture", format!("`{text}` is not known")))?;
        let nvrtc = self.u32().zip(self.u32()).ok_or_else(|| short("compiler version"))?;
        let offset = self.size().ok_or_else(|| short("offset"))?;
        let length = self.size().ok_or_else(|| short("length"))?;
        let sha256 = self.array().ok_or_else(|| short("sha256"))?;
        Ok(BundleEntry { key, arch, nvrtc, offset, length, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use proptest::prelude::*;

    fn packed(key: u8, nvrtc: (u32, u32), arch: CudaArch, cubin: &[u8]) -> Packed {
        Packed { key: SourceKey([key; 32]), arch, nvrtc, cubin: cubin.to_vec() }
    }

    fn three() -> Vec<Packed> {
        vec![
            packed(7, (13, 1), CudaArch::Sm90a, b"newer"),
            packed(7, (13, 0), CudaArch::Sm90a, b"older"),
            packed(3, (13, 0), CudaArch::Sm120a, b""),
        ]
    }

    #[test]
    fn what_was_packed_is_found() {
        let scratch = Scratch::new();
        let file = scratch.path().join("a.cubins");
        save(&file, &three()).unwrap();
        let bundle = Bundle::open(&file).unwrap();
        let cubin = |key, version| {
            bundle.find(SourceKey([key; 32]), version).map(|entry| (entry.nvrtc, bundle.cubin(entry).unwrap()))
        };
        assert_eq!(cubin(7, None), Some(((13, 1), &b"newer"[..])));
        assert_eq!(cubin(7, Some((13, 0))), Some(((13, 0), &b"older"[..])));
        assert_eq!(cubin(7, Some((12, 9))), None);
        assert_eq!(cubin(3, None), Some(((13, 0), &b""[..])));
        assert_eq!(cubin(9, None), None);
        assert_eq!(bundle.entries().len(), 3);
        assert!(Bundle::open(scratch.path()).unwrap_err().to_string().contains("no plain file"));
        assert!(Bundle::open(&scratch.path().join("none")).is_err());
        assert!(save(&scratch.path().join("none/a"), &three()).is_err());
    }

    #[test]
    fn the_order_of_packing_does_not_show_and_an_empty_bundle_is_one() {
        let mut turned = three();
        turned.reverse();
        assert_eq!(pack(&three()), pack(&turned));
        assert_eq!(Bundle::parse("empty", pack(&[])).unwrap().entries(), []);
    }

    #[test]
    fn faults_name_the_byte_and_the_field() {
        let whole = pack(&three());
        let said = |edit: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = whole.clone();
            edit(&mut bytes);
            let bytes = with_digest(&bytes).unwrap_or(bytes);
            Bundle::parse("a.cubins", bytes).unwrap_err().to_string()
        };
        let set = |at: usize, value: &'static [u8]| {
            move |bytes: &mut Vec<u8>| bytes[at..at + value.len()].copy_from_slice(value)
        };
        assert!(said(&set(0, b"M")).contains("byte 0: magic"));
        assert!(said(&set(8, &[9])).contains("version is 9"));
        assert!(said(&set(12, &[0xff; 4])).contains("more than the file has room for"));
        assert!(said(&set(HEADER + 32, b"sm_10\0\0\0")).contains("`sm_10` is not known"));
        assert!(said(&set(HEADER + 48, &[0xff; 8])).contains("offset"));
        assert!(said(&set(HEADER + ENTRY + 56, &[0xff; 8])).contains("length"));
        assert!(said(&set(HEADER, &[0xff; 32])).contains("key does not come after"));
        assert!(said(&|bytes| bytes.push(0)).contains("end is not that of the file"));
        assert!(Bundle::parse("a.cubins", whole[..20].to_vec()).unwrap_err().to_string().contains("header"));
        let mut bytes = whole.clone();
        bytes[HEADER] ^= 1;
        assert!(Bundle::parse("a", bytes).unwrap_err().to_string().contains("sha256 is not that of the table"));
    }

    proptest! {
        #[test]
        fn damage_never_gives_another_cubin(at in any::<usize>(), bit in 0..8, is_signed in any::<bool>()) {
            let original = three();
            let mut bytes = pack(&original);
            let at = at % bytes.len();
            bytes[at] ^= 1_u8 << bit;
            if is_signed && at < HEADER + 3 * ENTRY {
                bytes = with_digest(&bytes).unwrap_or(bytes);
            }
            if let Ok(bundle) = Bundle::parse("flipped", bytes) {
                for entry in bundle.entries() {
                    if let Ok(cubin) = bundle.cubin(entry) {
                        prop_assert!(original.iter().any(|packed| packed.cubin == cubin));
                    }
                }
            }
        }

        #[test]
        fn a_part_is_refused(cut in any::<usize>()) {
            let bytes = pack(&three());
            prop_assert!(Bundle::parse("cut", bytes[..cut % bytes.len()].to_vec()).is_err());
        }

        #[test]
        fn any_bytes_are_read(tail in proptest::collection::vec(any::<u8>(), 0..400), count in 0_u32..4) {
            crate::fuzzing::cubin_bundle(&tail);
            let head = [&MAGIC[..], &VERSION.to_le_bytes(), &count.to_le_bytes(), &[0; 32]].concat();
            crate::fuzzing::cubin_bundle(&[head, tail].concat());
        }

        #[test]
        fn every_bundle_is_read_as_it_was_packed(
            cubins in proptest::collection::vec((any::<[u8; 32]>(), 0_usize..6, any::<(u32, u32)>(),
                proptest::collection::vec(any::<u8>(), 0..50)), 0..6)
        ) {
            let cubins: Vec<_> = cubins.into_iter().map(|(key, arch, nvrtc, cubin)| {
                Packed { key: SourceKey(key), arch: CudaArch::ALL[arch], nvrtc, cubin }
            }).collect();
            let bundle = Bundle::parse("packed", pack(&cubins)).unwrap();
            for packed in &cubins {
                let entry = bundle.find(packed.key, Some(packed.nvrtc)).unwrap();
                prop_assert_eq!(bundle.cubin(entry).unwrap(), packed.cubin.as_slice());
                prop_assert_eq!(entry.arch, packed.arch);
            }
        }
    }
}
