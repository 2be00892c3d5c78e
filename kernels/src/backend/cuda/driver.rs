//! The driver: one device, its context and stream, modules, buffers, graphs and events, each owned by a type that gives it
//! back.
//!
//! Nothing of the library is touched before [`Driver::probe`] has seen that it is there: a missing library is an answer, not
//! a panic.

#![expect(unsafe_code, reason = "calls of a C library; every handle is owned by a type of this file")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use memra_contract::DeviceKey;
use memra_contract::device::{CudaArch, CudaClass};

/// What the driver says when it refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// There is no driver or no device.
    #[error("no CUDA device: {0}")]
    Absent(String),
    /// A call failed.
    #[error("CUDA: {call}: {why}")]
    Call {
        /// The call.
        call: &'static str,
        /// Name and text of the error.
        why: String,
    },
}

fn ok(call: &'static str, result: sys::CUresult) -> Result<(), DriverError> {
    if result == sys::CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let text = |get: unsafe fn(sys::CUresult, *mut *const c_char) -> sys::CUresult| {
        let mut text = ptr::null();
        // SAFETY: the driver writes a pointer to a text of its own, or nothing for a number it does not know.
        let found = unsafe { get(result, &raw mut text) };
        // SAFETY: a text that was given ends with a zero byte and lives as long as the driver.
        (found == sys::CUresult::CUDA_SUCCESS && !text.is_null())
            .then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    let name = text(sys::cuGetErrorName).unwrap_or_else(|| format!("error {}", result as u32));
    let why = text(sys::cuGetErrorString).map_or(name.clone(), |text| format!("{name}: {text}"));
    Err(DriverError::Call { call, why })
}

/// Calls the driver and names the call in the error.
macro_rules! cu {
    ($call:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: handles are alive because the types of this file own them, places have the types of cuda.h, and the context
        // was made current by the caller of the wrapping function.
        ok(stringify!($call), unsafe { sys::$call($($arg),*) })
    };
}

/// Facts of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Product name; for people, never a key.
    pub name: String,
    /// What defaults are keyed by.
    pub class: CudaClass,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Level-2 cache in bytes.
    pub l2_bytes: u64,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Driver version as 13000 for 13.0.
    pub driver: u32,
}

/// A device with its context and one stream.
#[derive(Debug)]
pub struct Driver {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    facts: DeviceFacts,
}

// SAFETY: the driver's handles may be used from any thread that makes the context current, which every method does.
unsafe impl Send for Driver {}
// SAFETY: as above; the driver locks what it shares.
unsafe impl Sync for Driver {}

impl Driver {
    /// Opens a device. `power_w` is the default power limit in watts, which the driver does not know.
    ///
    /// # Errors
    /// [`DriverError::Absent`] where there is no driver, no such device, or no architecture that kernels are compiled for.
    pub fn probe(ordinal: u32, power_w: u32) -> Result<Arc<Self>, DriverError> {
        // SAFETY: asks the loader for the library and does nothing else.
        if !unsafe { sys::is_culib_present() } {
            return Err(DriverError::Absent("libcuda is not on this machine".to_owned()));
        }
        let absent = |error: DriverError| DriverError::Absent(error.to_string());
        cu!(cuInit(0)).map_err(absent)?;
        let (mut count, mut driver) = (0, 0);
        cu!(cuDeviceGetCount(&raw mut count)).map_err(absent)?;
        if i64::from(ordinal) >= i64::from(count) {
            return Err(DriverError::Absent(format!("device {ordinal} was asked for, and there are {count}")));
        }
        cu!(cuDriverGetVersion(&raw mut driver))?;
        let mut device = 0;
        cu!(cuDeviceGet(&raw mut device, ordinal as c_int))?;
        let facts = facts(device, driver.unsigned_abs(), power_w)?;
        let mut context = ptr::null_mut();
        cu!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
        let mut opened = Self { device, context, stream: ptr::null_mut(), facts };
        opened.enter()?;
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut stream = ptr::null_mut();
        cu!(cuStreamCreate(&raw mut stream, flags))?;
        opened.stream = stream;
        Ok(Arc::new(opened))
    }

