use proptest::prelude::*;

use super::*;

fn encoded(row: &Row) -> [u8; ROW_BYTES] {
    let mut bytes = [0xAA; ROW_BYTES];
    row.encode(&mut bytes);
    bytes
}

fn runtime() -> impl Strategy<Value = Runtime> {
    prop::sample::select(vec![Runtime::Docker, Runtime::Podman, Runtime::Containerd, Runtime::Crio, Runtime::Lxc])
}

fn state() -> impl Strategy<Value = State> {
    prop::sample::select(vec![State::Opening, State::Loaded, State::Computing, State::Idle, State::Lost])
}

fn tenant(text: impl Strategy<Value = String>) -> impl Strategy<Value = Tenant> {
    prop_oneof![
        (prop::option::of(runtime()), prop::option::of(text))
            .prop_map(|(runtime, id)| Tenant::Container { runtime, id }),
        Just(Tenant::Cgroup),
        prop::option::of(any::<u32>()).prop_map(|uid| Tenant::User { uid }),
        Just(Tenant::Unknown),
    ]
}

fn deadline() -> impl Strategy<Value = Deadline> {
    let unit = prop::option::of(prop::sample::select(vec![Unit::Task, Unit::Burst]));
    let risk = prop::option::of(prop::sample::select(vec![Risk::Safe, Risk::Tight, Risk::Likely, Risk::Late]));
    let due = prop::option::of((any::<u64>(), risk).prop_map(|(mono_ns, risk)| Due { mono_ns, risk }));
    (any::<u64>(), unit, due, any::<[u32; 3]>(), prop::option::of(any::<i64>())).prop_map(
        |(deadline_ns, unit, due, [hits, misses, unknown], last_float_ns)| Deadline {
            deadline_ns,
            unit,
            due,
            hits,
            misses,
            unknown,
            last_float_ns,
        },
    )
}

/// Rows of any kind, with texts by `text` and up to `pids` pids.
fn row<S: Strategy<Value = String> + Clone>(text: S, pids: usize) -> impl Strategy<Value = Row> {
    let who = (tenant(text.clone()), text.clone(), prop::option::of(text.clone()), any::<[bool; 4]>());
    let gpu = (
        prop::option::of(0..u32::MAX),
        prop::option::of(text),
        prop::option::of(any::<u64>()),
        prop::option::of(0..=100u8),
    );
    let stamp = (any::<u64>(), any::<u64>()).prop_map(|(mono_ns, wall_ns)| Stamp { mono_ns, wall_ns });
    let task = (
        prop::option::of(state()),
        prop::option::of(any::<u64>()),
        prop::option::of(stamp),
        prop::option::of(deadline()),
    );
    (who, gpu, task, prop::collection::vec(any::<u32>(), 0..=pids)).prop_map(|(who, gpu, task, pids)| Row {
        tenant: who.0,
        name: who.1,
        owner: who.2,
        process_kinds: ProcessKinds {
            compute: who.3[0],
            graphics: who.3[1],
            mps_server: who.3[2],
            mps_client: who.3[3],
        },
        gpu_index: gpu.0,
        gpu_uuid: gpu.1,
        memory_bytes: gpu.2,
        core_pct: gpu.3,
        state: task.0,
        task_id: task.1,
        task_started: task.2,
        deadline: task.3,
        pids,
        pids_left_out: 0,
        text_cut: false,
    })
}

/// What reading gives for a text that was `whole`: as much of it as fits.
fn is_cut_of(read: &str, whole: &str, width: usize) -> bool {
    let whole = whole.split('\0').next().unwrap_or_default();
    let room_for_next = whole[read.len()..].chars().next().is_none_or(|next| read.len() + next.len_utf8() > width);
    whole.starts_with(read) && read.len() <= width && room_for_next
}

proptest! {
    #[test]
    fn a_row_that_fits_comes_back_as_it_was(row in row("[a-zäß中\u{1F600}/._-]{0,8}", 16)) {
        prop_assert_eq!(Row::decode(&encoded(&row)), row);
    }

    #[test]
    fn a_row_too_large_keeps_what_fits_and_says_so(row in row(any::<String>(), 40)) {
        let read = Row::decode(&encoded(&row));
        prop_assert!(is_cut_of(&read.name, &row.name, 64), "{:?} of {:?}", read.name, row.name);
        for (read, whole, width) in [(&read.owner, &row.owner, 32), (&read.gpu_uuid, &row.gpu_uuid, 48)] {
            prop_assert_eq!(read.is_some(), whole.is_some());
            let (read, whole) = (read.clone().unwrap_or_default(), whole.clone().unwrap_or_default());
            prop_assert!(is_cut_of(&read, &whole, width), "{:?} of {:?}", read, whole);
        }
        let same_text = read.name == row.name && read.owner == row.owner && read.gpu_uuid == row.gpu_uuid
            && read.tenant == row.tenant;
        prop_assert_eq!(read.text_cut, !same_text);
        prop_assert_eq!(&read.pids[..], &row.pids[..row.pids.len().min(16)]);
        prop_assert_eq!(read.pids.len() + read.pids_left_out as usize, row.pids.len());
        prop_assert_eq!(Row::decode(&encoded(&read)), read, "what was read is stored as it is");
    }

    #[test]
    fn any_bytes_are_some_row(bytes in any::<[[u8; 8]; ROW_BYTES / 8]>()) {
        let row = Row::decode(bytes.as_flattened().try_into().unwrap());
        prop_assert!(row.pids.len() <= 16);
        prop_assert!(!row.name.contains('\0'));
    }
}

