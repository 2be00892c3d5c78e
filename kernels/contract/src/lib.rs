//! The words the whole lab shares: contracts, axes, formats, order classes, tolerance, cost, device keys and defaults.
//!
//! This crate is a leaf. It has no CUDA, no IO, no threads and no `unsafe`; everything in it is a pure function or a
//! value. The order classes in [`order`] are executable: they are the definition that every kernel is compared with,
//! bit for bit, so they are written to be read and not to be fast.

pub mod cost;
pub mod defaults;
pub mod device;
pub mod digest;
pub mod format;
pub mod id;
pub mod order;
pub mod problem;
pub mod tensor;
pub mod tolerance;
pub mod weights;

pub use cost::Cost;
pub use device::{DeviceKey, IsaTier};
pub use format::{BlockFormat, DType};
pub use id::{ContractId, IdError, VariantId};
pub use order::OrderClass;
pub use problem::{AxisValue, Problem, ProblemError};
pub use tensor::{Tensor, TensorSet};
pub use tolerance::Tolerance;