    /// Facts of the device.
    pub const fn facts(&self) -> &DeviceFacts {
        &self.facts
    }

    /// The device key.
    pub const fn key(&self) -> DeviceKey {
        DeviceKey::Cuda(self.facts.class)
    }

    /// Makes the context current on this thread.
    fn enter(&self) -> Result<(), DriverError> {
        cu!(cuCtxSetCurrent(self.context))
    }

    /// Free memory in bytes.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn free_bytes(&self) -> Result<u64, DriverError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        cu!(cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok(free as u64)
    }

    /// Waits for everything on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what a kernel did wrong.
    pub fn synchronise(&self) -> Result<(), DriverError> {
        self.enter()?;
        cu!(cuStreamSynchronize(self.stream))
    }

    /// A buffer with these bytes; at least one byte is taken.
    ///
    /// # Errors
    /// [`DriverError`] when there is no memory.
    pub fn upload(self: &Arc<Self>, bytes: &[u8]) -> Result<Buffer, DriverError> {
        let buffer = self.unset(bytes.len())?;
        self.copy_in(buffer.address, bytes)?;
        Ok(buffer)
    }

    /// Copies to the device in order with the stream, and waits: a plain copy from pageable memory may still be under way when it
    /// returns, and a stream that does not block would overtake it.
    fn copy_in(&self, address: sys::CUdeviceptr, bytes: &[u8]) -> Result<(), DriverError> {
        if !bytes.is_empty() {
            cu!(cuMemcpyHtoDAsync_v2(address, bytes.as_ptr().cast(), bytes.len(), self.stream))?;
        }
        self.synchronise()
    }

    /// A buffer whose contents are not set; at least one byte is taken.
    ///
    /// # Errors
    /// [`DriverError`] when there is no memory.
    pub fn unset(self: &Arc<Self>, bytes: usize) -> Result<Buffer, DriverError> {
        self.enter()?;
        let mut address = 0;
        // The driver gives nothing for nothing; sizes are whole words so that patterns fill them.
        let taken = bytes.max(1).next_multiple_of(4);
        cu!(cuMemAlloc_v2(&raw mut address, taken))?;
        Ok(Buffer { driver: Arc::clone(self), address, bytes, taken })
    }

    /// A zeroed buffer.
    ///
    /// # Errors
    /// [`DriverError`] when there is no memory.
    pub fn zeroed(self: &Arc<Self>, bytes: usize) -> Result<Buffer, DriverError> {
        let buffer = self.unset(bytes)?;
        buffer.fill(0)?;
        Ok(buffer)
    }

    /// Loads machine code.
    ///
    /// # Errors
    /// [`DriverError`] when it is not for this device.
    pub fn load(self: &Arc<Self>, cubin: &[u8]) -> Result<Module, DriverError> {
        self.enter()?;
        let mut module = ptr::null_mut();
        cu!(cuModuleLoadData(&raw mut module, cubin.as_ptr().cast()))?;
        Ok(Module { driver: Arc::clone(self), module })
    }

    /// Puts a launch on the stream.
    ///
    /// # Errors
    /// [`DriverError`] when the geometry is refused; faults inside the kernel show at the next wait.
    pub fn launch(&self, launch: &Launch) -> Result<(), DriverError> {
        self.enter()?;
        let mut words = launch.args.clone();
        let mut places: Vec<*mut c_void> = words.iter_mut().map(|word| ptr::from_mut(word).cast()).collect();
        let mut attribute = sys::CUlaunchAttribute {
            id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: sys::CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = sys::CUlaunchConfig {
            gridDimX: launch.grid[0],
            gridDimY: launch.grid[1],
            gridDimZ: launch.grid[2],
            blockDimX: launch.block[0],
            blockDimY: launch.block[1],
            blockDimZ: launch.block[2],
            sharedMemBytes: launch.shared_bytes,
            hStream: self.stream,
            attrs: &raw mut attribute,
            numAttrs: u32::from(launch.is_overlapped),
        };
        // Every argument is a word of eight bytes in little-endian order; a shorter one is read from its beginning.
        cu!(cuLaunchKernelEx(&raw const config, launch.function, places.as_mut_ptr(), ptr::null_mut()))
    }

    /// Records what `work` launches into a graph.
    ///
    /// # Errors
    /// [`DriverError`] of the work or of the capture.
    pub fn capture(self: &Arc<Self>, work: impl FnOnce() -> Result<(), DriverError>) -> Result<Graph, DriverError> {
        self.enter()?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        cu!(cuStreamBeginCapture_v2(self.stream, mode))?;
        let worked = work();
        let mut graph = ptr::null_mut();
        let ended = cu!(cuStreamEndCapture(self.stream, &raw mut graph));
        worked?;
        ended?;
        let mut executable = ptr::null_mut();
        let made = cu!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
        cu!(cuGraphDestroy(graph))?;
        made?;
        let graph = Graph { driver: Arc::clone(self), executable };
        cu!(cuGraphUpload(executable, self.stream))?;
        self.synchronise()?;
        Ok(graph)
    }

    /// Starts a graph on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn start(&self, graph: &Graph) -> Result<(), DriverError> {
        self.enter()?;
        cu!(cuGraphLaunch(graph.executable, self.stream))
    }

    /// A clock on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn event(self: &Arc<Self>) -> Result<Event, DriverError> {
        self.enter()?;
        let mut event = ptr::null_mut();
        cu!(cuEventCreate(&raw mut event, sys::CUevent_flags::CU_EVENT_DEFAULT as u32))?;
        Ok(Event { driver: Arc::clone(self), event })
    }

    /// Notes the moment at which the stream gets here.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn record(&self, event: &Event) -> Result<(), DriverError> {
        self.enter()?;
        cu!(cuEventRecord(event.event, self.stream))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // What a broken context says to being given back helps nobody.
        if self.enter().is_ok() && !self.stream.is_null() {
            let _ = cu!(cuStreamDestroy_v2(self.stream));
        }
        let _ = cu!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// Where a device sits, as NVML names it: `0000:65:00.0`. No context is made.
