//! The process under test: loads the simulated driver and does what its standard input says, one line at a time.
//!
//! Each answer is one line: `@ RESULT VALUE MICROSECONDS`. It is this same test program, started again with one
//! "test" that does nothing unless it was started for this.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use berth_sim::Profile;
use berth_sim::server::{ServeOptions, find_libraries, serve};
use libloading::Library;

/// Where the child finds the driver.
pub const LIBRARY: &str = "BERTH_TEST_LIBCUDA";
/// What a server in a process of its own serves.
pub const SERVE: &str = "BERTH_TEST_SERVE";

/// Kernels whose costs are their arguments: arithmetic in units of a thousand million, and memory accesses that take a quarter of its time on an
/// H200.
const PTX: &str = "
.version 7.0
.target sm_52
.address_size 64
// berth-cost: work flops 1e9 p0 bytes 2e8 p0
.visible .entry work(.param .u64 giga) { ret; }
";

pub struct Driver {
    pub library: Library,
    /// Set by `module`.
    pub kernel: u64,
    pointer: u64,
    pub stream: u64,
    pub events: [u64; 2],
    /// A second stream, and what was captured and instantiated last.
    pub other: u64,
    pub graph: u64,
    pub executable: u64,
}

macro_rules! call {
    ($driver:expr, $name:literal ($($type:ty),*) $(, $arg:expr)*) => {{
        // SAFETY: the types are those of the driver API's header.
        unsafe {
            let function: libloading::Symbol<unsafe extern "C" fn($($type),*) -> u32> =
                $driver.library.get($name).unwrap();
            function($($arg),*)
        }
    }};
}

impl Driver {
    fn obey(&mut self, line: &str) -> (u32, u64) {
        let mut words = line.split_whitespace();
        let verb = words.next().unwrap();
        let n: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let (mut out, mut small) = (0_u64, 0 as c_int);
        let code = match verb {
            "init" => call!(self, b"cuInit"(c_uint), 0),
            "count" => call!(self, b"cuDeviceGetCount"(*mut c_int), &mut small),
            "ctx" => call!(self, b"cuCtxCreate_v2"(*mut u64, c_uint, c_int), &mut out, 0, n as c_int),
            "retain" => call!(self, b"cuDevicePrimaryCtxRetain"(*mut u64, c_int), &mut out, n as c_int),
            "release" => call!(self, b"cuDevicePrimaryCtxRelease_v2"(c_int), n as c_int),
            "current" => call!(self, b"cuCtxGetCurrent"(*mut u64), &mut out),
            "use" => call!(self, b"cuCtxSetCurrent"(u64), n),
            "destroy" => call!(self, b"cuCtxDestroy_v2"(u64), n),
            "alloc" => {
                let code = call!(self, b"cuMemAlloc_v2"(*mut u64, usize), &mut out, n as usize);
                self.pointer = if code == 0 { out } else { self.pointer };
                code
            }
            "free" => call!(self, b"cuMemFree_v2"(u64), self.pointer),
            "memory" => {
                let mut total = 0_usize;
                let mut free = 0_usize;
                let code = call!(self, b"cuMemGetInfo_v2"(*mut usize, *mut usize), &mut free, &mut total);
                out = free as u64;
                code
            }
            "upload" => {
                call!(self, b"cuMemcpyHtoD_v2"(u64, *const c_void, usize), self.pointer, self.host(), n as usize)
            }
            "download" => {
                call!(self, b"cuMemcpyDtoH_v2"(*mut c_void, u64, usize), self.host().cast_mut(), self.pointer, n as usize)
            }
            "module" => self.load_kernel(),
            "launch" => self.launch(n, 0),
            "launch-stream" => self.launch(n, self.stream),
            "sync" => call!(self, b"cuCtxSynchronize"()),
            "stream" => {
                let code = call!(self, b"cuStreamCreate"(*mut u64, c_uint), &mut out, 0);
                self.stream = out;
                code
            }
            "stream-sync" => call!(self, b"cuStreamSynchronize"(u64), self.stream),
            "stream-query" => call!(self, b"cuStreamQuery"(u64), self.stream),
            "events" => {
                let [start, end] = &mut self.events;
                call!(self, b"cuEventCreate"(*mut u64, c_uint), start, 0)
                    | call!(self, b"cuEventCreate"(*mut u64, c_uint), end, 0)
            }
            "record" => call!(self, b"cuEventRecord"(u64, u64), self.events[n as usize], 0),
            "record-stream" => call!(self, b"cuEventRecord"(u64, u64), self.events[n as usize], self.stream),
            "event-sync" => call!(self, b"cuEventSynchronize"(u64), self.events[n as usize]),
            "elapsed-us" => {
                let mut ms = 0_f32;
                let [start, end] = self.events;
                let code = call!(self, b"cuEventElapsedTime"(*mut f32, u64, u64), &mut ms, start, end);
                out = (ms * 1000.0) as u64;
                code
            }
            "lock" => {
                let arguments = berth_proto::cuda::CheckpointLockArgs::default();
                call!(self, b"cuCheckpointProcessLock"(c_int, *const c_void), n as c_int, std::ptr::from_ref(&arguments).cast())
            }
            "unlock" => call!(self, b"cuCheckpointProcessUnlock"(c_int, *const c_void), n as c_int, std::ptr::null()),
            "state" => call!(self, b"cuCheckpointProcessGetState"(c_int, *mut u64), n as c_int, &mut out),
            "graph" => call!(self, b"cuGraphCreate"(*mut u64, c_uint), &mut out, 0),
            "fork" => {
                out = self.fork_and_init();
                0
            }
            "linger" => {
                linger();
                0
            }
            "exec" => exec_again(),
            "threads" => self.threads(n),
            "relay" => self.relay(n as libc::pid_t),
            "ptsz" => crate::ptsz::in_client(&self.library, self.kernel),
            "capture" => return crate::graphs::in_client(self, line),
            "green" => return crate::green::in_client(self, line),
            "word" => return crate::words::in_client(&self.library, self.stream, line),
            other => panic!("no such command: {other}"),
        };
        if small != 0 {
            out = small as u64;
        }
        (code, out)
    }

