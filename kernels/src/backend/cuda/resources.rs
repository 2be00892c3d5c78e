//! What the assembler says of the entries of a text: registers, spills, stack, shared memory, and advice that fails a build.

/// What an entry takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resources {
    /// Name of the entry.
    pub entry: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread's spills store, called functions included.
    pub spill_store_bytes: u32,
    /// Bytes that a thread's spills load, called functions included.
    pub spill_load_bytes: u32,
    /// Stack of a thread in bytes, called functions included.
    pub stack_bytes: u32,
    /// Static shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Named barriers of a block.
    pub barriers: u32,
}

/// Reads the verbose log of the assembler: one record an entry, in the order of the log. Lines that it does not know mean
/// nothing to it.
pub fn resources(log: &str) -> Vec<Resources> {
    let mut found: Vec<Resources> = Vec::new();
    for line in log.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            if let Some((entry, _)) = rest.split_once('\'') {
                found.push(Resources { entry: entry.to_owned(), ..Resources::default() });
            }
            continue;
        }
        let Some(current) = found.last_mut() else { continue };
        let text = match line.split_once(" : ") {
            Some((head, text)) if head.starts_with("ptxas") => text,
            _ => line.trim_start_matches("ptxas").trim_start_matches([' ', '.']),
        };
        for part in text.split(',').map(str::trim) {
            let part = part.strip_prefix("Used ").or_else(|| part.strip_prefix("used ")).unwrap_or(part);
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = part.split_at(digits);
            let Ok(number) = number.parse::<u32>() else { continue };
            match rest.trim() {
                "registers" => current.registers = number,
                "barriers" => current.barriers = number,
                "bytes smem" => current.shared_bytes = number,
                "bytes spill stores" => current.spill_store_bytes = current.spill_store_bytes.saturating_add(number),
                "bytes spill loads" => current.spill_load_bytes = current.spill_load_bytes.saturating_add(number),
                "bytes stack frame" | "bytes cumulative stack size" => {
                    current.stack_bytes = current.stack_bytes.max(number);
                }
                _ => {}
            }
        }
    }
    found
}

/// The first line with which the assembler says that it took the overlap out of `wgmma` instructions: `(C75..)`. Such code is
/// correct and slow, and no variant is meant to be built that way.
pub fn serialised(log: &str) -> Option<&str> {
    // The line that says so in words stands before those that only tell where a wait was put.
    let lines = || log.lines().map(str::trim).filter(|line| line.contains("(C75"));
    lines().find(|line| line.contains("serialized")).or_else(|| lines().next())
}

/// Lines with which the compiler or the assembler warns.
pub fn warnings(log: &str) -> impl Iterator<Item = &str> {
    log.lines().map(str::trim).filter(|line| line.contains("warning"))
}

/// Names of the entries that a text declares: functions with `__global__` in front. Entries that a macro writes are not seen.
pub fn entries(text: &str) -> Vec<&str> {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let lines: Vec<&str> = text.lines().filter(code).collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some((_, rest)) = line.split_once("__global__") else { continue };
        // The name stands before the first bracket that does not belong to an attribute, here or a few lines below.
        let rest = std::iter::once(rest).chain(lines.iter().skip(index + 1).take(3).copied());
        if let Some(name) = rest.filter_map(|part| part.split_once("void ")).find_map(|(_, part)| declared(part)) {
            found.push(name);
        }
    }
    found
}

