//! A form on the device: ready to launch, outputs readable, slots as graphs.

use std::collections::HashMap;
use std::sync::Arc;

use memra_contract::{Tensor, TensorSet};

use super::driver::{Buffer, Driver, DriverError, Event, Function, Graph, Launch, Module};
use crate::backend::host::Pool;
use crate::contract::{LaunchError, Prepared};
use crate::form::{Arg, DeviceForm, LaunchForm, LaunchMode, OutputForm, persistent_grid};

/// Bytes before and after an output that a launch must not touch.
const GUARD_BYTES: usize = 256;

/// The word that fills them.
const GUARD: u32 = 0xA5A5_A5A5;

/// Where buffers that rotate begin: a multiple of this, as allocations of the driver do.
const ALIGNMENT: usize = 256;

/// Most launches that one graph holds.
const GRAPH_LAUNCHES: u32 = 256;

struct Output {
    form: OutputForm,
    buffer: Buffer,
    /// What was read back after the last launch: guard, contents, guard.
    bytes: Vec<u8>,
}

impl Output {
    /// Contents rounded up, so that the guard behind them is aligned.
    fn body(&self) -> usize {
        self.form.bytes().next_multiple_of(GUARD_BYTES)
    }

    fn contents(&self) -> &[u8] {
        &self.bytes[GUARD_BYTES..GUARD_BYTES + self.form.bytes()]
    }
}

/// Where the buffers of a copy lie in one allocation for all copies.
#[derive(Debug, PartialEq, Eq)]
struct Slab {
    /// Where each buffer of a copy begins.
    places: Vec<usize>,
    /// Bytes from a copy to the next.
    stride: usize,
}

impl Slab {
    fn of(buffers: &[Vec<u8>]) -> Self {
        let mut stride = 0;
        let places = buffers
            .iter()
            .map(|buffer| {
                let place = stride;
                // No two buffers begin at one address, empty ones neither.
                stride += buffer.len().max(1).next_multiple_of(ALIGNMENT);
                place
            })
            .collect();
        Self { places, stride }
    }

    /// Uploads one copy and has the device make the others of it.
    fn upload(&self, driver: &Arc<Driver>, buffers: &[Vec<u8>], copies: usize) -> Result<Buffer, DriverError> {
        let Some(bytes) = self.stride.checked_mul(copies) else {
            let why = format!("{copies} copies of {} bytes are more than can be counted", self.stride);
            return Err(DriverError::Call { call: "cuMemAlloc_v2", why });
        };
        let slab = driver.unset(bytes)?;
        for (place, buffer) in self.places.iter().zip(buffers) {
            slab.write_at(*place, buffer)?;
        }
        (1..copies).try_for_each(|copy| slab.repeat_at(copy * self.stride, self.stride))?;
        Ok(slab)
    }
}

/// The grid of a launch on this device.
fn grid_of(driver: &Driver, function: &Function, launch: &LaunchForm) -> Result<[u32; 3], DriverError> {
    let LaunchForm { grid, block, shared_bytes, .. } = launch;
    let Some(group) = launch.persistent else { return Ok(*grid) };
    let per_sm = function.blocks_per_sm(driver, block.iter().product(), *shared_bytes)?;
    let blocks = u64::from(per_sm) * u64::from(driver.facts().sms);
    let clusters = if group > 1 { function.clusters_at_once(driver, *grid, *block, *shared_bytes)? } else { None };
    let slots = clusters.map_or(blocks, |clusters| blocks.min(u64::from(clusters) * u64::from(group)));
    Ok(persistent_grid(*grid, group, slots))
}

/// A variant on the device.
pub(super) struct CudaPrepared {
    driver: Arc<Driver>,
    // Launches hold addresses and functions of these.
    _module: Arc<Module>,
    _fixed: Vec<Buffer>,
    _rotating: Buffer,
    _scratch: Vec<Buffer>,
    outputs: Vec<Output>,
    /// Launches of each copy.
    copies: Vec<Vec<Launch>>,
    copy_bytes: usize,
    mode: LaunchMode,
    poison: u32,
    graphs: HashMap<(usize, u32), Graph>,
    clock: (Event, Event),
}

impl CudaPrepared {
    /// Uploads a form with so many copies of what rotates, and runs its prologue on each.
    pub(super) fn new(
        driver: &Arc<Driver>,
        module: Arc<Module>,
        form: &DeviceForm,
        copies: usize,
    ) -> Result<Self, DriverError> {
        let fixed = form.fixed.iter().map(|bytes| driver.upload(bytes)).collect::<Result<Vec<_>, _>>()?;
        let scratch = form.scratch.iter().map(|bytes| driver.zeroed(*bytes)).collect::<Result<Vec<_>, _>>()?;
        let outputs = form
            .outputs
            .iter()
            .map(|output| {
                let bytes = output.bytes().next_multiple_of(GUARD_BYTES) + 2 * GUARD_BYTES;
                let buffer = driver.zeroed(bytes)?;
                Ok(Output { form: output.clone(), buffer, bytes: vec![0; bytes] })
            })
            .collect::<Result<Vec<_>, DriverError>>()?;
        let slab = Slab::of(&form.rotating);
        let rotating = slab.upload(driver, &form.rotating, copies.max(1))?;
        let functions = form
            .launches
            .iter()
            .map(|launch| {
                let function = module.function(&launch.entry, launch.shared_bytes)?;
                Ok((function, grid_of(driver, &function, launch)?))
            })
            .collect::<Result<Vec<_>, DriverError>>()?;
        let mut launches = Vec::with_capacity(copies.max(1));
        for copy in 0..copies.max(1) {
            let begin = rotating.address() + (copy * slab.stride) as u64;
            let address = |arg: &Arg| match arg {
                Arg::Fixed(index) => fixed[*index].address(),
                Arg::Rotating(index) => begin + slab.places[*index] as u64,
                Arg::Output(index) => outputs[*index].buffer.address() + GUARD_BYTES as u64,
                Arg::Scratch(index) => scratch[*index].address(),
                Arg::U32(value) => u64::from(*value),
                Arg::F32(value) => u64::from(value.to_bits()),
                Arg::Null => 0,
            };
            let launch = |form: &LaunchForm, function: Function, grid: [u32; 3]| {
                Launch::new(function, grid, form.block, form.shared_bytes, form.args.iter().map(address).collect())
            };
            for prologue in &form.prologue {
                let function = module.function(&prologue.entry, prologue.shared_bytes)?;
                driver.launch(&launch(prologue, function, prologue.grid))?;
            }
            let of_copy = form.launches.iter().zip(&functions).map(|(form_of, (function, grid))| {
                let mut launch = launch(form_of, *function, *grid);
                launch.is_overlapped = form.mode == LaunchMode::Overlapped;
                launch
            });
            let of_copy = of_copy.collect();
            launches.push(of_copy);
        }
        driver.synchronise()?;
        Ok(Self {
            driver: Arc::clone(driver),
            _module: module,
            _fixed: fixed,
            _rotating: rotating,
            _scratch: scratch,
            outputs,
            copies: launches,
            copy_bytes: form.copy_bytes(),
            mode: form.mode,
            poison: 0,
            graphs: HashMap::new(),
            clock: (driver.event()?, driver.event()?),
        })
    }