///
/// # Errors
/// [`DriverError::Absent`] where there is no driver or no such device.
pub fn pci_bus_id(ordinal: u32) -> Result<String, DriverError> {
    // SAFETY: asks the loader for the library and does nothing else.
    if !unsafe { sys::is_culib_present() } {
        return Err(DriverError::Absent("libcuda is not on this machine".to_owned()));
    }
    let absent = |error: DriverError| DriverError::Absent(error.to_string());
    let (mut device, mut name) = (0, [0 as c_char; 32]);
    cu!(cuInit(0)).map_err(absent)?;
    cu!(cuDeviceGet(&raw mut device, ordinal as c_int)).map_err(absent)?;
    cu!(cuDeviceGetPCIBusId(name.as_mut_ptr(), name.len() as c_int, device)).map_err(absent)?;
    // SAFETY: the driver wrote a text of at most 31 characters and a zero byte.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

fn facts(device: sys::CUdevice, driver: u32, power_w: u32) -> Result<DeviceFacts, DriverError> {
    use sys::CUdevice_attribute as A;
    let attribute = |what: A| {
        let mut value = 0;
        cu!(cuDeviceGetAttribute(&raw mut value, what, device)).map(|()| value.unsigned_abs())
    };
    let mut name = [0 as c_char; 128];
    cu!(cuDeviceGetName(name.as_mut_ptr(), name.len() as c_int, device))?;
    // SAFETY: the driver wrote a text of at most 127 characters and a zero byte.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
    let mut memory_bytes = 0;
    cu!(cuDeviceTotalMem_v2(&raw mut memory_bytes, device))?;
    let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let arch = CudaArch::of_capability(major, minor).ok_or_else(|| {
        DriverError::Absent(format!("{name} has compute capability {major}.{minor}, which no kernel is compiled for"))
    })?;
    let sms = attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let l2_bytes = u64::from(attribute(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?);
    let memory_bytes = memory_bytes as u64;
    let class = CudaClass {
        arch,
        sms,
        l2_mib: (l2_bytes >> 20) as u32,
        memory_gib: memory_bytes.div_ceil(1 << 30) as u32,
        power_w,
    };
    Ok(DeviceFacts { name, class, sms, l2_bytes, memory_bytes, driver })
}

/// Memory of the device.
#[derive(Debug)]
pub struct Buffer {
    driver: Arc<Driver>,
    address: sys::CUdeviceptr,
    bytes: usize,
    taken: usize,
}

impl Buffer {
    /// Where it lies.
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// Fills it with a repeated word.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn fill(&self, word: u32) -> Result<(), DriverError> {
        self.driver.enter()?;
        cu!(cuMemsetD32Async(self.address, word, self.taken / 4, self.driver.stream))
    }

    /// Its bytes, after everything on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says, a fault of an earlier kernel included.
    pub fn download(&self) -> Result<Vec<u8>, DriverError> {
        self.driver.enter()?;
        let mut bytes = vec![0_u8; self.bytes];
        if self.bytes > 0 {
            cu!(cuMemcpyDtoHAsync_v2(bytes.as_mut_ptr().cast(), self.address, self.bytes, self.driver.stream))?;
        }
        self.driver.synchronise()?;
        Ok(bytes)
    }

    /// Overwrites it, after everything on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    ///
    /// # Panics
    /// When there are more bytes than it holds.
    pub fn write(&self, bytes: &[u8]) -> Result<(), DriverError> {
        self.write_at(0, bytes)
    }

    /// Overwrites it from a place on, after everything on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    ///
    /// # Panics
    /// When there are more bytes than it holds from there on.
    pub fn write_at(&self, at: usize, bytes: &[u8]) -> Result<(), DriverError> {
        let end = at.saturating_add(bytes.len());
        assert!(end <= self.bytes, "{} bytes from {at} on do not fit in {}", bytes.len(), self.bytes);
        self.driver.enter()?;
        self.driver.copy_in(self.address + at as u64, bytes)
    }

    /// Puts its first bytes to a further place in it, on the stream.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    ///
    /// # Panics
    /// When the place is among those bytes, or they do not fit there.
    pub fn repeat_at(&self, at: usize, bytes: usize) -> Result<(), DriverError> {
        let end = at.saturating_add(bytes);
        assert!(bytes <= at && end <= self.bytes, "{bytes} bytes do not fit at {at} of {}", self.bytes);
        self.driver.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        cu!(cuMemcpyDtoDAsync_v2(self.address + at as u64, self.address, bytes, self.driver.stream))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            let _ = cu!(cuMemFree_v2(self.address));
        }
    }
}

