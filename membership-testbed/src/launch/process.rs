//! One process of a server, its children, and the watch that ends them if this program ends without
//! doing so.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// How long a killed process may take to end.
const GONE: Duration = Duration::from_secs(20);
/// The interval of checks while waiting.
pub(super) const LOOK: Duration = Duration::from_millis(5);

/// A running process of the launcher.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
}

impl Process {
    /// Starts it in a separate process group: an interrupt from the terminal goes to the tests,
    /// which then end it in order.
    pub(super) fn spawn(mut command: Command) -> io::Result<Self> {
        Ok(Self {
            child: command.process_group(0).stdin(Stdio::null()).spawn()?,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status, if it has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Its process id and those of its children, its own first.
    pub(super) fn family(&self) -> Vec<Pid> {
        family(self.child.id())
    }

    /// Kills it and its children (SIGKILL); returns when all are gone.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        let family = self.family();
        if self.ended().is_none() {
            signal(&family, Signal::KILL)?;
        }
        self.child.wait()?;
        // Children without a parent; the system reaps those that belong to no process.
        signal(family.get(1..).unwrap_or_default(), Signal::KILL)?;
        wait_gone(family.get(1..).unwrap_or_default())
    }

    /// Sends it this signal, and returns when it and its children have ended; false after the
    /// timeout.
    pub(super) fn stop(&mut self, with: Signal, within: Duration) -> io::Result<bool> {
        let family = self.family();
        if self.ended().is_none()
            && let Some(&first) = family.first()
        {
            signal(&[first], with)?;
        }
        let deadline = Instant::now() + within;
        while self.ended().is_none() {
            if Instant::now() > deadline {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        wait_gone(family.get(1..).unwrap_or_default())?;
        Ok(true)
    }

    /// Pauses or resumes it and its children. It is paused first, so that it starts no more
    /// children.
    pub(super) fn freeze(&self, frozen: bool) -> io::Result<()> {
        let with = if frozen { Signal::STOP } else { Signal::CONT };
        let mut done: Vec<Pid> = Vec::new();
        // A child may have started while the others were being paused.
        loop {
            let rest: Vec<Pid> = self
                .family()
                .into_iter()
                .filter(|pid| !done.contains(pid))
                .collect();
            if rest.is_empty() {
                break;
            }
            signal(&rest, with)?;
            done.extend(rest);
        }
        // A busy machine stops a process some time after the signal; until then it still answers.
        let deadline = Instant::now() + GONE;
        while frozen && done.iter().any(|pid| still_runs(*pid)) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Sends a signal to each; a process that is gone already is no error.
fn signal(to: &[Pid], with: Signal) -> io::Result<()> {
    for &pid in to {
        match kill_process(pid, with) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn wait_gone(pids: &[Pid]) -> io::Result<()> {
    let deadline = Instant::now() + GONE;
    while pids
        .iter()
        .any(|&pid| test_kill_process(pid).is_ok() && !is_zombie(pid))
    {
        if Instant::now() > deadline {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "processes of the server did not end",
            ));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether it is dead but not reaped: in a container that may never happen.
fn is_zombie(pid: Pid) -> bool {
    status(&pid.to_string()).is_some_and(|(_, state)| state == 'Z')
}

/// Whether a thread of the process is neither stopped nor dead, on systems with `/proc` (Linux).
fn still_runs(pid: Pid) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
    threads
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .any(|thread| {
            let path = thread.path().join("stat");
            state_in(&path).is_some_and(|(_, state)| !matches!(state, 'T' | 't' | 'Z' | 'X'))
        })
}

/// Parent and state of a process, on systems with `/proc` (Linux).
fn status(pid: &str) -> Option<(i32, char)> {
    state_in(Path::new(&format!("/proc/{pid}/stat")))
}

fn state_in(stat: &Path) -> Option<(i32, char)> {
    let text = fs::read_to_string(stat).ok()?;
    // The program's name is in brackets and may contain anything.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((fields.next()?.parse().ok()?, state))
}

fn family(first: u32) -> Vec<Pid> {
    let Some(first) = i32::try_from(first).ok().and_then(Pid::from_raw) else {
        return Vec::new();
    };
    let all: Vec<(i32, i32)> = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, status(&format!("{pid}"))?.0))
        })
        .collect();
    let mut members = vec![first];
    let mut next = 0;
    while let Some(&parent) = members.get(next) {
        members.extend(
            all.iter()
                .filter(|&&(_, of)| of == parent.as_raw_pid())
                .filter_map(|&(pid, _)| Pid::from_raw(pid)),
        );
        next += 1;
    }
    members
}

/// Ends a server and removes its folder when this program ends, in any way: a small shell waits for
/// the end of its input.
///
/// A signal on the parent's death would not work: Linux sends it when the *thread* that started the
/// server ends, and a test is a thread.
#[derive(Debug)]
pub(super) struct Watch {
    shell: Child,
}

/// Each line replaces the list of processes. The end of input kills them.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
pids=
while read -r line; do pids=$line; done
for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
tries=0
while [ -e "$1" ] && [ "$tries" -lt 50 ]; do
    rm -rf -- "$1" 2>/dev/null
    [ ! -e "$1" ] || sleep 0.1
    tries=$((tries + 1))
done
"#;

/// A line means that the container is gone.
#[cfg(feature = "containers")]
const CONTAINER: &str = r#"
trap '' INT TERM HUP
if ! read -r line; then docker rm --force --volumes "$1"; fi
"#;

impl Watch {
    pub(super) fn over(folder: &Path) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(SCRIPT)
            .arg("membership-watch")
            .arg(folder)
            .process_group(0)
            .current_dir("/");
        let shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { shell })
    }

    /// The same for a container, if the engine's program is on this machine.
    #[cfg(feature = "containers")]
    pub(super) fn over_container(id: &str) -> io::Result<Self> {
        let mut command = Command::new("/bin/sh");
        command
            .arg("-c")
            .arg(CONTAINER)
            .arg("membership-watch")
            .arg(id)
            .process_group(0)
            .current_dir("/");
        let shell = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { shell })
    }

    /// Tells the watch that nothing is left to remove.
    #[cfg(feature = "containers")]
    pub(super) fn nothing(&mut self) -> io::Result<()> {
        match self.shell.stdin.as_mut() {
            Some(input) => writeln!(input, "nothing").and_then(|()| input.flush()),
            None => Ok(()),
        }
    }

    /// Tells the watch to end these processes and no others.
    pub(super) fn these(&mut self, pids: &[Pid]) -> io::Result<()> {
        let line = pids
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(" ");
        match self.shell.stdin.as_mut() {
            Some(input) => writeln!(input, "{line}").and_then(|()| input.flush()),
            None => Ok(()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // The shell removes the rest of the folder, and ends.
        let _ = self.shell.wait();
    }
}
