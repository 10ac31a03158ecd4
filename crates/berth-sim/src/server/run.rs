//! The loop: wait, move the engine to now, hand out what it finished, take what clients ask, publish.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};

use berth_proto::sim::{Reply, Request, cu};
use berth_proto::wire::{Call, Role};
use tracing::{debug, info, warn};

use super::client::{Client, ClientError, Next};
use super::clients::Clients;
use super::clock::{Clock, monotonic_ns};
use super::control::{Command, Commander, Heard};
use super::directory::Directory;
use super::libraries::find_libraries;
use super::options::{ServeError, ServeOptions};
use super::poll::{Interest, Poll, Ready, Token};
use super::publish::Publisher;
use super::still;
use super::sys;
use crate::{Engine, Outcome};

const LISTENER: Token = 0;
const CONTROL: Token = 1;
const FIRST_FREE: Token = 2;

/// A server that owns its directory and listens; [`Server::run`] serves.
#[derive(Debug)]
pub struct Server {
    engine: Engine,
    clock: Clock,
    poll: Poll,
    listener: UnixListener,
    control: UnixListener,
    clients: Clients,
    commanders: HashMap<Token, Commander>,
    /// Clients whose call is done and who may have sent more meanwhile.
    resumed: VecDeque<Token>,
    still: still::Watch,
    publisher: Publisher,
    last_token: Token,
    /// What other threads sent is being taken already.
    catching_up: bool,
    /// Accepting failed (no descriptors left) and is tried again with the next sign of life.
    deaf: bool,
    /// Last, so that the directory is given up only when everything in it is down.
    directory: Directory,
}

