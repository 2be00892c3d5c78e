//! Tensors on their way to and from a child: raw files in a folder that the harness owns and removes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use memra_contract::{Tensor, TensorSet};
use tempfile::TempDir;

use super::ProcessFault;
use super::protocol::{OutputEntry, TensorEntry};

/// The inputs of a problem as files, and folders for outputs. Removed when dropped.
#[derive(Debug)]
pub struct TensorFolder {
    folder: TempDir,
    entries: Vec<TensorEntry>,
    outputs: AtomicUsize,
}

impl TensorFolder {
    /// Writes inputs into a new folder below `scratch`.
    ///
    /// # Errors
    /// The system's error when a file cannot be written.
    pub fn write(scratch: &Path, inputs: &TensorSet) -> std::io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("memra-lab-").tempdir_in(scratch)?;
        // A child may have another working folder.
        let root = std::path::absolute(folder.path())?;
        let mut entries = Vec::new();
        for (index, tensor) in inputs.iter().enumerate() {
            let path = root.join(format!("{index}.bin"));
            std::fs::write(&path, &tensor.bytes)?;
            let (name, dtype, shape) = (tensor.name.clone(), tensor.dtype.name(), tensor.shape.clone());
            entries.push(TensorEntry { name, dtype, shape, path });
        }
        Ok(Self { folder, entries, outputs: AtomicUsize::new(0) })
    }

    pub(super) fn entries(&self) -> &[TensorEntry] {
        &self.entries
    }

    /// A new, empty folder for outputs.
    pub(super) fn output_folder(&self) -> std::io::Result<PathBuf> {
        let number = self.outputs.fetch_add(1, Ordering::Relaxed) + 1;
        let folder = std::path::absolute(self.folder.path())?.join(format!("out-{number}"));
        std::fs::create_dir(&folder)?;
        Ok(folder)
    }
}

/// Reads the outputs a child wrote, in the form of `wanted`.
pub(super) fn read_outputs(
    folder: &Path,
    entries: &[OutputEntry],
    wanted: &TensorSet,
) -> Result<TensorSet, ProcessFault> {
    let refuse = |output: &str, why: String| ProcessFault::Output { output: output.to_owned(), why };
    if let Some(extra) = entries.iter().find(|entry| wanted.get(&entry.name).is_none()) {
        return Err(refuse(&extra.name, "the contract has no such output".to_owned()));
    }
    let mut outputs = Vec::new();
    for wanted in wanted.iter() {
        let name = wanted.name.as_str();
        let mut named = entries.iter().filter(|entry| entry.name == name);
        let (Some(entry), None) = (named.next(), named.next()) else {
            return Err(refuse(name, "it must be listed once".to_owned()));
        };
        if entry.dtype != wanted.dtype.name() {
            return Err(refuse(name, format!("is {}, and {} is needed", entry.dtype, wanted.dtype)));
        }
        if !is_file_name(&entry.file) {
            return Err(refuse(name, "its file is not a name inside the folder that was given".to_owned()));
        }
        let path = folder.join(&entry.file);
        let found = std::fs::metadata(&path).map_err(|error| refuse(name, format!("its file: {error}")))?;
        if !found.is_file() || found.len() != wanted.bytes.len() as u64 {
            let why = format!("its file holds {} bytes, and {} are needed", found.len(), wanted.bytes.len());
            return Err(refuse(name, why));
        }
        let bytes = std::fs::read(&path).map_err(|error| refuse(name, format!("its file: {error}")))?;
        if bytes.len() != wanted.bytes.len() {
            return Err(refuse(name, "its file changed while it was read".to_owned()));
        }
        outputs.push(Tensor { name: name.to_owned(), dtype: wanted.dtype, shape: wanted.shape.clone(), bytes });
    }
    Ok(TensorSet::new(outputs))
}

fn is_file_name(text: &str) -> bool {
    let mut parts = Path::new(text).components();
    matches!((parts.next(), parts.next()), (Some(std::path::Component::Normal(name)), None) if name == text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_become_files_and_the_folder_goes() {
        let scratch = tempfile::tempdir().unwrap();
        let inputs = TensorSet::new(vec![Tensor::f32("x", &[1, 2], &[1.0, 2.0]), Tensor::i8("q", &[3], &[1, 2, 3])]);
        let folder = TensorFolder::write(scratch.path(), &inputs).unwrap();
        assert_eq!(std::fs::read(&folder.entries()[1].path).unwrap(), [1, 2, 3]);
        assert_eq!((folder.entries()[0].dtype, folder.entries()[0].shape.as_slice()), ("f32", [1, 2].as_slice()));
        assert!(folder.entries()[0].path.is_absolute());
        assert_ne!(folder.output_folder().unwrap(), folder.output_folder().unwrap());
        drop(folder);
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
        assert!(TensorFolder::write(&scratch.path().join("none"), &inputs).is_err());
    }

    #[test]
    fn outputs_are_held_to_the_form_of_the_contract() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = TensorSet::new(vec![Tensor::i8("out", &[3], &[0; 3])]);
        std::fs::write(folder.path().join("o"), [1, 2, 3]).unwrap();
        std::fs::write(folder.path().join("short"), [1]).unwrap();
        let entry = |name: &str, dtype: &str, file: &str| OutputEntry {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            file: file.to_owned(),
        };
        let outputs = read_outputs(folder.path(), &[entry("out", "i8", "o")], &wanted).unwrap();
        assert_eq!(outputs.get("out").unwrap().to_i8(), [1, 2, 3]);
        for (entries, needle) in [
            (vec![], "listed once"),
            (vec![entry("out", "i8", "o"), entry("out", "i8", "o")], "listed once"),
            (vec![entry("out", "i8", "o"), entry("more", "i8", "o")], "`more`"),
            (vec![entry("out", "f32", "o")], "i8 is needed"),
            (vec![entry("out", "i8", "short")], "holds 1 bytes, and 3"),
            (vec![entry("out", "i8", "gone")], "its file: "),
            (vec![entry("out", "i8", "../o")], "not a name inside"),
            (vec![entry("out", "i8", "/o")], "not a name inside"),
            (vec![entry("out", "i8", "..")], "not a name inside"),
            (vec![entry("out", "i8", "")], "not a name inside"),
        ] {
            let error = read_outputs(folder.path(), &entries, &wanted).unwrap_err().to_string();
            assert!(error.contains(needle), "{error}");
        }
    }
}
