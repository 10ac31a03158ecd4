//! Green contexts: parts of a device's SMs.

use std::ffi::{c_int, c_uint};

use berth_proto::cuda::result;

use super::{Driver, NON_BLOCKING, ask};

/// `CU_DEV_RESOURCE_TYPE_SM`
const RESOURCE_SM: c_int = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM`; it and `CU_STREAM_NON_BLOCKING` are required.
const GREEN_DEFAULT_STREAM: c_uint = 1;
/// Where a resource of SMs has their number.
const SM_COUNT_AT: usize = 96;

/// `CUdevResource`: opaque but for its size.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Resource([u8; 144]);

impl Resource {
    pub(super) fn sm_count(&self) -> u32 {
        let bytes = self.0.get(SM_COUNT_AT..SM_COUNT_AT + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }
}

impl Driver {
    /// A green context with at least so many SMs, or with the others; and how many it has.
    pub(crate) fn create_green(&self, device: c_int, sms: u32, others: bool) -> Option<(u64, u32)> {
        let all = self.sm_resource(device)?;
        let (mut part, mut rest, mut groups) = (Resource([0; 144]), Resource([0; 144]), 1);
        let split = self.resource_split?;
        // SAFETY: the driver writes one resource to `part`, one to `rest` and their number.
        let told = unsafe { split(&raw mut part, &raw mut groups, &raw const all, &raw mut rest, 0, sms) };
        if told != result::SUCCESS || groups != 1 {
            return None;
        }
        let (describe, create) = (self.resource_describe?, self.green_create?);
        let mut part = if others { rest } else { part };
        let sms = match part.sm_count() {
            0 if others => return None,
            0 => sms,
            counted => counted,
        };
        // SAFETY: the driver reads one resource and writes one handle.
        let description = ask(|out| unsafe { describe(out, &raw mut part, 1) })?;
        // SAFETY: the description has just been made; the driver writes one handle.
        let green = ask(|out| unsafe { create(out, description, device, GREEN_DEFAULT_STREAM) })?;
        Some((green, sms))
    }

    pub(crate) fn create_green_stream(&self, green: u64) -> Option<u64> {
        let function = self.green_stream?;
        // SAFETY: the green context is our own; the driver writes one handle.
        ask(|out| unsafe { function(out, green, NON_BLOCKING, 0) })
    }

    pub(crate) fn destroy_green(&self, green: u64, streams: impl IntoIterator<Item = u64>) {
        if let (Some(destroy_stream), Some(destroy)) = (self.stream_destroy, self.green_destroy) {
            for stream in streams {
                // SAFETY: the stream is our own, and nobody uses it after this.
                unsafe { destroy_stream(stream) };
            }
            // SAFETY: as above.
            unsafe { destroy(green) };
        }
    }

    pub(super) fn sm_resource(&self, device: c_int) -> Option<Resource> {
        let function = self.device_resource?;
        let mut resource = Resource([0; 144]);
        // SAFETY: the driver writes one resource.
        (unsafe { function(device, &raw mut resource, RESOURCE_SM) } == result::SUCCESS).then_some(resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_as_large_as_in_the_official_headers() {
        assert_eq!(size_of::<Resource>(), 144);
    }
}
