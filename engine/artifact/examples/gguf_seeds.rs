//! Writes the seed files of the fuzz target into a folder: `gguf_seeds fuzz/corpus/gguf_read`.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: gguf_seeds FOLDER"));
    };
    fs::create_dir_all(&folder)?;
    for (name, bytes) in memra_artifact::fuzzing::gguf_seeds() {
        fs::write(folder.join(name).with_extension("gguf"), bytes)?;
    }
    Ok(())
}