    /// Some host memory; the simulated driver does not read it.
    fn host(&self) -> *const c_void {
        std::ptr::from_ref(self).cast()
    }

    fn load_kernel(&mut self) -> u32 {
        let text = CString::new(PTX).unwrap();
        let mut module = 0;
        let code = call!(self, b"cuModuleLoadData"(*mut u64, *const c_char), &mut module, text.as_ptr());
        if code != 0 {
            return code;
        }
        let name: *const c_char = c"work".as_ptr();
        call!(self, b"cuModuleGetFunction"(*mut u64, u64, *const c_char), &mut self.kernel, module, name)
    }

    pub fn launch(&self, giga_flops: u64, stream: u64) -> u32 {
        let mut argument = giga_flops;
        let mut pointers = [std::ptr::from_mut(&mut argument)];
        call!(
            self,
            b"cuLaunchKernel"(
                u64, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, u64, *mut *mut u64, *mut *mut c_void
            ),
            self.kernel, 10_000, 1, 1, 256, 1, 1, 0, stream, pointers.as_mut_ptr(), std::ptr::null_mut()
        )
    }

    /// What a forked child gets from `cuInit`, and from a call that needs no server.
    fn fork_and_init(&self) -> u64 {
        // SAFETY: the child only calls the driver, which must stand this, and leaves.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let mut count = 0;
            let again = call!(self, b"cuInit"(c_uint), 0);
            let use_it = call!(self, b"cuDeviceGetCount"(*mut c_int), &mut count);
            let both = if again == use_it { again } else { 255 };
            // SAFETY: leaves without running anything of the parent's.
            unsafe { libc::_exit(both as c_int) };
        }
        let mut status = 0;
        // SAFETY: our own child.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        libc::WEXITSTATUS(status) as u64
    }

    /// This thread queues something, then another one queues a kernel on a stream, then this one waits for the context,
    /// while the server is stopped and so meets all three at once. The stream must be idle then.
    fn relay(&self, server: libc::pid_t) -> u32 {
        let mut context = 0;
        call!(self, b"cuCtxGetCurrent"(*mut u64), &mut context);
        let (go, told) = mpsc::channel();
        let (done, launched) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                // The first call connects, which needs the server.
                done.send(call!(self, b"cuCtxSetCurrent"(u64), context) | call!(self, b"cuCtxSynchronize"())).unwrap();
                told.recv().unwrap();
                done.send(self.launch(1000, self.stream)).unwrap();
                // Stays until the end: a thread that ends closes its connection, which is looked at first.
                told.recv().unwrap();
            });
            let connected = launched.recv().unwrap();
            signal(server, libc::SIGSTOP);
            while !is_stopped(server) {
                std::thread::yield_now();
            }
            let first = self.launch(1, 0);
            go.send(()).unwrap();
            let second = launched.recv().unwrap();
            // SAFETY: asks for a number.
            let waiter = unsafe { libc::gettid() };
            scope.spawn(move || {
                while !is_receiving(waiter) {
                    std::thread::yield_now();
                }
                signal(server, libc::SIGCONT);
            });
            let waited = call!(self, b"cuCtxSynchronize"()) | call!(self, b"cuStreamQuery"(u64), self.stream);
            go.send(()).unwrap();
            connected | first | second | waited
        })
    }

    /// `count` threads that each sync on their own; a thread that waits must not make another wait.
    fn threads(&self, count: u64) -> u32 {
        let mut context = 0;
        call!(self, b"cuCtxGetCurrent"(*mut u64), &mut context);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    scope.spawn(move || {
                        call!(self, b"cuCtxSetCurrent"(u64), context) | call!(self, b"cuCtxSynchronize"())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).fold(0, |all, code| all | code)
        })
    }
}

