use proptest::prelude::*;

use super::*;

fn shape() -> Shape {
    Shape {
        header_bytes: 192,
        row_bytes: 384,
        row_capacity: 3,
        writer: WriterId { pid: 7, start_ticks: Some(0), boot_id_hash: None, pid_namespace: Some(9) },
        created_mono_ns: 11,
        heartbeat_interval_ns: 13,
    }
}

fn changed(offset: usize, value: &[u8]) -> Result<Shape, HeaderError> {
    let mut header = shape().encode();
    put(&mut header, offset, value);
    Shape::decode(&header, shape().file_bytes())
}

#[test]
fn a_header_comes_back_as_it_was_with_what_its_writer_did_not_know() {
    assert_eq!(Shape::decode(&shape().encode(), shape().file_bytes()), Ok(shape()));
}

#[test]
fn another_major_version_is_refused_and_another_minor_one_is_read() {
    let error = changed(offset_of!(RawHeader, version_major), &2u16.to_le_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "has layout version 2.1, this program reads 1.x");
    for minor in [0, 9u16] {
        assert_eq!(changed(offset_of!(RawHeader, version_minor), &minor.to_le_bytes()), Ok(shape()));
    }
}

#[test]
fn what_is_wrong_with_a_header_is_told_with_what_was_found() {
    let error = changed(0, b"\x7fELF\x02\x01\x01\0").unwrap_err();
    assert_eq!(error.to_string(), r"starts with \x7fELF\x02\x01\x01\x00, a task table with BERTHTBL");
    let error = changed(offset_of!(RawHeader, row_bytes), &16u32.to_le_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "says row_bytes is 16, allowed is 384 to 4096");
    let error = changed(offset_of!(RawHeader, row_capacity), &u32::MAX.to_le_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "says row_capacity is 4294967295, allowed is 1 to 65536");
    let error = Shape::decode(&shape().encode(), 500).unwrap_err();
    assert_eq!(error.to_string(), "has 500 bytes, its header says 1344: cut off?");
    let error = Shape::decode(b"BERTHTBL", 8).unwrap_err();
    assert_eq!(error.to_string(), "has 8 bytes, a task table has at least 192");
}

proptest! {
    /// What a hostile header can make a reader allocate is bounded by the file's own size.
    #[test]
    fn any_header_is_refused_or_describes_no_more_than_the_file(
        noise in any::<[[u8; 8]; HEADER_BYTES / 8]>(), from in 0..HEADER_BYTES, file_bytes in any::<u32>(),
    ) {
        let mut header = shape().encode();
        header[from..].copy_from_slice(&noise.as_flattened()[from..]);
        if let Ok(shape) = Shape::decode(&header, file_bytes.into()) {
            prop_assert!(shape.file_bytes() <= file_bytes.into());
        }
    }

    #[test]
    fn a_cut_off_header_is_refused(bytes in 0..HEADER_BYTES) {
        prop_assert_eq!(Shape::decode(&shape().encode()[..bytes], bytes as u64), Err(HeaderError::Short { bytes: bytes as u64 }));
    }
}
