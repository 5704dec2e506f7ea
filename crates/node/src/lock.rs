//! One daemon per state directory: a lock that goes with its process, however it ends, in a file that says where it
//! listens. A daemon that ends keeps the lock until its last sandbox is down, and listens no more by then; whoever starts
//! the next one waits for that. One that listens is left alone.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

use crate::config::Config;
use crate::error::NodeError;

/// How long the daemon before this one may take to end.
pub const PREDECESSOR_END_MAX: Duration = Duration::from_secs(30);

/// How long a daemon that listens may take to show a sign of life; one that shows none is not taken for one that ends.
const SIGN_OF_LIFE_MAX: Duration = Duration::from_secs(5);

/// Takes the lock, and waits for it while the one who has it is ending.
pub(crate) fn take(config: &Config) -> Result<File, NodeError> {
    let path = config.state.join("daemon.lock");
    let open = rustix::fs::open(
        &path,
        OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::from_raw_mode(0o600),
    );
    let mut file = File::from(open.map_err(|errno| NodeError::io("open", &path, errno.into()))?);
    file = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => file,
        Err(Errno::WOULDBLOCK) => after_the_one_who_has_it(file, config)?,
        Err(errno) => return Err(NodeError::io("lock", &path, errno.into())),
    };
    let written = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(config.socket.as_os_str().as_bytes()));
    written.map_err(|error| NodeError::io("write", &path, error))?;
    Ok(file)
}

fn after_the_one_who_has_it(mut file: File, config: &Config) -> Result<File, NodeError> {
    let runs = || NodeError::AlreadyRuns {
        state: config.state.clone(),
    };
    let mut socket = Vec::new();
    let read = file.read_to_end(&mut socket);
    read.map_err(|error| NodeError::io("read the lock in", &config.state, error))?;
    let socket = PathBuf::from(std::ffi::OsString::from_vec(socket));
    if listens(&socket) {
        return Err(runs());
    }
    // The kernel has no bound for this call: it is made on a thread that may be left behind, which then lets go at once.
    let (sender, taken) = mpsc::sync_channel(1);
    std::thread::spawn(move || sender.send(flock(&file, FlockOperation::LockExclusive).map(|()| file)));
    match taken.recv_timeout(PREDECESSOR_END_MAX) {
        Ok(Ok(file)) => Ok(file),
        Ok(Err(errno)) => Err(NodeError::io("lock the state in", &config.state, errno.into())),
        // It was not ending then, but only starting.
        Err(_) if listens(&socket) => Err(runs()),
        Err(_) => Err(NodeError::DoesNotEnd {
            state: config.state.clone(),
        }),
    }
}

/// Whether somebody answers there. A process that is being ended can still be connected to; it hangs up.
fn listens(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else {
        return false;
    };
    let asked = stream
        .set_read_timeout(Some(SIGN_OF_LIFE_MAX))
        .and_then(|()| stream.write_all(b"GET /v1/version HTTP/1.1\r\nhost: deltabox\r\nconnection: close\r\n\r\n"))
        .and_then(|()| stream.read(&mut [0]));
    match asked {
        Ok(len) => len > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn who_hangs_up_does_not_listen() {
        let socket = std::env::temp_dir().join(format!("deltabox-lock-{}.sock", std::process::id()));
        assert!(!listens(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        let answers = |answer: &'static [u8]| {
            let listener = listener.try_clone().unwrap();
            let other = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(answer).unwrap();
            });
            let listens = listens(&socket);
            other.join().unwrap();
            listens
        };
        assert!(answers(b"HTTP/1.1 200 OK\r\n"));
        assert!(!answers(b""));
        drop(listener);
        assert!(!listens(&socket));
        std::fs::remove_file(socket).unwrap();
    }
}
