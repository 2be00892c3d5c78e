//! Checks, interleaved trials and the observation of the machine.

pub mod arm;
pub mod cell;
pub mod check;
pub mod engine_arm;
pub mod fake;
pub mod host_runner;
pub mod lock;
pub mod observe;
pub mod open;
pub mod outcome;
pub mod planted;
pub mod process;
pub mod progress;
pub mod rig;
pub mod runner;
pub mod suite;
pub mod trial;
pub mod weights;
