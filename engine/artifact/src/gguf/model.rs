//! A model in one file or in split shards.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::error::GgufError;
use super::file::{GgufFile, Tensor};
use super::metadata::{Metadata, MetadataEntry};

const SPLIT_NO: &str = "split.no";
const SPLIT_COUNT: &str = "split.count";
const SPLIT_TENSORS: &str = "split.tensors.count";

/// The file name of a shard: `PREFIX-NNNNN-of-NNNNN.gguf`, the number counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardName {
    prefix: String,
    number: u32,
    count: u32,
}

impl ShardName {
    /// Takes a file name (without folders) apart; `None` where it is no shard's name.
    pub fn parse(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_suffix(".gguf")?;
        let (rest, count) = stem.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| {
            let plain = text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u32>().ok()).flatten()
        };
        let name = Self { prefix: prefix.to_owned(), number: digits(number)?, count: digits(count)? };
        (1..=name.count).contains(&name.number).then_some(name)
    }

    /// The shard's number, from 1.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Shards of the model.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The file name of another shard of the same model.
    pub fn file_name(&self, number: u32) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.prefix, self.count)
    }
}

/// A model: one file, or all shards of a split one.
///
/// The first shard holds the model's metadata; every shard holds its own tensors.
#[derive(Debug)]
pub struct GgufModel {
    shards: Vec<GgufFile>,
    /// Shard and place in its list, by tensor name.
    index: HashMap<String, (usize, usize)>,
}

impl GgufModel {
    /// Opens the file at `path`, and where it is a shard, all shards beside it.
    ///
    /// Any shard may be named; the model always starts at the first one. A file is a shard where its `split.count` is 2
    /// or more, whatever its name.
    ///
    /// # Errors
    ///
    /// A file cannot be read; a shard is missing, or its `split.no`, `split.count` or `split.tensors.count` disagrees
    /// with its place; two shards hold a tensor of the same name.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let named = GgufFile::open(path)?;
        let count = named.metadata().optional_u64(SPLIT_COUNT)?.unwrap_or(0);
        if count <= 1 {
            let index = named.names().enumerate().map(|(place, name)| (name.to_owned(), (0, place))).collect();
            return Ok(Self { shards: vec![named], index });
        }

        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(ShardName::parse)
            .filter(|name| u64::from(name.count) == count)
            .ok_or_else(|| GgufError::ShardName { file: path.display().to_string(), count })?;
        let paths: Vec<PathBuf> = (1..=name.count).map(|number| path.with_file_name(name.file_name(number))).collect();
        refuse_missing(&paths)?;

        let mut shards = Vec::with_capacity(paths.len());
        let mut named = Some(named);
        for (number, shard_path) in (1..).zip(&paths) {
            let shard = match named.take_if(|_| number == name.number) {
                Some(named) => named,
                None => GgufFile::open(shard_path)?,
            };
            expect(&shard, SPLIT_NO, u64::from(number - 1))?;
            expect(&shard, SPLIT_COUNT, count)?;
            shards.push(shard);
        }
        let model = Self { index: index_of(&shards)?, shards };
        let tensors = model.index.len() as u64;
        for shard in &model.shards {
            expect(shard, SPLIT_TENSORS, tensors)?;
        }
        Ok(model)
    }

    /// The shards in order; one for a model in a single file.
    pub fn shards(&self) -> &[GgufFile] {
        &self.shards
    }

    /// The model's metadata, which stands in the first shard.
    pub fn metadata(&self) -> &Metadata {
        self.shards[0].metadata()
    }

    /// The path of the first shard.
    pub fn path(&self) -> &Path {
        self.shards[0].path()
    }

    /// Bytes of all files together.
    pub fn total_len(&self) -> u64 {
        self.shards.iter().map(GgufFile::total_len).sum()
    }

    /// The number of tensors.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The tensor names, shard by shard in file order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.shards.iter().flat_map(GgufFile::names)
    }

    /// The tensors, shard by shard in file order.
    pub fn tensors(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.shards.iter().flat_map(GgufFile::tensors)
    }

    /// Lets the system take back the memory of some of a tensor's bytes; see [`GgufFile::release`].
    pub fn release(&self, name: &str, bytes: std::ops::Range<usize>) {
        if let Some((shard, _)) = self.index.get(name) {
            self.shards[*shard].release(name, bytes);
        }
    }

    /// The tensor of this name, if there is one.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        let (shard, place) = self.index.get(name)?;
        self.shards.get(*shard)?.tensor_at(*place)
    }
}

fn refuse_missing(paths: &[PathBuf]) -> Result<(), GgufError> {
    // Where the system cannot tell, opening the shard will.
    let mut missing = paths.iter().zip(1..).filter(|(path, _)| matches!(path.try_exists(), Ok(false)));
    match missing.next() {
        None => Ok(()),
        Some((first, number)) => Err(GgufError::MissingShard {
            file: first.display().to_string(),
            number,
            count: paths.len() as u64,
            missing: 1 + missing.count() as u64,
        }),
    }
}

fn expect(shard: &GgufFile, key: &str, expected: u64) -> Result<(), GgufError> {
    let found = shard.metadata().get_u64(key)?;
    if found == expected {
        return Ok(());
    }
    Err(GgufError::ShardMismatch {
        file: shard.path().display().to_string(),
        offset: shard.metadata().entry(key).map_or(0, MetadataEntry::offset),
        key: key.to_owned(),
        found,
        expected,
    })
}

fn index_of(shards: &[GgufFile]) -> Result<HashMap<String, (usize, usize)>, GgufError> {
    let mut index: HashMap<String, (usize, usize)> = HashMap::new();
    for (number, shard) in shards.iter().enumerate() {
        for (place, name) in shard.names().enumerate() {
            if let Some((first, _)) = index.insert(name.to_owned(), (number, place)) {
                return Err(GgufError::DuplicateAcrossShards {
                    file: shard.path().display().to_string(),
                    name: name.to_owned(),
                    first_file: shards[first].path().display().to_string(),
                });
            }
        }
    }
    Ok(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_come_apart_and_together() {
        let name = ShardName::parse("a-of-b-00002-of-00003.gguf").unwrap();
        assert_eq!((name.number(), name.count()), (2, 3));
        assert_eq!(name.file_name(1), "a-of-b-00001-of-00003.gguf");
    }

    #[test]
    fn other_names_are_no_shards() {
        for name in [
            "model.gguf",
            "model-00001-of-00003",
            "model-1-of-3.gguf",
            "model-00000-of-00003.gguf",
            "model-00004-of-00003.gguf",
            "model-+0001-of-00003.gguf",
            "00001-of-00003.gguf",
        ] {
            assert_eq!(ShardName::parse(name), None, "{name}");
        }
    }
}