/// Loaded machine code.
#[derive(Debug)]
pub struct Module {
    driver: Arc<Driver>,
    module: sys::CUmodule,
}

// SAFETY: a handle of the driver, used under its context.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}

/// What the driver says of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionFacts {
    /// Registers of a thread.
    pub registers: u32,
    /// Local memory of a thread in bytes: spills and indexed arrays.
    pub local_bytes: u32,
    /// Static shared memory of a block in bytes.
    pub shared_bytes: u32,
}

impl Module {
    /// A function of the module, with room for dynamic shared memory.
    ///
    /// # Errors
    /// [`DriverError`] where there is none of this name, or not so much shared memory.
    pub fn function(&self, name: &str, shared_bytes: u32) -> Result<Function, DriverError> {
        use sys::CUfunction_attribute as A;
        self.driver.enter()?;
        let call = "cuModuleGetFunction";
        let name = CString::new(name).map_err(|_| DriverError::Call { call, why: "zero byte".to_owned() })?;
        let mut function = ptr::null_mut();
        cu!(cuModuleGetFunction(&raw mut function, self.module, name.as_ptr()))?;
        if shared_bytes > 48 << 10 {
            let attribute = A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            cu!(cuFuncSetAttribute(function, attribute, shared_bytes as c_int))?;
        }
        let ask = |attribute: A| {
            let mut value = 0;
            cu!(cuFuncGetAttribute(&raw mut value, attribute, function)).map(|()| value.unsigned_abs())
        };
        let facts = FunctionFacts {
            registers: ask(A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            local_bytes: ask(A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?,
            shared_bytes: ask(A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?,
        };
        Ok(Function { handle: function, facts })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            let _ = cu!(cuModuleUnload(self.module));
        }
    }
}

/// A function of a module; valid as long as the module.
#[derive(Debug, Clone, Copy)]
pub struct Function {
    handle: sys::CUfunction,
    /// What the driver says of it.
    pub facts: FunctionFacts,
}

impl Function {
    /// Blocks of so many threads, with so much dynamic shared memory each, that one multiprocessor holds at once; 0 where it
    /// holds none.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn blocks_per_sm(&self, driver: &Driver, threads: u32, shared_bytes: u32) -> Result<u32, DriverError> {
        driver.enter()?;
        let mut blocks = 0;
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
            &raw mut blocks,
            self.handle,
            threads as c_int,
            shared_bytes as usize
        ))?;
        Ok(blocks.unsigned_abs())
    }

    /// Clusters that fit on the whole device at once, which may be fewer than its multiprocessors hold blocks for: the blocks
    /// of a cluster lie in one part of the device. Nothing where the function was not compiled as one of clusters.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says.
    pub fn clusters_at_once(
        &self,
        driver: &Driver,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
    ) -> Result<Option<u32>, DriverError> {
        use sys::CUfunction_attribute as A;
        driver.enter()?;
        let mut width = 0;
        cu!(cuFuncGetAttribute(&raw mut width, A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, self.handle))?;
        if width == 0 {
            return Ok(None);
        }
        let config = sys::CUlaunchConfig {
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shared_bytes,
            hStream: driver.stream,
            attrs: ptr::null_mut(),
            numAttrs: 0,
        };
        let mut clusters = 0;
        cu!(cuOccupancyMaxActiveClusters(&raw mut clusters, self.handle, &raw const config))?;
        Ok(Some(clusters.unsigned_abs()))
    }
}

