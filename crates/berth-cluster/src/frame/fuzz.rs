//! What a fuzzer calls, without the signature that would keep it out. For the tests, and for `fuzz/`.

use super::bytes::{Reader, Writer};
use super::{pasts, report};

/// Nothing panics, and what is read is what would be written.
pub fn fuzz(body: &[u8]) {
    let mut from = Reader::new(body);
    if let Ok(report) = report::read(&mut from)
        && from.end().is_ok()
    {
        let mut to = Writer::default();
        report::write(&report, &mut to).expect("what was read can be written");
        assert_eq!(to.done(), body, "there is one way to write a report");
    }
    let mut from = Reader::new(body);
    if let Ok(pasts) = pasts::read(&mut from)
        && from.end().is_ok()
    {
        let mut to = Writer::default();
        pasts::write(&pasts, &mut to).expect("what was read can be written");
        assert_eq!(to.done(), body, "there is one way to write pasts");
    }
}