fn signal(pid: libc::pid_t, signal: c_int) {
    // SAFETY: the test's own server.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn is_stopped(pid: libc::pid_t) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let state = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("stat")).unwrap();
    tasks.into_iter().all(|task| state(task.unwrap()).contains(") T "))
}

/// Whether a thread of ours waits in `recv`.
fn is_receiving(thread: libc::pid_t) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
    call.split(' ').next() == Some(&libc::SYS_recvfrom.to_string())
}

/// The process the servers of some tests live in: serves the directory it is given until it is killed.
#[test]
fn server_process() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let mut options = ServeOptions::new(dir, Profile::builtin("h200").unwrap());
    options.libraries = Some(find_libraries().unwrap());
    options.time_scale = 10.0;
    serve(options, || false).unwrap();
}

/// Leaves a forked child behind that holds every descriptor of ours open until its standard input ends.
fn linger() {
    // SAFETY: the child only waits and leaves.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut byte = 0_u8;
        // SAFETY: one byte into one byte; the pipe ends when the test drops it.
        while unsafe { libc::read(0, std::ptr::from_mut(&mut byte).cast(), 1) } > 0 {}
        // SAFETY: leaves without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
}

/// Becomes this same client anew, with the same pid.
fn exec_again() -> u32 {
    use std::os::unix::process::CommandExt;
    panic!("{}", std::process::Command::new("/proc/self/exe").args(std::env::args().skip(1)).exec());
}

#[test]
fn client_process() {
    let Some(path) = std::env::var_os(LIBRARY) else { return };
    // SAFETY: the library under test has no constructor.
    let library = unsafe { Library::new(Path::new(&path)) }.unwrap();
    let mut driver =
        Driver { library, kernel: 0, pointer: 0, stream: 0, events: [0; 2], other: 0, graph: 0, executable: 0 };
    for line in std::io::stdin().lock().lines() {
        let line = line.unwrap();
        if line == "quit" {
            std::process::exit(0);
        }
        let started = Instant::now();
        let (code, value) = driver.obey(&line);
        println!("\n@ {code} {value} {}", started.elapsed().as_micros());
        std::io::stdout().flush().unwrap();
    }
}
