//! sim-nvml
