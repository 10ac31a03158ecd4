//! Images, the kernels in them, and what may be asked of a kernel.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use berth_proto::cuda::result;

use crate::context;
use crate::edge::{Answer, Image, Out, Text};
use crate::log::say;
use crate::objects::{self, Function, Module};
use crate::process;
use crate::ptx::{self, Kernel};

/// What an SM of the GPUs that are modelled holds at a time.
const THREADS_PER_SM: c_int = 2048;
const BLOCKS_PER_SM: c_int = 32;

/// Loads an image into the current context.
pub(crate) fn load(out: Out<u64>, image: Image) -> Answer {
    out.check()?;
    let context = context::current()?;
    load_into(out, image, Some(context))
}

/// Loads an image for the whole process.
pub(crate) fn load_library(out: Out<u64>, image: Image) -> Answer {
    out.check()?;
    process::get()?;
    load_into(out, image, None)
}

fn load_into(out: Out<u64>, image: Image, context: Option<u64>) -> Answer {
    let kernels = match image.ptx()? {
        None => None,
        Some(text) => Some(scan(text)?),
    };
    let mut objects = objects::lock();
    let handle = objects.fresh_handle();
    objects.modules.insert(handle, Module { context, kernels });
    out.set(handle)
}

fn scan(text: &str) -> Answer<Vec<Arc<Kernel>>> {
    match ptx::scan(text) {
        Ok(kernels) => Ok(kernels.into_iter().map(Arc::new).collect()),
        Err(error) => {
            say(format_args!("image refused: {error:?}"));
            Err(result::INVALID_PTX)
        }
    }
}

pub(crate) fn unload(module: u64) -> Answer {
    process::get()?;
    let mut objects = objects::lock();
    if !objects.modules.contains_key(&module) {
        return Err(result::INVALID_HANDLE);
    }
    objects.forget_module(module);
    Ok(())
}

/// A kernel of a module or library; the same handle serves as function and as kernel.
pub(crate) fn function(out: Out<u64>, module: u64, name: Text) -> Answer {
    process::get()?;
    out.check()?;
    let name = name.get()?;
    let mut objects = objects::lock();
    let image = objects.modules.get(&module).ok_or(result::INVALID_HANDLE)?;
    let kernel = match &image.kernels {
        Some(kernels) => kernels.iter().find(|kernel| kernel.name == name).cloned().ok_or(result::NOT_FOUND)?,
        None => Arc::new(Kernel { name: name.to_owned(), parameters: Vec::new(), cost: None }),
    };
    let handle = objects.fresh_handle();
    objects.functions.insert(handle, Function { module, kernel });
    out.set(handle)
}

/// What a function handle means.
pub(crate) fn find(function: u64) -> Answer<Function> {
    objects::lock().functions.get(&function).cloned().ok_or(result::INVALID_HANDLE)
}

/// A library's kernel as a function of the current context: the same handle.
pub(crate) fn function_of_kernel(out: Out<u64>, kernel: u64) -> Answer {
    context::current()?;
    find(kernel)?;
    out.set(kernel)
}

/// A library as a module of the current context: the same handle.
pub(crate) fn module_of_library(out: Out<u64>, library: u64) -> Answer {
    context::current()?;
    if !objects::lock().modules.contains_key(&library) {
        return Err(result::INVALID_HANDLE);
    }
    out.set(library)
}

pub(crate) fn module_of_function(out: Out<u64>, function: u64) -> Answer {
    process::get()?;
    out.set(find(function)?.module)
}

/// A kernel's name; the text stays for good, as those of loaded images are few.
pub(crate) fn name(out: Out<*const c_char>, function: u64) -> Answer {
    static NAMES: LazyLock<Mutex<HashMap<String, CString>>> = LazyLock::new(Mutex::default);
    process::get()?;
    let name = find(function)?.kernel.name.clone();
    let text = CString::new(name.as_str()).map_err(|_| result::INVALID_VALUE)?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    out.set(names.entry(name).or_insert(text).as_ptr())
}

/// By the attribute's number: the most threads of a block, a plausible number of registers, versions, and 0 otherwise.
pub(crate) fn attribute(out: Out<c_int>, attribute: c_int, function: u64) -> Answer {
    process::get()?;
    find(function)?;
    out.set(match attribute {
        0 => 1024,
        4 => 32,
        5 | 6 => 90,
        1..=15 => 0,
        _ => return Err(result::INVALID_VALUE),
    })
}

/// Blocks of this size that an SM holds at a time, by its threads and its places for blocks. Shared memory is not modelled.
pub(crate) fn blocks_per_sm(out: Out<c_int>, function: u64, threads: c_int) -> Answer {
    process::get()?;
    find(function)?;
    if !(1..=1024).contains(&threads) {
        return Err(result::INVALID_VALUE);
    }
    out.set((THREADS_PER_SM / threads).min(BLOCKS_PER_SM))
}

/// Limits and preferences are accepted; the model has no use for them.
pub(crate) fn accept(function: u64) -> Answer {
    process::get()?;
    find(function).map(drop)
}

/// Images are read when they are loaded: `CU_MODULE_EAGER_LOADING`.
pub(crate) fn loading_mode(out: Out<c_int>) -> Answer {
    out.set(1)
}
