//! What differs between operating systems: process groups, exit by signal, signals to the program.

pub(crate) use system::{Watch, argument, exit_of, input_bytes, isolate, listen};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// With this status.
    Status(i32),
    /// By this signal.
    #[cfg_attr(not(unix), expect(dead_code, reason = "there are no signals"))]
    Signal(i32),
}

/// How hard to end a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Force {
    /// Ask it.
    Ask,
    /// Leave it no choice.
    Kill,
}

#[cfg(unix)]
mod system {
    use std::ffi::OsString;
    use std::fs::File;
    use std::io;
    use std::os::fd::AsFd;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command, ExitStatus};

    use rustix::io::Errno;
    use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    use super::{Exit, Force};

    /// Makes the command the leader of a process group of its own, which a terminal's signals do
    /// not reach and which can be ended as a whole.
    pub(crate) fn isolate(command: &mut Command) {
        command.process_group(0);
    }

    /// Something to wait for a child and to end its process group with, from other threads.
    #[derive(Clone, Debug)]
    pub(crate) struct Watch(Pid);

    impl Watch {
        pub(crate) fn new(child: &Child) -> Self {
            Self(Pid::from_child(child))
        }

        /// Waits until the child has ended, without reaping it: its number stays taken, so that no
        /// signal can go astray, until [`Child::wait`] is called.
        pub(crate) fn wait(&self, _child: &mut Child) -> io::Result<()> {
            loop {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                match waitid(WaitId::Pid(self.0), options) {
                    Err(Errno::INTR) => {}
                    ended => return ended.map(drop).map_err(Into::into),
                }
            }
        }

        /// Ends the child's process group. The child must not have been reaped.
        pub(crate) fn end(&self, force: Force) {
            let signal = match force {
                Force::Ask => Signal::TERM,
                Force::Kill => Signal::KILL,
            };
            // A group that has ended already is what was wanted.
            let _ = kill_process_group(self.0, signal);
        }
    }

    pub(crate) fn exit_of(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Status(code),
            (None, signal) => Exit::Signal(signal.unwrap_or_default()),
        }
    }

    /// Any bytes can be an argument (a zero byte is refused when the command is started).
    pub(crate) fn argument(bytes: Vec<u8>) -> Result<OsString, String> {
        Ok(OsString::from_vec(bytes))
    }

    /// Calls `on_signal` for each SIGHUP, SIGINT and SIGTERM, from a thread of its own.
    pub(crate) fn listen(on_signal: impl Fn() + Send + 'static) -> io::Result<()> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let listen = move || signals.forever().for_each(|_| on_signal());
        let thread = std::thread::Builder::new().name("redrive-signals".into());
        thread.spawn(listen).map(drop)
    }

    /// The length of standard input, if it is a file.
    pub(crate) fn input_bytes() -> Option<u64> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned().ok()?);
        let found = input.metadata().ok()?;
        found.is_file().then_some(found.len())
    }
}

#[cfg(not(unix))]
mod system {
    use std::ffi::OsString;
    use std::io;
    use std::process::{Child, Command, ExitStatus};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use redrive::{Clock, Signal, SystemClock};

    use super::{Exit, Force};

    pub(crate) fn isolate(_command: &mut Command) {}

    /// Something to wait for a child and to end it with, from other threads.
    #[derive(Clone, Debug)]
    pub(crate) struct Watch(Arc<AtomicBool>);

    impl Watch {
        pub(crate) fn new(_child: &Child) -> Self {
            Self(Arc::default())
        }

        /// Looks every few milliseconds: a child can only be ended by the thread that waits for it.
        pub(crate) fn wait(&self, child: &mut Child) -> io::Result<()> {
            let (clock, never) = (SystemClock::new(), Signal::new());
            let mut killed = false;
            while child.try_wait()?.is_none() {
                if self.0.load(Ordering::Acquire) && !killed {
                    killed = true;
                    child.kill()?;
                }
                clock.wait(&never, Some(clock.monotonic_ms() + 5));
            }
            Ok(())
        }

        pub(crate) fn end(&self, _force: Force) {
            self.0.store(true, Ordering::Release);
        }
    }

    pub(crate) fn exit_of(status: ExitStatus) -> Exit {
        Exit::Status(status.code().unwrap_or(-1))
    }

    /// Arguments are text here.
    pub(crate) fn argument(bytes: Vec<u8>) -> Result<OsString, String> {
        String::from_utf8(bytes)
            .map(OsString::from)
            .map_err(|error| format!("the payload cannot be an argument: {error}"))
    }

    /// There are no signals; a process that is ended is recovered at the next start.
    pub(crate) fn listen(_on_signal: impl Fn() + Send + 'static) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn input_bytes() -> Option<u64> {
        None
    }
}
