//! NVRTC: CUDA C++ text to a cubin, on any machine that has the compiler's library; no GPU is needed.

#![expect(unsafe_code, reason = "calls of a C library; every handle is owned by a type of this file")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;

use libloading::Library;
use memra_contract::device::CudaArch;

use super::toolkit::{NAMES, Toolkit};
use crate::contract::{CudaBuild, Source};
use crate::headers;

/// Options every text is compiled with, before those of the architecture: contraction is off, because an order class says
/// itself where an fma rounds.
pub const OPTIONS: &[&str] =
    &["--std=c++17", "-default-device", "--fmad=false", "--ptxas-options=--verbose", "--no-source-include"];

/// No compiler.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvrtcError {
    /// The library is not there.
    #[error("no NVRTC: {0}")]
    Absent(String),
    /// The text does not compile.
    #[error("{name} does not compile for {arch}: {}", first_line(.log))]
    Compile {
        /// Name of the text.
        name: String,
        /// Architecture.
        arch: CudaArch,
        /// What the compiler says.
        log: String,
    },
    /// A call of the library failed.
    #[error("NVRTC: {call}: {why}")]
    Call {
        /// The call.
        call: &'static str,
        /// What it says.
        why: String,
    },
}

/// The first line of a log that speaks of an error, or the first at all.
pub fn first_line(log: &str) -> &str {
    let lines = || log.lines().map(str::trim).filter(|line| !line.is_empty());
    lines().find(|line| line.contains("error")).or_else(|| lines().next()).unwrap_or("without a reason")
}

/// What came out of a compilation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// Machine code.
    pub cubin: Vec<u8>,
    /// What the compiler and the assembler say.
    pub log: String,
}

type Program = *mut std::ffi::c_void;
type Status = c_int;

/// A loaded compiler.
pub struct Nvrtc {
    library: Library,
    include: PathBuf,
    version: (u32, u32),
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc").field("version", &self.version).finish_non_exhaustive()
    }
}

impl Nvrtc {
    /// Loads the compiler of a toolkit folder.
    ///
    /// # Errors
    /// [`NvrtcError::Absent`] naming the folder.
    pub fn load(toolkit: &Toolkit) -> Result<Self, NvrtcError> {
        let absent = |why: String| NvrtcError::Absent(why);
        let name = NAMES.iter().map(|name| toolkit.libraries.join(name)).find(|path| path.exists());
        let path = name.ok_or_else(|| absent(format!("{} holds no libnvrtc", toolkit.libraries.display())))?;
        if !toolkit.include.join("cuda_fp16.h").exists() {
            return Err(absent(format!("{} holds no cuda_fp16.h", toolkit.include.display())));
        }
        // The compiler opens its builtins by name alone; loaded first from the same folder, they are found.
        for builtins in builtins(&toolkit.libraries) {
            // SAFETY: NVIDIA's library has no initialisers with requirements; it stays loaded for the life of the process.
            if let Ok(library) = unsafe { Library::new(&builtins) } {
                std::mem::forget(library);
            }
        }
        // SAFETY: as above; the symbols are called with the types of nvrtc.h.
        let library = unsafe { Library::new(&path) }.map_err(|error| absent(format!("{}: {error}", path.display())))?;
        let mut nvrtc = Self { library, include: toolkit.include.clone(), version: (0, 0) };
        let (mut major, mut minor) = (0, 0);
        let call: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status = nvrtc.symbol("nvrtcVersion")?;
        // SAFETY: two places for integers, as nvrtc.h asks.
        nvrtc.ok("nvrtcVersion", unsafe { call(&raw mut major, &raw mut minor) })?;
        nvrtc.version = (major.unsigned_abs(), minor.unsigned_abs());
        Ok(nvrtc)
    }

    /// Major and minor version.
    pub const fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The options a text is compiled with for an architecture, include folders left out.
    pub fn options(arch: CudaArch, build: &CudaBuild) -> Vec<String> {
        let mut options = vec![format!("--gpu-architecture={arch}")];
        options.extend(OPTIONS.iter().map(|option| (*option).to_owned()));
        options.extend(build.defines.iter().map(|(name, value)| format!("-D{name}={value}")));
        options
    }

    /// Compiles a text to machine code.
    ///
    /// # Errors
    /// [`NvrtcError::Compile`] with the log, or what a call says.
    pub fn compile(&self, source: &Source, build: &CudaBuild, arch: CudaArch) -> Result<Compiled, NvrtcError> {
        let name = source.path.rsplit('/').next().unwrap_or(source.path);
        self.compile_text(name, source.text, &Self::options(arch, build), arch)
    }

