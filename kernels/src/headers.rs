//! Device headers: the `.cuh` files that CUDA variants include by name, compiled in.

/// One header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Name that `#include "..."` gives.
    pub name: &'static str,
    /// Its text.
    pub text: &'static str,
}

macro_rules! headers {
    ($($file:literal),* $(,)?) => {
        &[$(Header { name: $file, text: include_str!(concat!("../include/", $file)) }),*]
    };
}

/// Every header, by name.
pub static HEADERS: &[Header] = headers![
    "cluster.cuh",
    "exp.cuh",
    "fragment.cuh",
    "memra.cuh",
    "quantise_block.cuh",
    "rms_chain.cuh",
    "swiglu.cuh"
];

/// The header of a name.
pub fn header(name: &str) -> Option<&'static Header> {
    HEADERS.iter().find(|header| header.name == name)
}

/// Names in `#include "..."` lines of a text, in order.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix("#include \"")?.split_once('"').map(|(name, _)| name))
}

/// The headers a text includes, directly or through others, in the order they are met; each once.
pub fn included(text: &str) -> Vec<&'static Header> {
    let mut found: Vec<&'static Header> = Vec::new();
    let mut waiting: Vec<&'static Header> = names(text).filter_map(header).collect();
    waiting.reverse();
    while let Some(next) = waiting.pop() {
        if found.contains(&next) {
            continue;
        }
        found.push(next);
        let mut inner: Vec<_> = names(next.text).filter_map(header).collect();
        inner.reverse();
        waiting.extend(inner);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_included_name_is_a_header_and_stands_once() {
        for header in HEADERS {
            assert!(names(header.text).all(|name| self::header(name).is_some()), "{}", header.name);
        }
        let text = "#include \"memra.cuh\"\n  #include \"memra.cuh\"\n#include <cuda_fp16.h>\n// #include \"x\"\n";
        assert_eq!(names(text).count(), 2);
        assert_eq!(included(text).iter().map(|header| header.name).collect::<Vec<_>>(), ["memra.cuh"]);
    }

    #[test]
    fn the_list_is_the_folder() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        assert_eq!(files, HEADERS.iter().map(|header| header.name).collect::<Vec<_>>());
    }
}