/// The name that a text begins with, behind attributes and before a bracket.
fn declared(text: &str) -> Option<&str> {
    let mut rest = text.trim_start();
    loop {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
        let (word, behind) = rest.split_at(end);
        let behind = behind.trim_start().strip_prefix('(')?;
        if word.is_empty() {
            return None;
        }
        if !word.starts_with("__") {
            return Some(word);
        }
        rest = behind.split_once(')')?.1.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LOG: &str = "\
ptxas warning : Value of threads per SM for entry two is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'three' for 'sm_90a'
ptxas info    : Function properties for three
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 12.841 ms
ptxas info    : Function properties for _Z1ff
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Compiling entry function 'two' for 'sm_90a'
ptxas info    : Function properties for two
ptxas         .     864 bytes stack frame, 604 bytes spill stores, 712 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 880 bytes cumulative stack size
ptxas info    : Compile time = 155.976 ms
ptxas info    : Compiling entry function 'one' for 'sm_90a'
ptxas info    : Function properties for one
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 256 bytes smem, 384 bytes cmem[0]
";

    const SERIALISED: &str = "\
ptxas info    : (C7519) warpgroup.arrive is injected in around line 59 by compiler to allow use of registers in function 'w'
ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to insufficient register \
resources for the wgmma pipeline in the function 'w'
ptxas info    : Compiling entry function 'w' for 'sm_90a'
";

    #[test]
    fn a_log_is_read_entry_by_entry() {
        let row = |entry: &str, [registers, stores, loads, stack, shared, barriers]: [u32; 6]| Resources {
            entry: entry.to_owned(),
            registers,
            spill_store_bytes: stores,
            spill_load_bytes: loads,
            stack_bytes: stack,
            shared_bytes: shared,
            barriers,
        };
        let wanted = [
            row("three", [8, 4, 12, 8, 0, 0]),
            row("two", [32, 604, 712, 880, 0, 1]),
            row("one", [10, 0, 0, 0, 256, 1]),
        ];
        assert_eq!(resources(LOG), wanted);
        assert_eq!(resources(""), []);
        assert_eq!(warnings(LOG).count(), 1);
    }

    #[test]
    fn serialised_instructions_are_seen() {
        assert_eq!(serialised(LOG), None);
        assert!(serialised(SERIALISED).unwrap().contains("(C7511)"));
        assert!(serialised("ptxas info    : (C7519) warpgroup.arrive is injected").is_some());
        assert_eq!(resources(SERIALISED).len(), 1);
    }

    #[test]
    fn entries_are_found_in_a_text() {
        let text = "// extern \"C\" __global__ void none(int a) {}\n\
            extern \"C\" __global__ void plain(const float* a) {}\n\
            extern \"C\" __global__ void __launch_bounds__(256, 2) bounded(int a) {}\n\
            extern \"C\" __global__ __launch_bounds__(128)\nvoid below(int a) {}\n\
            __device__ void other(int a) {}\n__global__";
        assert_eq!(entries(text), ["plain", "bounded", "below"]);
        assert_eq!(entries("__global__ void"), [] as [&str; 0]);
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(__global__|void |[ -~\n]|\\PC){0,60}") {
            let _ = (resources(&text), serialised(&text), warnings(&text).count(), entries(&text).len());
        }

        #[test]
        fn any_edit_of_a_log_is_read(at in 0..LOG.len(), cut in 0_usize..40, put in "[ -~ä\n]{0,12}") {
            let mut text = LOG.to_owned();
            text.replace_range(at..(at + cut).min(LOG.len()), &put);
            prop_assert!(resources(&text).len() <= 4 + put.len());
            let (_, _) = (serialised(&text), warnings(&text).count());
        }

        #[test]
        fn numbers_come_back(registers in any::<u32>(), shared in any::<u32>(), stores in any::<u32>()) {
            let log = format!(
                "ptxas info    : Compiling entry function 'k' for 'sm_80'\n\
                 ptxas         .     0 bytes stack frame, {stores} bytes spill stores, 0 bytes spill loads\n\
                 ptxas info    : Used {registers} registers, used 0 barriers, {shared} bytes smem\n"
            );
            let found = resources(&log);
            prop_assert_eq!(found.len(), 1);
            prop_assert_eq!(
                (found[0].registers, found[0].shared_bytes, found[0].spill_store_bytes),
                (registers, shared, stores)
            );
        }
    }
}
