//! The tracked files of a checkout, read once.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Largest file whose text is read, in bytes. A longer one breaks the rule on weight anyway.
const LARGEST_TEXT_BYTES: u64 = 4 << 20;

/// Tracked files by path relative to the root, with `/` between folders.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, File>,
    /// Number of files that are neither tracked nor ignored. No rule sees them.
    pub(crate) untracked: usize,
}

/// One tracked file.
#[derive(Debug)]
pub(crate) struct File {
    /// Length in bytes.
    pub(crate) bytes: u64,
    /// The content of a regular file that is UTF-8 text.
    text: Option<String>,
}

impl Tree {
    /// Reads the checkout that holds `folder`. A tracked file that was removed from the disk is not part of the tree.
    ///
    /// # Errors
    ///
    /// Outside a git checkout, and when a file cannot be read.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let root = git(folder, &["rev-parse", "--show-toplevel"]).with_context(|| {
            format!("tidy looks at the files that git tracks, and {} is not in a git checkout", folder.display())
        })?;
        let root = PathBuf::from(text(root)?.trim_end_matches(['\n', '\r']));
        let mut files = BTreeMap::new();
        for path in paths(&git(&root, &["ls-files", "-z"])?)? {
            if let Some(file) = File::read(&root.join(&path)).with_context(|| format!("cannot read {path}"))? {
                files.insert(path, file);
            }
        }
        let untracked = paths(&git(&root, &["ls-files", "-z", "--others", "--exclude-standard"])?)?.len();
        Ok(Self { files, untracked })
    }

    /// A made-up tree.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |text: &str| File { bytes: text.len() as u64, text: Some(text.to_owned()) };
        Self { files: files.iter().map(|(path, text)| ((*path).to_owned(), file(text))).collect(), untracked: 0 }
    }

    /// Adds a file that has a size and no text.
    #[cfg(test)]
    pub(crate) fn with_size(mut self, path: &str, bytes: u64) -> Self {
        self.files.insert(path.to_owned(), File { bytes, text: None });
        self
    }

    /// All files, ordered by path.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// All files that hold text, ordered by path.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter_map(|(path, file)| file.text.as_deref().map(|text| (path, text)))
    }

    /// The Rust sources, ordered by path.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| extension(path) == Some("rs"))
    }

    /// The text of one file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Whether a file, or a folder that holds a file, has this path.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        let first_inside = self.files.range(folder.clone()..).next();
        path.is_empty()
            || self.files.contains_key(path)
            || first_inside.is_some_and(|(inside, _)| inside.starts_with(&folder))
    }

    /// Number of files.
    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }
}

impl File {
    fn read(path: &Path) -> Result<Option<Self>> {
        let metadata = match path.symlink_metadata() {
            Ok(metadata) => metadata,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Symbolic links and submodules have a place in the tree and no text of their own.
        let has_text = metadata.is_file() && metadata.len() <= LARGEST_TEXT_BYTES;
        let text = if has_text { String::from_utf8(std::fs::read(path)?).ok() } else { None };
        let bytes = if metadata.is_dir() { 0 } else { metadata.len() };
        Ok(Some(Self { bytes, text: text.filter(|text| !text.contains('\0')) }))
    }
}

/// The part of a file's name after its last dot. A name that starts with its only dot has none.
pub(crate) fn extension(path: &str) -> Option<&str> {
    name(path).rsplit_once('.').filter(|(stem, _)| !stem.is_empty()).map(|(_, extension)| extension)
}

/// The last part of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The folder of a path, empty at the root.
pub(crate) fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a folder of this name stands anywhere in the path.
pub(crate) fn is_below(path: &str, name: &str) -> bool {
    folder(path).split('/').any(|part| part == name)
}

/// Whether the file holds instructions: a source, a script or a manifest.
pub(crate) fn is_code(path: &str, text: &str) -> bool {
    match extension(path) {
        Some(extension) => matches!(extension, "rs" | "cu" | "cuh" | "py" | "sh" | "toml"),
        None => text.starts_with("#!"),
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = Command::new("git");
    // In a git hook these name a repository that need not be the one of the folder.
    for variable in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(variable);
    }
    let output = command.args(arguments).current_dir(folder).output().context("cannot run git")?;
    if !output.status.success() {
        bail!("git {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output.stdout)
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
        anyhow::anyhow!("a path is not UTF-8: {name}")
    })
}

fn paths(bytes: &[u8]) -> Result<Vec<String>> {
    bytes.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(|path| text(path.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_folders_are_held() {
        let tree = Tree::of(&[("a/b/c.md", ""), ("a-b", "")]);
        for path in ["", "a", "a/", "a/b", "a/b/c.md", "a-b"] {
            assert!(tree.holds(path), "{path}");
        }
        for path in ["b", "a/b/c", "a/c.md", "a-"] {
            assert!(!tree.holds(path), "{path}");
        }
    }

    #[test]
    fn parts_of_paths() {
        assert_eq!(
            (extension("a/b.tar.gz"), extension(".ci/run"), extension("a.b/.gitignore")),
            (Some("gz"), None, None)
        );
        assert_eq!((name("a/b.rs"), name("b"), folder("a/c/b.rs"), folder("b")), ("b.rs", "b", "a/c", ""));
        assert!(is_below("x/tests/a.rs", "tests") && is_below("tests/a.rs", "tests"));
        assert!(!is_below("x/tests", "tests") && !is_below("x/my-tests/a.rs", "tests"));
        assert!(is_code("a.rs", "") && is_code(".ci/run", "#!/bin/sh\n"));
        assert!(!is_code("README.md", "#!") && !is_code("LICENSE", "MIT"));
    }

    #[test]
    fn a_checkout_is_read_and_a_plain_folder_is_refused() {
        let folder = std::env::temp_dir().join(format!("memra-xtask-{}", std::process::id()));
        let plain = folder.join("plain");
        std::fs::create_dir_all(&plain).unwrap();
        let error = Tree::read(Path::new("/")).map(|tree| tree.len()).unwrap_err();
        assert!(format!("{error:#}").contains("is not in a git checkout"), "{error:#}");

        git(&folder, &["init", "--quiet"]).unwrap();
        for (path, content) in
            [("plain/a.md", &b"text"[..]), ("gone.md", b"x"), ("data.bin", &[0xff, 0]), ("new.md", b"y")]
        {
            std::fs::write(folder.join(path), content).unwrap();
        }
        git(&folder, &["add", "plain/a.md", "gone.md", "data.bin"]).unwrap();
        std::fs::remove_file(folder.join("gone.md")).unwrap();

        let tree = Tree::read(&plain).unwrap();
        let files: Vec<(&str, u64)> = tree.files().map(|(path, file)| (path, file.bytes)).collect();
        assert_eq!(files, [("data.bin", 2), ("plain/a.md", 4)]);
        assert_eq!(tree.texts().collect::<Vec<_>>(), [("plain/a.md", "text")]);
        assert_eq!((tree.len(), tree.untracked), (2, 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
