//! A server as a process of this machine.

use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use super::control::Control;
use super::error::LaunchError;
use super::options::{How, Options};
use super::port::free_port;
use super::process::{LOOK, Process, Watch};
use super::progress;
use super::software;
use super::software::ground::{Ground, last_lines};
use super::software::special::Software;
use super::tls::Tls;
use crate::install;
use crate::kind::Kind;

/// How long a server may take until it answers. A quiet machine needs seconds, but tests run on
/// busy ones, and a server in Java also compiles itself while it starts.
const READY: Duration = Duration::from_secs(90);
const READY_IN_JAVA: Duration = Duration::from_secs(180);
/// How long an orderly stop may take.
const STOPPED: Duration = Duration::from_secs(30);
/// How many starts are tried: another process may take a port between its choice and its use.
const STARTS: usize = 4;
/// Where Linux keeps files in memory. They outlive the server that wrote them, until they are
/// removed.
const IN_MEMORY: &str = "/dev/shm";
/// The user of a server that must not run as root: `nobody`, which every system has.
const NOBODY: u32 = 65_534;

/// A server process of the launcher. Its functions block, so callers use a separate thread.
#[derive(Debug)]
pub(super) struct Local {
    ground: Ground,
    process: Option<Process>,
    frozen: bool,
    // Dropped in this order: the watch waits until the folder is removed.
    _folder: TempDir,
    watch: Watch,
}

/// A temporary folder: on a disk, or in memory for a server that flushes more than it must.
fn folder(kind: Kind) -> Result<TempDir, LaunchError> {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("membership-{kind}-");
    builder.prefix(&prefix);
    if software::of(kind).flushes_too_much()
        && let Ok(folder) = builder.tempdir_in(IN_MEMORY)
    {
        return Ok(folder);
    }
    builder.tempdir().map_err(LaunchError::io(
        "cannot make a folder in",
        std::env::temp_dir(),
    ))
}