#[test]
fn unknown_is_a_flag_that_is_not_set_and_no_value() {
    let zeros = Row {
        owner: Some(String::new()),
        gpu_index: Some(0),
        gpu_uuid: Some(String::new()),
        memory_bytes: Some(0),
        core_pct: Some(0),
        task_id: Some(0),
        task_started: Some(Stamp::default()),
        deadline: Some(Deadline { due: Some(Due::default()), last_float_ns: Some(0), ..Deadline::default() }),
        ..Row::default()
    };
    assert_eq!(Row::decode(&encoded(&zeros)), zeros);
    assert_eq!(Row::decode(&encoded(&Row::default())), Row::default());
    assert_eq!(take_u32(&encoded(&Row::default()), offset_of!(RawRow, flags)), 0);
}

/// In a table of version 1.0 the bytes of deadlines were reserved and 0, and their flags not set.
#[test]
fn a_row_of_before_deadlines_has_none() {
    let row = Row { name: "web".into(), memory_bytes: Some(7), ..Row::default() };
    let bytes = encoded(&row);
    assert_eq!(bytes[offset_of!(RawRow, deadline_ns)..], [0; 40]);
    assert_eq!(Row::decode(&bytes), row);
}

/// What readers of version 1.0 know of a row is where it was, whatever its deadline.
#[test]
fn a_deadline_moves_nothing_that_was_there_before() {
    let row = Row { name: "web".into(), memory_bytes: Some(7), ..Row::default() };
    let deadline = Deadline { deadline_ns: u64::MAX, hits: 3, last_float_ns: Some(-1), ..Deadline::default() };
    let with = encoded(&Row { deadline: Some(deadline), ..row.clone() });
    let (flags, rest) = (size_of::<u32>(), offset_of!(RawRow, deadline_ns));
    assert_eq!(with[flags..rest], encoded(&row)[flags..rest]);
}

#[test]
fn an_unknown_gpu_cannot_be_mistaken_for_the_first_one() {
    assert_eq!(take_u32(&encoded(&Row::default()), offset_of!(RawRow, gpu_index)), u32::MAX);
}

#[test]
fn codes_of_later_versions_are_read_as_not_known() {
    let container = Tenant::Container { runtime: Some(Runtime::Lxc), id: None };
    let row = Row { tenant: container, state: Some(State::Lost), ..Row::default() };
    let mut bytes = encoded(&row);
    bytes[offset_of!(RawRow, state)] += 1;
    bytes[offset_of!(RawRow, runtime)] += 1;
    let read = Row::decode(&bytes);
    assert_eq!((read.state, read.tenant), (None, Tenant::Container { runtime: None, id: None }));
    bytes[offset_of!(RawRow, tenant_kind)] = 99;
    assert_eq!(Row::decode(&bytes).tenant, Tenant::Unknown);
    let due = Due { mono_ns: 5, risk: Some(Risk::Late) };
    let deadline = Deadline { unit: Some(Unit::Burst), due: Some(due), ..Deadline::default() };
    let mut bytes = encoded(&Row { deadline: Some(deadline), ..Row::default() });
    bytes[offset_of!(RawRow, unit)] += 1;
    bytes[offset_of!(RawRow, risk)] += 1;
    let read = Row::decode(&bytes).deadline.unwrap();
    assert_eq!((read.unit, read.due), (None, Some(Due { risk: None, ..due })));
}

#[test]
fn the_longest_ids_in_use_fit() {
    let id = "f".repeat(76);
    let tenant = Tenant::Container { runtime: Some(Runtime::Containerd), id: Some(id) };
    let uuid = "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/7/0".to_owned();
    let row = Row { tenant, gpu_uuid: Some(uuid), ..Row::default() };
    assert_eq!(Row::decode(&encoded(&row)), row);
}

#[test]
fn text_ends_at_a_nul_and_bytes_that_are_no_text_are_replaced() {
    let row = Row { name: "web\0evil".into(), ..Row::default() };
    let mut bytes = encoded(&row);
    let read = Row::decode(&bytes);
    assert_eq!((read.name.as_str(), read.text_cut), ("web", true));
    bytes[offset_of!(RawRow, name)] = 0xFF;
    assert_eq!(Row::decode(&bytes).name, "\u{FFFD}eb");
}