impl Server {
    /// Claims the directory, puts the libraries in place, publishes a first snapshot and listens.
    pub fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        options.check()?;
        let libraries = options.libraries.map_or_else(find_libraries, Ok)?;
        let directory = Directory::claim(&options.dir)?;
        directory.install(&libraries)?;
        let system = |what| move |source| ServeError::System { what, source };
        let engine = Engine::with_sharing(options.profile, options.gpu_count, options.seed, options.sharing);
        let clock = Clock::start(options.time_scale);
        let mut publisher = Publisher::create(directory.path())?;
        publisher.tick(monotonic_ns(), &engine, &clock);
        let poll = Poll::new().map_err(system("make an epoll"))?;
        let (listener, control) = (directory.listen()?, directory.listen_control()?);
        poll.add(&listener, LISTENER, Interest::Read).map_err(system("watch the driver's socket"))?;
        poll.add(&control, CONTROL, Interest::Read).map_err(system("watch the control socket"))?;
        info!(dir = %directory.path().display(), gpus = options.gpu_count, "simulated GPU ready");
        Ok(Self {
            engine,
            clock,
            poll,
            listener,
            control,
            clients: Clients::default(),
            commanders: HashMap::new(),
            resumed: VecDeque::new(),
            still: still::Watch::default(),
            publisher,
            last_token: FIRST_FREE,
            catching_up: false,
            deaf: false,
            directory,
        })
    }

    /// Serves until `stop` says so; it is asked at least every tenth of a second, and after every signal.
    pub fn run(mut self, stop: impl Fn() -> bool) -> Result<(), ServeError> {
        while !stop() {
            let until = self.next_wake();
            let mut ready = self.poll.wait(until).map_err(|source| ServeError::System { what: "wait", source })?;
            // What ended before what begins: a process that called `exec` closed its old life before it opened the new.
            ready.sort_by_key(|ready| (ready.token == LISTENER, !ready.hung_up));
            self.advance();
            self.follow_still();
            for ready in ready {
                self.handle(ready);
            }
            self.work_off_resumed();
            self.publisher.mark_stale();
            if self.publisher.tick(monotonic_ns(), &self.engine, &self.clock) {
                self.listen_again();
            }
        }
        info!(dir = %self.directory.path().display(), "simulated GPU stopped");
        Ok(())
    }

    fn next_wake(&self) -> u64 {
        let engine = self.engine.next_event().map(|at| self.clock.monotonic_at(at));
        let still = self.still.next_ns(!self.engine.needed().is_empty());
        engine.into_iter().chain(still).fold(self.publisher.next_ns(), u64::min)
    }

    /// Moves the engine to now and gives each finished call to whoever waits for it.
    fn advance(&mut self) {
        for completion in self.engine.advance(self.clock.now()) {
            let Some(token) = self.clients.take_waiting(completion.ticket) else { continue };
            let Some(client) = self.clients.get(token) else { continue };
            match client.completed(&completion.reply) {
                Ok(()) => self.resumed.push_back(token),
                Err(error) => self.drop_client(token, &error),
            }
        }
    }

    /// What needs the threads of a process that is frozen or stopped goes on when it moves again.
    fn follow_still(&mut self) {
        for (pid, is_still) in self.still.changes(monotonic_ns(), &self.engine.needed()) {
            debug!(pid, is_still, "a client stands still or moves again");
            self.engine.stand_still(pid, is_still);
        }
    }

    fn work_off_resumed(&mut self) {
        while let Some(token) = self.resumed.pop_front() {
            if let Err(error) = self.work_off(token) {
                self.drop_client(token, &error);
            }
        }
    }

    fn handle(&mut self, ready: Ready) {
        match ready.token {
            LISTENER => self.accept(),
            CONTROL => self.accept_commander(),
            token => match self.clients.exit_of(token) {
                Some(pid) => self.process_left(pid),
                None if self.commanders.contains_key(&token) => self.hear(token),
                None => {
                    if let Err(error) = self.converse(token, ready.hung_up) {
                        self.drop_client(token, &error);
                    }
                }
            },
        }
    }

    fn fresh_token(&mut self) -> Token {
        self.last_token += 1;
        self.last_token
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.admit(stream) {
                        debug!(%error, "client not admitted");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    warn!(%error, "accept a client");
                    self.deaf = self.poll.change(&self.listener, LISTENER, Interest::Nothing).is_ok();
                    return;
                }
            }
        }
    }

    fn listen_again(&mut self) {
        if self.deaf {
            self.deaf = self.poll.change(&self.listener, LISTENER, Interest::Read).is_err();
        }
    }

    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        let Some(peer) = sys::peer(&stream)? else {
            warn!("a client from a pid namespace that cannot be seen from here is refused");
            return Ok(());
        };
        let client = Client::new(stream, peer)?;
        let token = self.fresh_token();
        self.poll.add(&client, token, Interest::Read)?;
        self.clients.insert(token, client);
        Ok(())
    }

    /// Reads, answers and writes as far as it goes without waiting.
    fn converse(&mut self, token: Token, hung_up: bool) -> Result<(), ClientError> {
        let Some(client) = self.clients.get(token) else { return Ok(()) };
        match client.wanted() {
            Interest::Write => client.flush()?,
            Interest::Read => drop(client.receive()?),
            // Its thread is gone in the middle of a call; nobody is there to hear the answer.
            Interest::Nothing if hung_up => return Err(ClientError::Closed),
            Interest::Nothing => {}
        }
        self.work_off(token)
    }

    /// Does what the client has asked for, until a call is unfinished or nothing is left.
    fn work_off(&mut self, token: Token) -> Result<(), ClientError> {
        loop {
            let Some(client) = self.clients.get(token) else { return Ok(()) };
            match client.next()? {
                Next::Nothing => return self.watch(token),
                Next::Joined(role) => self.join(token, role)?,
                Next::Call(call) => self.call(token, call)?,
            }
        }
    }

    /// Tells the epoll what the client is watched for, if that has changed.
    fn watch(&mut self, token: Token) -> Result<(), ClientError> {
        let Some(client) = self.clients.get(token) else { return Ok(()) };
        let wanted = client.wanted();
        if client.interest != wanted {
            client.interest = wanted;
            self.poll.change(&*client, token, wanted)?;
        }
        Ok(())
    }

    fn join(&mut self, token: Token, role: Role) -> Result<(), ClientError> {
        let Some(pid) = self.clients.get(token).map(|client| client.peer.pid) else { return Ok(()) };
        if self.clients.has_ended(pid) {
            // Another process with the same pid. The newcomer's own conversation must survive the old one's end.
            let newcomer = self.clients.take(token);
            self.process_left(pid);
            if let Some(newcomer) = newcomer {
                self.clients.insert(token, newcomer);
            }
        }
        let fresh = self.fresh_token();
        Ok(self.clients.join(token, role, &self.poll, fresh)?)
    }

    /// Takes what the process's other threads have sent. What one thread queued before another one asked must count as
    /// queued before, though the two conversations have no order of their own.
    fn catch_up_siblings(&mut self, token: Token) {
        if self.catching_up {
            return;
        }
        self.catching_up = true;
        for sibling in self.clients.siblings(token) {
            if let Err(error) = self.catch_up(sibling) {
                self.drop_client(sibling, &error);
            }
        }
        self.catching_up = false;
    }

    fn catch_up(&mut self, token: Token) -> Result<(), ClientError> {
        while let Some(client) = self.clients.get(token) {
            if client.wanted() != Interest::Read || !client.receive()? {
                break;
            }
            self.work_off(token)?;
        }
        Ok(())
    }

    fn call(&mut self, token: Token, call: Call) -> Result<(), ClientError> {
        if call.wants_reply || matches!(call.request, Request::StreamWait { .. }) {
            self.catch_up_siblings(token);
        }
        let permitted = self.is_permitted(token, &call.request);
        self.advance();
        let Some(client) = self.clients.get(token) else { return Ok(()) };
        let refused = client.take_deferred(&call).or((!permitted).then_some(cu::NOT_PERMITTED));
        let outcome = match refused {
            Some(code) => Outcome::Now(Reply::Error(code)),
            None => self.engine.request(client.peer.pid, call.request),
        };
        match outcome {
            Outcome::Now(reply) => {
                let must_wait = client.answered(call.wants_reply, &reply)?;
                if let Some(context) = context_of(&call.request).filter(|_| must_wait) {
                    self.drain(token, context);
                }
            }
            Outcome::Later(ticket) => {
                client.wait_for(ticket, call.wants_reply);
                self.clients.expect(ticket, token);
            }
        }
        Ok(())
    }

    /// Takes nothing more from a client until its context has worked off what was queued.
    fn drain(&mut self, token: Token, context: u64) {
        let Some(client) = self.clients.get(token) else { return };
        if let Outcome::Later(ticket) = self.engine.request(client.peer.pid, Request::ContextSync { context }) {
            client.wait_for(ticket, false);
            self.clients.expect(ticket, token);
        }
    }

    /// Acting on another process is for its own user and root.
    fn is_permitted(&mut self, token: Token, request: &Request) -> bool {
        let Request::Checkpoint { pid, .. } = request else { return true };
        let target = self.clients.uid_of(*pid);
        let Some(client) = self.clients.get(token) else { return false };
        client.peer.uid == 0 || target.is_none_or(|uid| uid == client.peer.uid)
    }

    fn drop_client(&mut self, token: Token, why: &ClientError) {
        debug!(token, %why, "conversation over");
        if let Some(pid) = self.clients.drop_client(token, &self.poll) {
            self.process_left(pid);
        }
    }

    fn process_left(&mut self, pid: u32) {
        debug!(pid, "process left the GPU");
        self.engine.process_exited(pid);
        self.clients.drop_process(pid, &self.poll);
    }

    fn accept_commander(&mut self) {
        while let Ok((stream, _)) = self.control.accept() {
            let token = self.fresh_token();
            let added = Commander::new(stream).and_then(|commander| {
                self.poll.add(&commander, token, Interest::Read)?;
                Ok(self.commanders.insert(token, commander))
            });
            if let Err(error) = added {
                debug!(%error, "control connection not admitted");
            }
        }
    }

    fn hear(&mut self, token: Token) {
        let Some(commander) = self.commanders.get_mut(&token) else { return };
        match commander.hear() {
            Heard::More => return,
            Heard::Command(Command::Kernels { pid }) => commander.answer(self.engine.kernels_done(pid)),
            Heard::Command(Command::Fault(fault)) => match self.engine.inject(fault) {
                Ok(()) => {
                    info!(?fault, "fault injected");
                    // Whoever injected it may look right after the answer.
                    self.publisher.publish(&self.engine, &self.clock);
                    commander.confirm();
                }
                Err(error) => commander.refuse(&error),
            },
            Heard::Over => {}
        }
        self.poll.remove(&*commander);
        self.commanders.remove(&token);
    }
}

/// The context a call without an answer is about.
fn context_of(request: &Request) -> Option<u64> {
    match *request {
        Request::Copy { context, .. }
        | Request::Launch { context, .. }
        | Request::EventRecord { context, .. }
        | Request::StreamWait { context, .. }
        | Request::HostWork { context, .. }
        | Request::GraphAdd { context, .. }
        | Request::GraphLaunch { context, .. }
        | Request::MemFree { context, .. } => Some(context),
        _ => None,
    }
}