    fn run(&self, copy: usize) -> Result<(), DriverError> {
        self.copies[copy % self.copies.len()].iter().try_for_each(|launch| self.driver.launch(launch))
    }

    fn launch_and_read(&mut self, copy: usize) -> Result<(), DriverError> {
        for output in &self.outputs {
            output.buffer.fill(GUARD)?;
            let mut bytes: Vec<u8> = vec![0; output.form.bytes()];
            for (byte, pattern) in bytes.iter_mut().zip(self.poison.to_le_bytes().iter().cycle()) {
                *byte = *pattern;
            }
            let mut all = vec![0xA5; GUARD_BYTES];
            all.extend(bytes);
            output.buffer.write(&all)?;
        }
        self.run(copy)?;
        for output in &mut self.outputs {
            output.bytes = output.buffer.download()?;
        }
        Ok(())
    }

    fn graph(&mut self, copy: usize, launches: u32) -> Result<&Graph, DriverError> {
        let key = (copy % self.copies.len(), launches);
        if !self.graphs.contains_key(&key) {
            let driver = Arc::clone(&self.driver);
            let graph = driver.capture(|| (0..launches as usize).try_for_each(|n| self.run(key.0 + n)))?;
            self.graphs.insert(key, graph);
        }
        Ok(&self.graphs[&key])
    }

    /// Launches as graphs: whole ones of [`GRAPH_LAUNCHES`], then the rest.
    fn slot(&mut self, copy: usize, launches: u32) -> Result<u64, DriverError> {
        if self.mode == LaunchMode::Eager {
            self.driver.synchronise()?;
            self.driver.record(&self.clock.0)?;
            (0..launches as usize).try_for_each(|n| self.run(copy.wrapping_add(n)))?;
            self.driver.record(&self.clock.1)?;
            return self.clock.1.since(&self.clock.0);
        }
        let mut parts = Vec::new();
        let (mut left, mut at) = (launches, copy % self.copies.len());
        while left > 0 {
            let part = left.min(GRAPH_LAUNCHES);
            self.graph(at, part)?;
            parts.push((at, part));
            (left, at) = (left - part, (at + part as usize) % self.copies.len());
        }
        self.driver.synchronise()?;
        self.driver.record(&self.clock.0)?;
        for key in parts {
            self.driver.start(&self.graphs[&key])?;
        }
        self.driver.record(&self.clock.1)?;
        self.clock.1.since(&self.clock.0)
    }
}

fn failed(error: &DriverError) -> LaunchError {
    LaunchError(error.to_string())
}

impl Prepared for CudaPrepared {
    fn launch(&mut self, _: &Pool, copy: usize) -> Result<(), LaunchError> {
        self.launch_and_read(copy).map_err(|error| failed(&error))
    }

    fn timed(&mut self, _: &Pool, copy: usize, launches: u32) -> Result<u64, LaunchError> {
        self.slot(copy, launches).map_err(|error| failed(&error))
    }

    fn outputs(&self) -> TensorSet {
        let tensor = |output: &Output| Tensor {
            name: output.form.name.clone(),
            dtype: output.form.dtype,
            shape: output.form.shape.clone(),
            bytes: output.contents().to_vec(),
        };
        TensorSet::new(self.outputs.iter().map(tensor).collect())
    }

    /// The pattern is put there by the next launch.
    fn poison(&mut self, pattern: u32) {
        self.poison = pattern;
    }

    fn guards_hold(&self) -> bool {
        self.outputs.iter().all(|output| {
            let end = GUARD_BYTES + output.form.bytes();
            debug_assert!(end <= GUARD_BYTES + output.body());
            output.bytes[..GUARD_BYTES].iter().chain(&output.bytes[end..]).all(|byte| *byte == 0xA5)
        })
    }

    fn copy_bytes(&self) -> usize {
        self.copy_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_copy_begin_at_aligned_places_of_their_own() {
        let slab = Slab::of(&[vec![0; 3], Vec::new(), vec![0; 256], vec![0; 257]]);
        assert_eq!(slab, Slab { places: vec![0, 256, 512, 768], stride: 768 + 512 });
        assert_eq!(Slab::of(&[]), Slab { places: Vec::new(), stride: 0 });
    }
}