impl Local {
    /// Installs what is missing, creates an empty server, starts it, and returns when it answers.
    pub(super) fn start(kind: Kind, options: Options) -> Result<Self, LaunchError> {
        if options.tls && !software::of(kind).offers_tls() {
            return Err(LaunchError::Unsupported {
                kind,
                how: How::Local,
                what: "TLS",
            });
        }
        let tree = install::install(&install::home(), kind, &progress::report)
            .map_err(|error| LaunchError::Install(error.to_string()))?;
        let folder = folder(kind)?;
        let watch = Watch::over(folder.path()).map_err(LaunchError::io("cannot run", "/bin/sh"))?;
        let root = folder.path().to_path_buf();
        // Other users may enter; the files inside have their own permissions.
        fs::set_permissions(&root, fs::Permissions::from_mode(0o711))
            .map_err(LaunchError::io("cannot open", &root))?;
        let software = software::of(kind);
        let user =
            (software.refuses_root() && rustix::process::geteuid().is_root()).then_some(NOBODY);
        let port = match options.port {
            Some(port) => port,
            None => free_port().map_err(LaunchError::io("cannot listen on", "127.0.0.1"))?,
        };
        let mut ground = Ground {
            kind,
            options,
            tree,
            root,
            port,
            user,
        };
        ground.reachable_tree()?;
        for folder in [ground.data(), ground.run()] {
            ground.private_folder(&folder)?;
        }
        if ground.options.tls {
            Tls::within(&ground.root).create(user)?;
        }
        software.create(&ground)?;
        let mut local = Self {
            ground,
            process: None,
            frozen: false,
            _folder: folder,
            watch,
        };
        local.up_again()?;
        Ok(local)
    }

    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((self.ground.host(), self.ground.port))
    }

    pub(super) fn url(&self) -> String {
        self.software().url(self.address(), &self.ground.options)
    }

    pub(super) fn tls(&self) -> Option<Tls> {
        self.ground
            .options
            .tls
            .then(|| Tls::within(&self.ground.root))
    }

    pub(super) fn version(&self) -> &str {
        &self.ground.tree.version
    }

    pub(super) fn folder(&self) -> &Path {
        &self.ground.root
    }

    pub(super) fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }

    /// Its log.
    pub(super) fn log(&self) -> String {
        fs::read(self.ground.log())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    pub(super) fn command(&self, program: &str) -> Result<std::process::Command, LaunchError> {
        self.ground.command(program)
    }

    /// Starts it again at its address, unless it runs.
    fn up_again(&mut self) -> Result<(), LaunchError> {
        if self
            .process
            .as_mut()
            .is_some_and(|process| process.ended().is_none())
        {
            return Ok(());
        }
        let mut tries = 1;
        loop {
            match self.try_up() {
                Err(LaunchError::Start { .. }) if tries < STARTS && self.process.is_none() => {
                    tries += 1;
                    // Changes neither a port that the test requested nor one that clients know
                    // already.
                    let never_served = fs::metadata(self.served()).is_err();
                    if self.ground.options.port.is_none() && never_served {
                        self.ground.port = free_port()
                            .map_err(LaunchError::io("cannot listen on", "127.0.0.1"))?;
                    } else {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                }
                other => return other,
            }
        }
    }

    /// Starts it once. After an error of the kind "did not start" no process is left.
    fn try_up(&mut self) -> Result<(), LaunchError> {
        let mut command = self.software().command(&self.ground)?;
        let path = self.ground.log();
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(LaunchError::io("cannot write", &path))?;
        let before = log.metadata().map(|known| known.len()).unwrap_or_default();
        let copy = log
            .try_clone()
            .map_err(LaunchError::io("cannot write", &path))?;
        command.stdout(Stdio::from(log)).stderr(Stdio::from(copy));
        let program = PathBuf::from(command.get_program());
        let mut process =
            Process::spawn(command).map_err(LaunchError::io("cannot run", program))?;
        let ready = match self.ground.kind {
            Kind::Cassandra | Kind::DynamoDb | Kind::ZooKeeper => READY_IN_JAVA,
            _ => READY,
        };
        let deadline = Instant::now() + ready;
        self.watch
            .these(&process.family())
            .map_err(LaunchError::io("cannot write to", "/bin/sh"))?;
        loop {
            let why = if let Some(status) = process.ended() {
                format!("its process ended at once ({status})")
            } else {
                // The check uses its own port and its own answer: if a stranger had the port, our
                // process would end.
                match self.ask() {
                    Ok(()) if process.ended().is_none() => break,
                    Ok(()) => continue,
                    Err(_) if Instant::now() < deadline => {
                        std::thread::sleep(LOOK);
                        continue;
                    }
                    Err(error) => format!("no answer within {} s ({error})", ready.as_secs()),
                }
            };
            let _ = process.kill();
            let _ = self.watch.these(&[]);
            let log = self.log();
            let since = usize::try_from(before).unwrap_or_default();
            return Err(LaunchError::Start {
                kind: self.ground.kind,
                why,
                log: last_lines(log.get(since..).unwrap_or(&log)),
            });
        }
        self.process = Some(process);
        let _ = fs::write(self.served(), "");
        Ok(())
    }

    /// Exists once the server has served: from then on clients know its port.
    fn served(&self) -> PathBuf {
        self.ground.root.join("served")
    }

    /// Checks by one real call whether it serves.
    fn ask(&self) -> io::Result<()> {
        self.software().ask_inside(&self.ground)?;
        self.software().ask(self.address(), &self.ground.options)
    }

    fn software(&self) -> &'static dyn Software {
        software::of(self.ground.kind)
    }
}

impl Control for Local {
    fn up(&mut self) -> Result<(), LaunchError> {
        self.up_again()
    }

    fn kill(&mut self) -> Result<(), LaunchError> {
        let frozen = std::mem::take(&mut self.frozen);
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        if self.software().acknowledges_early() && !frozen {
            // A server that does not answer has nothing to finish.
            let _ = self.ask();
        }
        let killed = process.kill();
        let _ = self.watch.these(&[]);
        killed.map_err(LaunchError::io(
            "cannot kill the server of",
            &self.ground.root,
        ))
    }

