//! sim-cuda