/// A launch with its arguments as words: an address, or a shorter value in the low bytes.
#[derive(Debug, Clone)]
pub struct Launch {
    function: sys::CUfunction,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory in bytes.
    pub shared_bytes: u32,
    /// Arguments.
    pub args: Vec<u64>,
    /// Whether it may begin before the launch in front of it has ended, up to its own wait.
    pub is_overlapped: bool,
}

// SAFETY: a handle of the driver, used under its context.
unsafe impl Send for Launch {}

impl Launch {
    /// A launch of a function.
    pub const fn new(function: Function, grid: [u32; 3], block: [u32; 3], shared_bytes: u32, args: Vec<u64>) -> Self {
        Self { function: function.handle, grid, block, shared_bytes, args, is_overlapped: false }
    }
}

/// A recorded sequence of launches.
#[derive(Debug)]
pub struct Graph {
    driver: Arc<Driver>,
    executable: sys::CUgraphExec,
}

// SAFETY: a handle of the driver, used under its context and by one thread at a time.
unsafe impl Send for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            let _ = cu!(cuGraphExecDestroy(self.executable));
        }
    }
}

/// A moment on the stream.
#[derive(Debug)]
pub struct Event {
    driver: Arc<Driver>,
    event: sys::CUevent,
}

// SAFETY: a handle of the driver, used under its context.
unsafe impl Send for Event {}

impl Event {
    /// Nanoseconds from an earlier moment to this one; waits for it.
    ///
    /// # Errors
    /// [`DriverError`] with what the driver says, a fault of a kernel between them included.
    pub fn since(&self, earlier: &Self) -> Result<u64, DriverError> {
        self.driver.enter()?;
        cu!(cuEventSynchronize(self.event))?;
        let mut milliseconds = 0_f32;
        cu!(cuEventElapsedTime_v2(&raw mut milliseconds, earlier.event, self.event))?;
        Ok((f64::from(milliseconds) * 1e6).round().max(0.0) as u64)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            let _ = cu!(cuEventDestroy_v2(self.event));
        }
    }
}
