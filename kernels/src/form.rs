//! What a device variant launches, as plain data: buffers with their contents, grids, arguments.
//!
//! A form is made without a device, so that repacked layouts and launch geometry are tested where there is none; a backend
//! uploads it and launches it.

use memra_contract::DType;

/// A problem laid out for a device variant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceForm {
    /// Contents of buffers that are uploaded once.
    pub fixed: Vec<Vec<u8>>,
    /// Contents of one copy of the buffers that rotate: the weights.
    pub rotating: Vec<Vec<u8>>,
    /// Buffers that are read back.
    pub outputs: Vec<OutputForm>,
    /// Sizes in bytes of buffers that only the launches see; zeroed once.
    pub scratch: Vec<usize>,
    /// The launches, in order.
    pub launches: Vec<LaunchForm>,
    /// How slots are launched.
    pub mode: LaunchMode,
}

/// How the launches of a slot reach the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaunchMode {
    /// Recorded in graphs, each launch after the end of the one before.
    #[default]
    Graph,
    /// Recorded in graphs; a launch may begin while the one before it ends, up to its own wait (`griddepcontrol.wait`).
    Overlapped,
    /// One call of the driver each.
    Eager,
}

/// An output in the contract's layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputForm {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Sizes, slowest first.
    pub shape: Vec<usize>,
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchForm {
    /// Entry point in the variant's text.
    pub entry: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// Arguments in order.
    pub args: Vec<Arg>,
}

/// One argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arg {
    /// Address of a buffer that is uploaded once.
    Fixed(usize),
    /// Address of a rotating buffer of the copy that is launched.
    Rotating(usize),
    /// Address of an output.
    Output(usize),
    /// Address of a scratch buffer.
    Scratch(usize),
    /// A 32-bit number.
    U32(u32),
    /// A float.
    F32(f32),
    /// A null address.
    Null,
}

impl OutputForm {
    /// Bytes of the output.
    pub fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }
}

impl DeviceForm {
    /// Bytes of one copy of what rotates.
    pub fn copy_bytes(&self) -> usize {
        self.rotating.iter().map(Vec::len).sum()
    }

    /// The first thing that does not fit together: an argument without a buffer, or an empty grid.
    pub fn fault(&self) -> Option<String> {
        for launch in &self.launches {
            let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
            if launch.grid.contains(&0) || !(1..=1024).contains(&threads) || launch.grid[1].max(launch.grid[2]) > 65535
            {
                return Some(format!("{}: no grid {:?} of {:?} threads", launch.entry, launch.grid, launch.block));
            }
            for arg in &launch.args {
                let is_there = match arg {
                    Arg::Fixed(index) => *index < self.fixed.len(),
                    Arg::Rotating(index) => *index < self.rotating.len(),
                    Arg::Output(index) => *index < self.outputs.len(),
                    Arg::Scratch(index) => *index < self.scratch.len(),
                    Arg::U32(_) | Arg::F32(_) | Arg::Null => true,
                };
                if !is_there {
                    return Some(format!("{}: {arg:?} is no buffer", launch.entry));
                }
            }
        }
        if self.launches.is_empty() { Some("nothing is launched".to_owned()) } else { None }
    }
}
