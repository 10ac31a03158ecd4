//! The channel groups of this process: what the GPU runs of it, as the kernel's driver knows it.
//!
//! libcuda has one made for each context and engine by an `ioctl` of the kernel's driver. We stand before `ioctl` to see their names, and do
//! nothing else there. Whoever has a group may have it preempted, in the middle of a kernel: the GPU saves what runs and turns to the next
//! process. It comes back by itself, so nobody is ever left standing by it. Under MPS a client has none: the server has them.

use std::ffi::{c_int, c_ulong, c_void};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::sys::dl;

/// The magic number of the driver's calls, and those that matter: `NV_ESC_RM_FREE`, `NV_ESC_RM_CONTROL`, `NV_ESC_RM_ALLOC`.
const MAGIC: c_ulong = b'F' as c_ulong;
const FREE: c_ulong = 0x29;
const CONTROL: c_ulong = 0x2a;
const ALLOC: c_ulong = 0x2b;
/// `KEPLER_CHANNEL_GROUP_A`, and the engines that compute: `NV2080_ENGINE_TYPE_GR0` to `GR7`.
const CHANNEL_GROUP: u32 = 0xa06c;
const ENGINES: std::ops::RangeInclusive<u32> = 1..=8;
/// `NVA06C_CTRL_CMD_SET_TIMESLICE`, `…_GET_TIMESLICE` and `…_PREEMPT`. None needs a right.
const SET_SLICE: u32 = 0xa06c_0103;
const GET_SLICE: u32 = 0xa06c_0104;
const PREEMPT: u32 = 0xa06c_0105;
/// The device numbers of `/dev/nvidiactl` and its like.
const NVIDIA_MAJOR: u32 = 195;
const MOST: usize = 16;
/// A slot that is being written.
const WRITING: u64 = 1;

/// The beginning of what `ALLOC` is given, in all of its versions.
#[repr(C)]
struct Alloc {
    client: u32,
    parent: u32,
    object: u32,
    class: u32,
    parameters: *const GroupParameters,
}

/// The beginning of what a channel group is made by.
#[repr(C)]
struct GroupParameters {
    error: u32,
    ecc_error: u32,
    address_space: u32,
    engine: u32,
}

#[repr(C)]
struct Free {
    client: u32,
    parent: u32,
    object: u32,
    status: u32,
}

#[repr(C)]
struct Control {
    client: u32,
    object: u32,
    command: u32,
    flags: u32,
    parameters: *const c_void,
    size: u32,
    status: u32,
}

/// It does not wait until it is so.
#[repr(C)]
struct Preempt {
    waits: u8,
    has_timeout: u8,
    timeout_us: u32,
}

/// How long the GPU runs a group before it turns to another process that has work, in microseconds.
#[repr(C)]
struct Slice {
    us: u64,
}

const _: () = assert!(size_of::<Preempt>() == 8 && size_of::<Slice>() == 8);

/// Its third argument, whatever it is, is passed as a pointer is.
pub(crate) type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;

/// Groups that compute, without locks: libcuda may make them in any thread.
#[derive(Debug)]
pub(crate) struct Groups([Slot; MOST]);

#[derive(Debug)]
struct Slot {
    /// Client and group, 0 for nobody.
    name: AtomicU64,
    /// The device it is of, and the descriptor it was made through.
    place: AtomicU64,
    /// The slice that it was made with, once that was asked, or [`REFUSED`]; and the one it was given, 0 for its own.
    own_slice_us: AtomicU64,
    slice_us: AtomicU64,
}

/// The driver does not tell, or does not let it be changed: it is not asked again.
const REFUSED: u64 = u64::MAX;

/// One group, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    client: u32,
    object: u32,
    device: u32,
    descriptor: c_int,
}

pub(crate) static GROUPS: Groups = Groups::new();

/// The next `ioctl` after ours. Found once, without a lock: a child may be forked meanwhile.
pub(crate) fn real_ioctl() -> Option<Ioctl> {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    let mut found = FOUND.load(Ordering::Relaxed);
    if found.is_null() {
        found = dl::search(libc::RTLD_NEXT, c"ioctl");
        FOUND.store(found, Ordering::Relaxed);
    }
    // SAFETY: it is the function of that name.
    (!found.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Ioctl>(found) })
}

