//! Checks, interleaved trials and the observation of the machine.
