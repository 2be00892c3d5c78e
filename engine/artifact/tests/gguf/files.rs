//! Files and split models on disk.

use std::fs;
use std::path::{Path, PathBuf};

use memra_artifact::{GgufError, GgufFile, GgufModel, GgufWriter, Value, fuzzing};
use memra_contract::BlockFormat;
use tempfile::TempDir;

/// What a shard says about itself, and its tensors.
#[derive(Clone)]
struct Shard {
    no: Value,
    count: Value,
    total: Option<Value>,
    tensors: Vec<&'static str>,
}

fn shards() -> Vec<Shard> {
    let names = [vec!["token_embd.weight"], vec!["blk.0.a", "blk.0.b"], vec!["output_norm.weight"]];
    (0..)
        .zip(names)
        .map(|(no, tensors)| Shard { no: Value::U16(no), count: Value::U16(3), total: Some(Value::I32(4)), tensors })
        .collect()
}

fn shard_path(folder: &Path, number: usize) -> PathBuf {
    folder.join(format!("model-{number:05}-of-00003.gguf"))
}

fn write_shard(path: &Path, number: usize, shard: &Shard) {
    let mut writer = GgufWriter::new();
    if number == 1 {
        writer.set("general.architecture", Value::String("llama".to_owned())).unwrap();
    }
    writer.set("split.no", shard.no.clone()).unwrap();
    writer.set("split.count", shard.count.clone()).unwrap();
    if let Some(total) = &shard.total {
        writer.set("split.tensors.count", total.clone()).unwrap();
    }
    for name in &shard.tensors {
        writer.declare(name, &[2], BlockFormat::F32).unwrap();
    }
    let mut body = writer.begin(fs::File::create(path).unwrap()).unwrap();
    for name in &shard.tensors {
        body.tensor(name, &[name.len() as u8; 8]).unwrap();
    }
    body.finish().unwrap();
}

fn write_all(shards: &[Shard]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, shard) in (1..).zip(shards) {
        write_shard(&shard_path(folder.path(), number), number, shard);
    }
    folder
}

/// The error of opening the model by its first shard.
fn open_error(shards: &[Shard]) -> GgufError {
    let folder = write_all(shards);
    GgufModel::open(shard_path(folder.path(), 1)).unwrap_err()
}

#[test]
fn any_shard_opens_the_whole_model() {
    let folder = write_all(&shards());
    for number in 1..=3 {
        let model = GgufModel::open(shard_path(folder.path(), number)).unwrap();
        assert_eq!(model.shards().len(), 3);
        assert_eq!(model.path(), shard_path(folder.path(), 1));
        assert_eq!(model.metadata().get_str("general.architecture").unwrap(), "llama");
        let names: Vec<_> = model.names().collect();
        assert_eq!(names, ["token_embd.weight", "blk.0.a", "blk.0.b", "output_norm.weight"]);
        assert_eq!((model.len(), model.is_empty()), (4, false));
        for (name, tensor) in names.iter().zip(model.tensors()) {
            assert_eq!(tensor.info().name(), *name);
            assert_eq!(tensor.data(), [name.len() as u8; 8]);
            assert_eq!(model.tensor(name).unwrap().data(), tensor.data());
        }
        assert!(model.tensor("blk.1.a").is_none());
        let bytes: u64 = model.shards().iter().map(GgufFile::total_len).sum();
        assert_eq!(model.total_len(), bytes);
    }
}

#[test]
fn a_file_without_shards_is_a_model() {
    for count in [None, Some(0), Some(1)] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("whole-00002-of-00003.gguf");
        let mut writer = GgufWriter::new();
        if let Some(count) = count {
            writer.set("split.count", Value::U16(count)).unwrap();
        }
        writer.declare("a", &[2], BlockFormat::F32).unwrap();
        let mut body = writer.begin(fs::File::create(&path).unwrap()).unwrap();
        body.tensor("a", &[5; 8]).unwrap();
        body.finish().unwrap();
        let model = GgufModel::open(&path).unwrap();
        assert_eq!(model.shards().len(), 1);
        assert_eq!(model.tensor("a").unwrap().data(), [5; 8]);
    }
}

#[test]
fn a_missing_shard_is_named() {
    let folder = write_all(&shards());
    fs::remove_file(shard_path(folder.path(), 1)).unwrap();
    fs::remove_file(shard_path(folder.path(), 3)).unwrap();
    let error = GgufModel::open(shard_path(folder.path(), 2)).unwrap_err();
    assert!(matches!(error, GgufError::MissingShard { number: 1, count: 3, missing: 2, .. }));
    assert_eq!(
        error.to_string(),
        format!("{}: shard 1 of 3 is missing (2 of 3 missing in all)", shard_path(folder.path(), 1).display())
    );
}