/// Whether a call may be one that makes or frees a group.
pub(crate) fn matters(request: c_ulong) -> bool {
    request >> 8 & 0xff == MAGIC && matches!(request & 0xff, FREE | ALLOC)
}

impl Groups {
    const fn new() -> Self {
        Self([const { Slot::new() }; MOST])
    }

    /// After such a call went well.
    ///
    /// # Safety
    /// `argument` is what the kernel's driver was given with `request`.
    pub(crate) unsafe fn note(&self, descriptor: c_int, request: c_ulong, argument: *const c_void) {
        let size = usize::try_from(request >> 16 & 0x3fff).unwrap_or(0);
        match request & 0xff {
            ALLOC if size >= size_of::<Alloc>() && !argument.is_null() => {
                // SAFETY: the driver has read that much.
                let Alloc { client, parent, object, class, parameters } =
                    unsafe { argument.cast::<Alloc>().read_unaligned() };
                if class != CHANNEL_GROUP || parameters.is_null() {
                    return;
                }
                // SAFETY: a group is made by parameters that begin so, and the driver has read them.
                let engine = unsafe { parameters.read_unaligned() }.engine;
                if ENGINES.contains(&engine) {
                    self.add(Group { client, object, device: parent, descriptor });
                }
            }
            FREE if size >= size_of::<Free>() && !argument.is_null() => {
                // SAFETY: as above. What is freed is a group, what it is in, or everything of a client.
                let Free { client, object, .. } = unsafe { argument.cast::<Free>().read_unaligned() };
                self.remove(|group| group.client == client && [group.object, group.device, client].contains(&object));
            }
            _ => {}
        }
    }

    fn add(&self, group: Group) {
        let is_free =
            |slot: &&Slot| slot.name.compare_exchange(0, WRITING, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if let Some(slot) = self.0.iter().find(is_free) {
            slot.own_slice_us.store(0, Ordering::Relaxed);
            slot.slice_us.store(0, Ordering::Relaxed);
            slot.place.store(pair(group.device, group.descriptor.cast_unsigned()), Ordering::Relaxed);
            slot.name.store(pair(group.client, group.object), Ordering::Release);
        }
    }

    fn remove(&self, matches: impl Fn(Group) -> bool) {
        for slot in &self.0 {
            let name = slot.name.load(Ordering::Acquire);
            if slot.get().is_some_and(&matches) {
                let _ = slot.name.compare_exchange(name, 0, Ordering::AcqRel, Ordering::Relaxed);
            }
        }
    }

    /// In a forked child, which has none.
    pub(crate) fn clear(&self) {
        self.remove(|_| true);
    }

    /// Has `preempt` preempt all there are; groups of which it cannot are forgotten. `false` where nothing was: where there are none, or where
    /// they are of several GPUs, of which nobody knows which is meant.
    pub(crate) fn preempt_all(&self, preempt: impl Fn(Group) -> bool) -> bool {
        let mut any = false;
        for group in self.of_one_gpu().filter_map(Slot::get) {
            if preempt(group) {
                any = true;
            } else {
                self.remove(|other| other == group);
            }
        }
        any
    }

    /// Gives all there are this slice; 0 gives each its own back. `own` asks the driver for the one a group has, `set` sets one. Of a group that
    /// has the slice already, or of which the driver refuses, nothing is asked.
    pub(crate) fn slice_all(&self, us: u64, own: impl Fn(Group) -> Option<u64>, set: impl Fn(Group, u64) -> bool) {
        for slot in self.of_one_gpu() {
            let own_us = slot.own_slice_us.load(Ordering::Relaxed);
            let Some(group) = slot.get().filter(|_| own_us != REFUSED && slot.slice_us.load(Ordering::Relaxed) != us)
            else {
                continue;
            };
            let known = Some(own_us).filter(|own_us| *own_us > 0).or_else(|| own(group));
            let is_set = known.is_some_and(|own_us| set(group, if us == 0 { own_us } else { us }));
            slot.own_slice_us.store(known.filter(|_| is_set).unwrap_or(REFUSED), Ordering::Relaxed);
            slot.slice_us.store(us, Ordering::Relaxed);
        }
    }

    /// None where they are of several: nobody knows which is which.
    fn of_one_gpu(&self) -> impl Iterator<Item = &Slot> {
        let devices = || self.0.iter().filter_map(Slot::get).map(|group| group.device);
        let is_one = devices().next().is_some_and(|first| devices().all(|device| device == first));
        self.0.iter().filter(move |_| is_one)
    }
}

impl Slot {
    const fn new() -> Self {
        Self {
            name: AtomicU64::new(0),
            place: AtomicU64::new(0),
            own_slice_us: AtomicU64::new(0),
            slice_us: AtomicU64::new(0),
        }
    }