    fn stop(&mut self) -> Result<(), LaunchError> {
        self.freeze(false)?;
        let signal: Signal = self.software().stop_signal();
        let Some(process) = self.process.as_mut() else {
            return Ok(());
        };
        let stopped = process.stop(signal, STOPPED).map_err(LaunchError::io(
            "cannot stop the server of",
            &self.ground.root,
        ))?;
        if !stopped {
            let log = last_lines(&self.log());
            self.kill()?;
            let why = format!(
                "it did not stop within {} s, and was killed",
                STOPPED.as_secs()
            );
            return Err(LaunchError::Start {
                kind: self.ground.kind,
                why,
                log,
            });
        }
        self.process = None;
        let _ = self.watch.these(&[]);
        Ok(())
    }

    fn freeze(&mut self, frozen: bool) -> Result<(), LaunchError> {
        if frozen == self.frozen {
            return Ok(());
        }
        let Some(process) = self.process.as_ref() else {
            return Ok(());
        };
        if frozen {
            // Stopped children do not notice that their parent is gone, so the watch must know each
            // of them.
            let _ = self.watch.these(&process.family());
        }
        process.freeze(frozen).map_err(LaunchError::io(
            "cannot pause the server of",
            &self.ground.root,
        ))?;
        let _ = self.watch.these(&process.family());
        self.frozen = frozen;
        Ok(())
    }

    /// Starts it again without data.
    fn wipe(&mut self) -> Result<(), LaunchError> {
        self.kill()?;
        let data = self.ground.data();
        fs::remove_dir_all(&data).map_err(LaunchError::io("cannot empty", &data))?;
        self.ground.private_folder(&data)?;
        self.software().create(&self.ground)?;
        self.up()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take()
            && let Err(error) = process.kill()
        {
            let _ = writeln!(
                io::stderr(),
                "{}: the server's process {} could not be ended: {error}",
                self.ground.kind,
                process.id()
            );
        }
        let _ = self.watch.these(&[]);
    }
}

impl Ground {
    /// A folder that only the server's user may read.
    fn private_folder(&self, path: &Path) -> Result<(), LaunchError> {
        fs::create_dir(path).map_err(LaunchError::io("cannot make", path))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))
            .map_err(LaunchError::io("cannot protect", path))?;
        match self.user {
            Some(user) => chown(path, Some(user), Some(user))
                .map_err(LaunchError::io("cannot hand over", path)),
            None => Ok(()),
        }
    }

    /// The user of the server cannot read a checkout in somebody's private folder, so the programs
    /// are copied.
    fn reachable_tree(&mut self) -> Result<(), LaunchError> {
        let Some(user) = self.user else { return Ok(()) };
        let shut = self.tree.root.ancestors().any(|folder| {
            use std::os::unix::fs::MetadataExt as _;
            fs::metadata(folder).map_or(true, |known| {
                known.uid() != user && known.permissions().mode() & 0o001 == 0
            })
        });
        if shut {
            let copy = self.root.join("programs");
            copy_tree(&self.tree.root, &copy)?;
            self.tree = self.tree.moved(&copy);
        }
        Ok(())
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), LaunchError> {
    fs::create_dir(to).map_err(LaunchError::io("cannot make", to))?;
    for entry in fs::read_dir(from)
        .map_err(LaunchError::io("cannot read", from))?
        .filter_map(Result::ok)
    {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry
            .file_type()
            .map_err(LaunchError::io("cannot read", &source))?;
        if kind.is_dir() {
            copy_tree(&source, &target)?;
        } else if kind.is_symlink() {
            let link = fs::read_link(&source).map_err(LaunchError::io("cannot read", &source))?;
            std::os::unix::fs::symlink(link, &target)
                .map_err(LaunchError::io("cannot make", &target))?;
        } else {
            fs::copy(&source, &target)
                .map(drop)
                .map_err(LaunchError::io("cannot copy", &source))?;
        }
    }
    Ok(())
}
