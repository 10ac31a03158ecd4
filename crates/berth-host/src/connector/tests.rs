use std::process::Command;
use std::sync::mpsc::{Receiver, channel};

use berth_model::Mono;

use super::*;
use crate::clock;
use crate::testing::skip;

const UP: Event = Event::Source { source: Source::ProcessEvents, status: SourceStatus::Up };

fn start(test: &str) -> Option<(Connector, Receiver<Event>)> {
    let (event_tx, event_rx) = channel();
    match Connector::start(event_tx) {
        Ok(connector) => {
            assert_eq!(event_rx.try_recv(), Ok(UP));
            Some((connector, event_rx))
        }
        Err(error) => {
            let Ok(Event::Source { status: SourceStatus::Down { reason }, .. }) = event_rx.try_recv() else {
                panic!("the reason is not told as an event");
            };
            assert_eq!(reason, error.to_string());
            skip(test, &reason);
            None
        }
    }
}

fn next_stir(event_rx: &Receiver<Event>) -> Mono {
    match event_rx.recv_timeout(Duration::from_secs(5)) {
        Ok(Event::Stirred { source: Source::ProcessEvents, at }) => at,
        other => panic!("no start told: {other:?}"),
    }
}

/// The machine's own programs are told too, so a test waits for a start after its own.
fn stir_after(event_rx: &Receiver<Event>, begin: Mono) -> Mono {
    loop {
        let at = next_stir(event_rx);
        if at >= begin {
            return at;
        }
    }
}

#[test]
fn a_started_program_is_told_with_its_time() {
    let Some((_connector, event_rx)) = start("a_started_program_is_told_with_its_time") else { return };
    let before = clock::now();
    assert!(Command::new("true").status().unwrap().success());
    let at = stir_after(&event_rx, before);
    assert!(at <= clock::now());
}

#[test]
fn many_starts_are_told_as_few() {
    let Some((_connector, event_rx)) = start("many_starts_are_told_as_few") else { return };
    let begin = clock::now();
    for _ in 0..100 {
        assert!(Command::new("true").status().unwrap().success());
    }
    let last = clock::now();
    assert!(Command::new("true").status().unwrap().success());
    stir_after(&event_rx, last);
    let spent = clock::now().since(begin);
    let told = 1 + event_rx.try_iter().count();
    let most = spent.as_millis() / QUIET.as_millis() + 2;
    assert!(told as u128 <= most, "{told} told in {spent:?}");
}

#[test]
fn after_the_end_nothing_is_told() {
    let Some((connector, event_rx)) = start("after_the_end_nothing_is_told") else { return };
    drop(connector);
    assert!(event_rx.try_iter().all(|event| matches!(event, Event::Stirred { .. })));
    assert!(matches!(event_rx.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
}

/// A child that left the host's namespaces is told why it gets nothing.
#[test]
fn outside_the_host_s_namespaces_the_reason_is_exact() {
    const TEST: &str = "outside_the_host_s_namespaces_the_reason_is_exact";
    if let Some(case) = std::env::var_os("BERTH_TEST_CONNECTOR_CHILD") {
        let error = available().expect_err("refused");
        let is_expected = match case.to_str() {
            Some("network") => matches!(error, ConnectorError::OtherNetwork),
            _ => matches!(error, ConnectorError::NoAnswer),
        };
        assert!(is_expected, "{error:?}");
        return;
    }
    if available().is_err() || !rustix::process::geteuid().is_root() {
        return skip(TEST, "needs root in the host's namespaces");
    }
    let this = std::env::current_exe().unwrap();
    let name = format!("connector::tests::{TEST}");
    for (case, flags) in [("network", &["--net"][..]), ("pid", &["--pid", "--fork"][..])] {
        let status = Command::new("unshare")
            .args(flags)
            .arg(&this)
            .args(["--exact", &name, "--nocapture"])
            .env("BERTH_TEST_CONNECTOR_CHILD", case)
            .status()
            .unwrap();
        assert!(status.success(), "{case}");
    }
}

#[test]
fn a_refusal_for_lack_of_privilege_says_so() {
    let error = socket::refusal(Errno::PERM.raw_os_error().unsigned_abs());
    assert!(matches!(error, ConnectorError::NoPermission) && error.to_string().contains("CAP_NET_ADMIN"), "{error}");
    assert!(matches!(socket::refusal(22), ConnectorError::Refused { .. }));
}
