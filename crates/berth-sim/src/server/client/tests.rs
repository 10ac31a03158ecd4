//! One conversation, without the server around it.

use berth_proto::sim::Request;

use super::*;

fn pair() -> (Client, UnixStream) {
    let (here, there) = UnixStream::pair().unwrap();
    (Client::new(here, Peer { pid: 1, uid: 0 }).unwrap(), there)
}

fn say<M: Message>(there: &mut UnixStream, message: &M) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    there.write_all(&bytes).unwrap();
}

fn joined() -> (Client, UnixStream) {
    let (mut client, mut there) = pair();
    say(&mut there, &Hello::new(Role::Thread));
    client.receive().unwrap();
    assert_eq!(client.next().unwrap(), Next::Joined(Role::Thread));
    (client, there)
}

#[test]
fn another_version_is_told_ours_and_dropped() {
    let (mut client, mut there) = pair();
    say(&mut there, &Hello { version: 99, role: Role::Thread });
    client.receive().unwrap();
    assert!(matches!(client.next(), Err(ClientError::Wire(WireError::Version { theirs: 99 }))));
    let mut bytes = [0; 64];
    let length = there.read(&mut bytes).unwrap();
    assert_eq!(Welcome::decode(&bytes[4..length]).unwrap().version, VERSION);
}

#[test]
fn nothing_is_taken_while_a_call_is_unfinished() {
    let (mut client, mut there) = joined();
    let call = Call { wants_reply: true, request: Request::DeviceCount };
    say(&mut there, &call);
    say(&mut there, &call);
    client.receive().unwrap();
    assert_eq!(client.next().unwrap(), Next::Call(call));
    client.wait_for(Ticket(7), true);
    assert_eq!(client.next().unwrap(), Next::Nothing);
    assert_eq!(client.wanted(), Interest::Nothing);
    client.completed(&Reply::Done).unwrap();
    assert_eq!(client.next().unwrap(), Next::Call(call));
}

#[test]
fn an_error_nobody_waited_for_answers_the_next_call_that_waits() {
    let (mut client, _there) = joined();
    client.answered(false, &Reply::Error(700)).unwrap();
    client.answered(false, &Reply::Error(1)).unwrap();
    let posted = Call { wants_reply: false, request: Request::DeviceCount };
    let asked = Call { wants_reply: true, ..posted };
    assert_eq!(client.take_deferred(&posted), None);
    assert_eq!(client.take_deferred(&asked), Some(700));
    assert_eq!(client.take_deferred(&asked), None);
}

#[test]
fn a_client_that_only_posts_is_made_to_wait_at_times() {
    let (mut client, _there) = joined();
    let due = (1..=MAX_POSTED).filter(|_| client.answered(false, &Reply::Done).unwrap());
    assert_eq!(due.collect::<Vec<_>>(), [MAX_POSTED]);
    client.wait_for(Ticket(1), false);
    client.completed(&Reply::Done).unwrap();
    assert!(!client.answered(false, &Reply::Done).unwrap());
}

#[test]
fn a_client_that_never_reads_is_given_up() {
    let (mut client, _there) = joined();
    let device = Reply::Count(1);
    let given_up = (0..1_000_000).find_map(|_| client.answered(true, &device).err());
    assert!(matches!(given_up, Some(ClientError::NotReading)));
}

#[test]
fn garbage_ends_the_conversation() {
    let (mut client, mut there) = pair();
    there.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    client.receive().unwrap();
    assert!(matches!(client.next(), Err(ClientError::Wire(_))));
}