    /// Compiles a text that is not in the registry, with options as [`Nvrtc::options`] gives them.
    ///
    /// # Errors
    /// [`NvrtcError::Compile`] with the log, or what a call says.
    pub fn compile_text(
        &self,
        name: &str,
        text: &str,
        options: &[String],
        arch: CudaArch,
    ) -> Result<Compiled, NvrtcError> {
        let own = |text: &str| {
            CString::new(text)
                .map_err(|_| NvrtcError::Call { call: "nvrtcCreateProgram", why: format!("{name} holds a zero byte") })
        };
        let (text_c, name_c) = (own(text)?, own(name)?);
        let included = headers::included(text);
        let header_names = included.iter().map(|header| own(header.name)).collect::<Result<Vec<_>, _>>()?;
        let header_texts = included.iter().map(|header| own(header.text)).collect::<Result<Vec<_>, _>>()?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (name_pointers, text_pointers) = (pointers(&header_names), pointers(&header_texts));
        let mut program: Program = ptr::null_mut();
        let create: unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> Status = self.symbol("nvrtcCreateProgram")?;
        // SAFETY: all texts end with a zero byte and live until the program is destroyed; the counts are those of the lists.
        let status = unsafe {
            create(
                &raw mut program,
                text_c.as_ptr(),
                name_c.as_ptr(),
                included.len() as c_int,
                text_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        self.ok("nvrtcCreateProgram", status)?;
        let result = self.run(program, name, options, arch);
        let destroy: unsafe extern "C" fn(*mut Program) -> Status = self.symbol("nvrtcDestroyProgram")?;
        // SAFETY: the program was made above and is not used any more.
        self.ok("nvrtcDestroyProgram", unsafe { destroy(&raw mut program) })?;
        result
    }

    fn run(&self, program: Program, name: &str, options: &[String], arch: CudaArch) -> Result<Compiled, NvrtcError> {
        let mut all = options.to_vec();
        for folder in [self.include.clone(), self.include.join("cccl")] {
            all.push(format!("--include-path={}", folder.display()));
        }
        let all = all
            .into_iter()
            .map(|option| CString::new(option.clone()).map_err(|_| NvrtcError::Call { call: "options", why: option }))
            .collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = all.iter().map(|option| option.as_ptr()).collect();
        let compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status =
            self.symbol("nvrtcCompileProgram")?;
        // SAFETY: the program is alive, the options are zero-terminated and as many as said.
        let status = unsafe { compile(program, pointers.len() as c_int, pointers.as_ptr()) };
        let log = self.bytes(program, "nvrtcGetProgramLogSize", "nvrtcGetProgramLog")?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned();
        if status != 0 {
            return Err(NvrtcError::Compile { name: name.to_owned(), arch, log });
        }
        let cubin = self.bytes(program, "nvrtcGetCUBINSize", "nvrtcGetCUBIN")?;
        Ok(Compiled { cubin, log })
    }

    fn bytes(&self, program: Program, size: &'static str, get: &'static str) -> Result<Vec<u8>, NvrtcError> {
        let mut length = 0_usize;
        let ask: unsafe extern "C" fn(Program, *mut usize) -> Status = self.symbol(size)?;
        // SAFETY: the program is alive; the place holds a size.
        self.ok(size, unsafe { ask(program, &raw mut length) })?;
        let mut bytes = vec![0_u8; length];
        let read: unsafe extern "C" fn(Program, *mut c_char) -> Status = self.symbol(get)?;
        // SAFETY: the buffer has the size that the library just gave.
        self.ok(get, unsafe { read(program, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }

    /// A function of the library; its type is nvrtc.h's.
    fn symbol<F: Copy>(&self, name: &'static str) -> Result<F, NvrtcError> {
        // SAFETY: every caller names a function of nvrtc.h with its type; the library outlives the copy.
        let symbol = unsafe { self.library.get::<F>(name.as_bytes()) };
        symbol.map(|symbol| *symbol).map_err(|error| NvrtcError::Absent(error.to_string()))
    }

    fn ok(&self, call: &'static str, status: Status) -> Result<(), NvrtcError> {
        if status == 0 {
            return Ok(());
        }
        let text: unsafe extern "C" fn(Status) -> *const c_char = self.symbol("nvrtcGetErrorString")?;
        // SAFETY: the library gives a text that lives as long as itself, for any number.
        let why = unsafe { CStr::from_ptr(text(status)) }.to_string_lossy().into_owned();
        Err(NvrtcError::Call { call, why })
    }
}

/// Files of the builtins in a folder.
fn builtins(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.starts_with("libnvrtc-builtins.so.")
        })
        .collect();
    files.sort();
    files
}
