//! Unsafe code behind safe names: the dynamic linker, the driver's functions, sockets, the process, shared words, and the kernel's driver.

pub(crate) mod current;
pub(crate) mod dl;
pub(crate) mod driver;
pub(crate) mod futex;
pub(crate) mod groups;
pub(crate) mod process;
pub(crate) mod socket;
pub(crate) mod stop;