#[test]
fn a_shard_under_another_name_says_so() {
    let folder = write_all(&shards());
    for name in ["model.gguf", "model-00001-of-00004.gguf"] {
        let renamed = folder.path().join(name);
        fs::copy(shard_path(folder.path(), 1), &renamed).unwrap();
        let error = GgufModel::open(&renamed).unwrap_err();
        assert!(matches!(error, GgufError::ShardName { count: 3, .. }), "{error}");
        assert!(error.to_string().contains("-NNNNN-of-00003.gguf"), "{error}");
    }
}

#[test]
fn shards_that_disagree_are_refused() {
    let mismatch = |change: fn(&mut Vec<Shard>)| {
        let mut shards = shards();
        change(&mut shards);
        match open_error(&shards) {
            GgufError::ShardMismatch { file, key, found, expected, offset } => {
                assert!(offset > 0);
                let number = (1..=3).find(|n| file.ends_with(&format!("-{n:05}-of-00003.gguf")));
                (number.unwrap(), key, found, expected)
            }
            other => panic!("{other}"),
        }
    };
    assert_eq!(mismatch(|s| s[1].no = Value::U16(2)), (2, "split.no".to_owned(), 2, 1));
    assert_eq!(mismatch(|s| s.swap(0, 2)), (1, "split.no".to_owned(), 2, 0));
    assert_eq!(mismatch(|s| s[2].count = Value::U16(4)), (3, "split.count".to_owned(), 4, 3));
    assert_eq!(mismatch(|s| s[0].total = Some(Value::I32(5))), (1, "split.tensors.count".to_owned(), 5, 4));
    assert_eq!(mismatch(|s| s[2].tensors = vec![]), (1, "split.tensors.count".to_owned(), 4, 3));
}

#[test]
fn split_keys_must_be_there_and_be_numbers() {
    let mut without = shards();
    without[1].total = None;
    let error = open_error(&without);
    assert!(matches!(&error, GgufError::MissingKey { key, .. } if key == "split.tensors.count"), "{error}");
    let mut text = shards();
    text[1].no = Value::String("1".to_owned());
    let error = open_error(&text);
    assert!(matches!(&error, GgufError::WrongType { key, .. } if key == "split.no"), "{error}");
    let mut other_width = shards();
    other_width[1].no = Value::U32(1);
    other_width[1].count = Value::I32(3);
    let folder = write_all(&other_width);
    assert!(GgufModel::open(shard_path(folder.path(), 1)).is_ok());
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let mut twice = shards();
    twice[2].tensors = vec!["blk.0.a"];
    let error = open_error(&twice);
    match &error {
        GgufError::DuplicateAcrossShards { file, name, first_file } => {
            assert_eq!(name, "blk.0.a");
            assert!(file.ends_with("-00003-of-00003.gguf"));
            assert!(first_file.ends_with("-00002-of-00003.gguf"));
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_damaged_shard_is_named() {
    let folder = write_all(&shards());
    let path = shard_path(folder.path(), 3);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..40]).unwrap();
    let error = GgufModel::open(shard_path(folder.path(), 1)).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: byte ", path.display())), "{error}");
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent.gguf");
    for path in [absent.as_path(), folder.path()] {
        let error = GgufFile::open(path).unwrap_err();
        assert!(matches!(error, GgufError::Io { .. }), "{error}");
        assert_eq!(error.to_string(), format!("{}: cannot open the file", path.display()));
        assert!(std::error::Error::source(&error).is_some());
    }
    let empty = folder.path().join("empty.gguf");
    fs::write(&empty, b"").unwrap();
    let error = GgufFile::open(&empty).unwrap_err().to_string();
    let fault = "byte 0: magic: needs 4 bytes, but only 0 are left in the file";
    assert_eq!(error, format!("{}: {fault}", empty.display()));
}

#[test]
fn both_versions_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let mut read = Vec::new();
    for (name, bytes) in fuzzing::gguf_seeds() {
        if name == "every_value_type" || name == "version_2" {
            let path = folder.path().join(name);
            fs::write(&path, bytes).unwrap();
            read.push(GgufFile::open(&path).unwrap());
        }
    }
    let [three, two] = read.as_slice() else { panic!("two seeds hold the same content") };
    assert_eq!((three.header().version(), two.header().version()), (3, 2));
    assert_eq!(three.metadata().len(), two.metadata().len());
    for (first, second) in three.metadata().iter().zip(two.metadata().iter()) {
        assert_eq!((first.key(), first.value()), (second.key(), second.value()));
    }
    assert_eq!(three.header().tensors(), two.header().tensors());
    assert_eq!(three.tensor("output_norm.weight").unwrap().data(), [2; 32]);
}