    fn get(&self) -> Option<Group> {
        let name = self.name.load(Ordering::Acquire);
        let ((client, object), (device, descriptor)) = (halves(name), halves(self.place.load(Ordering::Relaxed)));
        (name > WRITING).then_some(Group { client, object, device, descriptor: descriptor.cast_signed() })
    }
}

impl Group {
    /// Takes it off the GPU in the middle of what it does. Whether the driver did.
    pub(crate) fn preempt(self, ioctl: Ioctl) -> bool {
        self.control(ioctl, PREEMPT, &mut Preempt { waits: 0, has_timeout: 0, timeout_us: 0 })
    }

    /// In microseconds.
    pub(crate) fn slice(self, ioctl: Ioctl) -> Option<u64> {
        let mut slice = Slice { us: 0 };
        self.control(ioctl, GET_SLICE, &mut slice).then_some(slice.us).filter(|us| *us > 0)
    }

    pub(crate) fn set_slice(self, ioctl: Ioctl, us: u64) -> bool {
        self.control(ioctl, SET_SLICE, &mut Slice { us })
    }

    fn control<T>(self, ioctl: Ioctl, command: u32, parameters: &mut T) -> bool {
        if !is_drivers(self.descriptor) {
            return false;
        }
        let mut control = Control {
            client: self.client,
            object: self.object,
            command,
            flags: 0,
            parameters: std::ptr::from_mut(parameters).cast_const().cast(),
            size: u32::try_from(size_of::<T>()).unwrap_or(0),
            status: 0,
        };
        // Written and read, of this size.
        let request = 3 << 30 | const { (size_of::<Control>() as c_ulong) << 16 } | MAGIC << 8 | CONTROL;
        // SAFETY: the descriptor is the driver's, which takes this structure with this request, and reads and writes parameters of their size.
        let answer = unsafe { ioctl(self.descriptor, request, (&raw mut control).cast()) };
        answer == 0 && control.status == 0
    }
}

/// The program may have closed it, and the number may be another file's.
fn is_drivers(descriptor: c_int) -> bool {
    if descriptor < 0 {
        return false;
    }
    // SAFETY: it is only looked at, and never closed.
    let file = ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(descriptor) });
    file.metadata().is_ok_and(|data| libc::major(data.rdev()) == NVIDIA_MAJOR)
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[allow(clippy::cast_possible_truncation)] // the halves
fn halves(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: u32 = 0xc1d0_0020;
    const DEVICE: u32 = 0x5c00_0002;

    fn request(number: c_ulong, size: usize) -> c_ulong {
        3 << 30 | (size as c_ulong) << 16 | MAGIC << 8 | number
    }

    fn made(groups: &Groups, object: u32, device: u32, class: u32, engine: u32) {
        let parameters = GroupParameters { error: 0, ecc_error: 0, address_space: 0, engine };
        let alloc = Alloc { client: CLIENT, parent: device, object, class, parameters: &raw const parameters };
        // Of the version with 48 bytes, of which these are the first.
        let argument = (&raw const alloc).cast();
        // SAFETY: as many bytes are read as there are.
        unsafe { groups.note(9, request(ALLOC, 48), argument) };
    }

    fn freed(groups: &Groups, object: u32) {
        let free = Free { client: CLIENT, parent: 0, object, status: 0 };
        // SAFETY: as above.
        unsafe { groups.note(9, request(FREE, size_of::<Free>()), (&raw const free).cast()) };
    }

    fn names(groups: &Groups) -> Vec<u32> {
        let seen = std::cell::RefCell::new(Vec::new());
        groups.preempt_all(|group| {
            seen.borrow_mut().push(group.object);
            true
        });
        seen.into_inner()
    }

    #[test]
    fn groups_that_compute_are_known_until_they_or_what_they_are_in_is_freed() {
        let groups = Groups::new();
        made(&groups, 0x15, DEVICE, CHANNEL_GROUP, 1);
        made(&groups, 0x3e, DEVICE, CHANNEL_GROUP, 11);
        made(&groups, 0x40, DEVICE, 0xc7c0, 1);
        made(&groups, 0x50, DEVICE, CHANNEL_GROUP, 1);
        assert_eq!(names(&groups), [0x15, 0x50], "neither copies nor other objects");
        freed(&groups, 0x15);
        assert_eq!(names(&groups), [0x50]);
        freed(&groups, DEVICE);
        assert_eq!(names(&groups), [0; 0]);
        made(&groups, 0x60, DEVICE, CHANNEL_GROUP, 1);
        freed(&groups, CLIENT);
        assert_eq!(names(&groups), [0; 0]);
    }

    #[test]
    fn nothing_is_preempted_where_nobody_knows_which_gpu_is_meant() {
        let groups = Groups::new();
        assert!(!groups.preempt_all(|_| true), "there is none");
        made(&groups, 0x15, DEVICE, CHANNEL_GROUP, 1);
        made(&groups, 0x16, DEVICE + 1, CHANNEL_GROUP, 1);
        assert!(!groups.preempt_all(|_| panic!("of two GPUs")));
    }

    #[test]
    fn a_group_that_cannot_be_preempted_is_tried_once() {
        let groups = Groups::new();
        made(&groups, 0x15, DEVICE, CHANNEL_GROUP, 1);
        made(&groups, 0x16, DEVICE, CHANNEL_GROUP, 1);
        assert!(groups.preempt_all(|group| group.object == 0x16));
        assert!(groups.preempt_all(|group| {
            assert_eq!(group.object, 0x16);
            true
        }));
        assert!(!groups.preempt_all(|_| false));
        assert!(!groups.preempt_all(|_| panic!("it was tried")));
    }

    #[test]
    fn slices_are_set_once_and_given_back_as_they_were() {
        let (groups, calls) = (Groups::new(), std::cell::RefCell::new(Vec::new()));
        let slice = |us: u64| {
            let set = |group: Group, us| {
                calls.borrow_mut().push((group.object, us));
                group.object != 0x17
            };
            groups.slice_all(us, |group| Some(1_000 + u64::from(group.object)), set);
            calls.take()
        };
        assert_eq!(slice(250), [], "there is none");
        made(&groups, 0x15, DEVICE, CHANNEL_GROUP, 1);
        assert_eq!((slice(0), slice(250), slice(250)), (vec![], vec![(0x15, 250)], vec![]));
        made(&groups, 0x16, DEVICE, CHANNEL_GROUP, 1);
        made(&groups, 0x17, DEVICE, CHANNEL_GROUP, 1);
        assert_eq!(slice(250), [(0x16, 250), (0x17, 250)], "those that have come since");
        assert_eq!(slice(0), [(0x15, 1_021), (0x16, 1_022)], "what the driver refuses is not tried again");
        assert_eq!(slice(0), []);
        made(&groups, 0x18, DEVICE + 1, CHANNEL_GROUP, 1);
        assert_eq!(slice(250), [], "of two GPUs");
    }

    #[test]
    fn a_slice_that_the_driver_does_not_tell_is_not_changed() {
        let groups = Groups::new();
        made(&groups, 0x15, DEVICE, CHANNEL_GROUP, 1);
        (0..2).for_each(|_| groups.slice_all(250, |_| None, |_, _| panic!("it could not be given back")));
    }

    #[test]
    fn a_descriptor_that_is_not_the_drivers_is_left_alone() {
        unsafe extern "C" fn unwanted(_: c_int, _: c_ulong, _: *mut c_void) -> c_int {
            std::process::abort()
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        let group = Group { client: 1, object: 2, device: 3, descriptor: std::os::fd::AsRawFd::as_raw_fd(&file) };
        assert!(!group.preempt(unwanted));
        assert!(!Group { descriptor: -1, ..group }.preempt(unwanted));
    }

    #[test]
    fn calls_that_are_cut_short_or_of_others_are_passed_over() {
        let groups = Groups::new();
        let short = [0xffu8; 8];
        for number in [FREE, ALLOC] {
            // SAFETY: nothing is read of what is too short or not there.
            unsafe {
                groups.note(9, request(number, short.len()), short.as_ptr().cast());
                groups.note(9, request(number, 48), std::ptr::null());
            }
        }
        assert!(matters(request(ALLOC, 48)) && !matters(request(CONTROL, 32)) && !matters(libc::TCGETS));
        assert_eq!(names(&groups), [0; 0]);
    }
}
