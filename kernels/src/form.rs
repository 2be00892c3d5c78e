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
    /// Launches that run once for each copy, in order, before any other and outside what is timed: they lay weights out.
    pub prologue: Vec<LaunchForm>,
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
    /// Where the blocks along x walk over the work by the size of the grid: how many of them belong together, 1 or those of a
    /// cluster. The backend launches no more than fit on the device at once, as [`persistent_grid`] says.
    pub persistent: Option<u32>,
}

/// A grid of which the blocks along x walk over the work, made as small as the device is: `group` blocks along x belong
/// together, `slots` blocks fit on the device at once.
///
/// What fits at once does the work in as few rounds as it takes, and no more groups are launched than those rounds need: so
/// every group gets as many rounds as the others, or one less. At least one group is launched, and never more than there
/// were. Blocks along y and z share the device.
pub fn persistent_grid(grid: [u32; 3], group: u32, slots: u64) -> [u32; 3] {
    let [x, y, z] = grid.map(u64::from);
    let group = u64::from(group.max(1));
    let groups = x.div_ceil(group).max(1);
    let at_once = (slots / group / (y * z).max(1)).max(1);
    let launched = groups.div_ceil(groups.div_ceil(at_once));
    // No more than there were, so it fits.
    [u32::try_from(launched * group).unwrap_or(grid[0]), grid[1], grid[2]]
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
        for launch in self.prologue.iter().chain(&self.launches) {
            let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
            if launch.grid.contains(&0) || !(1..=1024).contains(&threads) || launch.grid[1].max(launch.grid[2]) > 65535
            {
                return Some(format!("{}: no grid {:?} of {:?} threads", launch.entry, launch.grid, launch.block));
            }
            if let Some(group) = launch.persistent
                && (group == 0 || !launch.grid[0].is_multiple_of(group))
            {
                return Some(format!("{}: no groups of {group} blocks in a grid {:?}", launch.entry, launch.grid));
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_persistent_grid_is_as_small_as_the_device() {
        // 132 multiprocessors of two blocks: 264 at once.
        assert_eq!(persistent_grid([100, 1, 1], 1, 264), [100, 1, 1]);
        assert_eq!(persistent_grid([264, 1, 1], 1, 264), [264, 1, 1]);
        // 300 blocks take two rounds, of 150 and not of 264 and 36.
        assert_eq!(persistent_grid([300, 1, 1], 1, 264), [150, 1, 1]);
        // 2400 blocks in 300 clusters of eight, 33 at once: ten rounds of 30.
        assert_eq!(persistent_grid([2400, 1, 1], 8, 264), [240, 1, 1]);
        assert_eq!(persistent_grid([300, 2, 1], 1, 264), [100, 2, 1]);
        // A device that holds nothing is told so by the launch.
        assert_eq!(persistent_grid([300, 1, 1], 8, 0), [8, 1, 1]);
        assert_eq!(persistent_grid([u32::MAX, 1, 1], 1, u64::MAX), [u32::MAX, 1, 1]);
    }

    #[test]
    fn groups_that_do_not_fill_a_grid_are_named() {
        let launch = |persistent| LaunchForm {
            entry: "walk".to_owned(),
            grid: [12, 1, 1],
            block: [32, 1, 1],
            shared_bytes: 0,
            args: Vec::new(),
            persistent,
        };
        let fault = |persistent| DeviceForm { launches: vec![launch(persistent)], ..DeviceForm::default() }.fault();
        assert_eq!((fault(None), fault(Some(1)), fault(Some(4))), (None, None, None));
        for bad in [0, 8] {
            assert!(fault(Some(bad)).is_some_and(|why| why.contains(&format!("walk: no groups of {bad} blocks"))));
        }
    }

    proptest! {
        #[test]
        fn rounds_are_fewest_and_even(groups in 1_u32..100_000, group in 1_u32..9, slots in 0_u64..5_000) {
            let [x, ..] = persistent_grid([groups * group, 1, 1], group, slots);
            prop_assert!(x >= group && x % group == 0 && x <= groups * group);
            let (launched, at_once) = (x / group, u32::try_from(slots).unwrap_or(u32::MAX) / group);
            prop_assert!(launched <= at_once.max(1));
            // As few rounds as all that fits would need, and one group less would need another.
            let rounds = groups.div_ceil(launched);
            prop_assert_eq!(rounds, groups.div_ceil(at_once.max(1)));
            prop_assert!(launched == 1 || groups.div_ceil(launched - 1) > rounds);
        }
    }
}
