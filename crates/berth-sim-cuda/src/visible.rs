//! Which devices a process sees: `CUDA_VISIBLE_DEVICES`, as the driver reads it.
//!
//! A list of ordinals or of (beginnings of) UUIDs, in the order the process is to see them; the first entry that names
//! no device, or one already named, ends it. Without the variable all devices are seen.

use berth_proto::sim::Device;

pub(crate) const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// The visible ones of the devices present, as positions in `devices`.
pub(crate) fn visible(setting: Option<&str>, devices: &[Device]) -> Vec<usize> {
    let Some(setting) = setting else {
        return (0..devices.len()).collect();
    };
    let mut seen = Vec::new();
    for entry in setting.split(',').map(str::trim) {
        let mut all = devices.iter().enumerate();
        match all.find(|(position, device)| names(entry, *position, device)) {
            Some((position, _)) if !seen.contains(&position) => seen.push(position),
            _ => break,
        }
    }
    seen
}

fn names(entry: &str, position: usize, device: &Device) -> bool {
    match entry.strip_prefix("GPU-") {
        Some(_) => uuid_text(&device.uuid).starts_with(entry),
        None => entry.parse() == Ok(position),
    }
}

fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<Device> {
        (0..3)
            .map(|n| Device {
                name: "x".into(),
                uuid: [n; 16],
                total_memory: 0,
                sm_count: 1,
                compute_capability: (9, 0),
                max_threads_per_sm: 1,
                has_mps: false,
            })
            .collect()
    }

    #[test]
    fn without_a_setting_all_are_seen() {
        assert_eq!(visible(None, &devices()), [0, 1, 2]);
    }

    #[test]
    fn order_is_the_settings() {
        assert_eq!(visible(Some("2, 0"), &devices()), [2, 0]);
        assert_eq!(visible(Some("GPU-02020202,1"), &devices()), [2, 1]);
        assert_eq!(visible(Some("GPU-01010101-0101-0101-0101-010101010101"), &devices()), [1]);
    }

    #[test]
    fn the_first_bad_entry_ends_the_list() {
        assert_eq!(visible(Some("1,7,0"), &devices()), [1]);
        assert_eq!(visible(Some("1,1,0"), &devices()), [1]);
        assert_eq!(visible(Some("-1"), &devices()), [0_usize; 0]);
        assert_eq!(visible(Some(""), &devices()), [0_usize; 0]);
    }
}
