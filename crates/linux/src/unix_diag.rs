//! Who is at the other end of a unix socket (`sock_diag(7)`, unix family). The netlink socket belongs to one network
//! namespace and tells of the sockets of that one only.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{Result, SysError};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const SHOW_NAME: u32 = 1;
const SHOW_PEER: u32 = 4;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_SHUTDOWN: u16 = 6;

/// A unix socket as the kernel describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnixSocket {
    /// Inode of the other end; 0 for none.
    pub peer: u64,
    /// It has a name (bound).
    pub named: bool,
    /// It listens.
    pub listening: bool,
    /// Ways that were shut down.
    pub shutdown: u8,
}

/// A way to ask about the sockets of one network namespace.
#[derive(Debug)]
pub struct UnixDiag {
    socket: OwnedFd,
}

impl UnixDiag {
    /// For the network namespace of process `pid`.
    ///
    /// # Errors
    /// `ENOENT` where the process is gone, `EPERM` without rights over its namespace.
    pub fn of_process(pid: i32) -> Result<Self> {
        let open = |path: String| File::open(&path).map_err(|e| SysError::io("open", path, &e));
        let target = open(format!("/proc/{pid}/ns/net"))?;
        // A namespace belongs to a thread: a thread of our own enters it, so that nothing else ever does.
        std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    move_into_link_name_space(std::os::fd::AsFd::as_fd(&target), Some(LinkNameSpaceType::Network))
                        .map_err(|e| SysError::rustix("setns", pid, e))?;
                    rustix::net::socket_with(
                        AddressFamily::NETLINK,
                        SocketType::RAW,
                        SocketFlags::CLOEXEC,
                        Some(netlink::SOCK_DIAG),
                    )
                    .map_err(|e| SysError::rustix("socket", "NETLINK_SOCK_DIAG", e))
                })
                .join()
                .expect("the thread does not panic")
        })
        .map(|socket| Self { socket })
    }

    /// All unix sockets, by inode.
    ///
    /// # Errors
    /// Whatever netlink answers.
    pub fn sockets(&self) -> Result<BTreeMap<u64, UnixSocket>> {
        let mut request = Vec::with_capacity(40);
        request.extend_from_slice(&40u32.to_ne_bytes());
        request.extend_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        request.extend_from_slice(&NLM_F_REQUEST_DUMP.to_ne_bytes());
        request.extend_from_slice(&[0; 8]);
        request.extend_from_slice(&[libc::AF_UNIX.to_ne_bytes()[0], 0, 0, 0]);
        request.extend_from_slice(&u32::MAX.to_ne_bytes());
        request.extend_from_slice(&0u32.to_ne_bytes());
        request.extend_from_slice(&(SHOW_NAME | SHOW_PEER).to_ne_bytes());
        request.extend_from_slice(&u64::MAX.to_ne_bytes());
        rustix::net::send(&self.socket, &request, SendFlags::empty())
            .map_err(|e| SysError::rustix("send", "NETLINK_SOCK_DIAG", e))?;
        let mut found = BTreeMap::new();
        let mut buffer = vec![0u8; 65536];
        loop {
            let (got, _) = rustix::net::recv(&self.socket, buffer.as_mut_slice(), RecvFlags::empty())
                .map_err(|e| SysError::rustix("recv", self.socket.as_raw_fd(), e))?;
            if parse(&buffer[..got], &mut found)? {
                return Ok(found);
            }
        }
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// `true` at the end of the dump.
fn parse(mut bytes: &[u8], found: &mut BTreeMap<u64, UnixSocket>) -> Result<bool> {
    while bytes.len() >= 16 {
        let length = word(bytes, 0) as usize;
        if length < 16 || length > bytes.len() {
            return Err(SysError::new("sock_diag", "unix", libc::EPROTO));
        }
        match half(bytes, 4) {
            NLMSG_DONE => return Ok(true),
            NLMSG_ERROR => {
                return Err(SysError::new(
                    "sock_diag",
                    "unix",
                    0i32.wrapping_sub(word(bytes, 16).cast_signed()),
                ));
            }
            _ if length >= 32 => {
                let (inode, socket) = parse_socket(&bytes[16..length]);
                found.insert(inode, socket);
            }
            _ => {}
        }
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
    }
    Ok(false)
}

fn parse_socket(message: &[u8]) -> (u64, UnixSocket) {
    const LISTEN: u8 = 10;
    let mut socket = UnixSocket {
        listening: message[2] == LISTEN,
        ..UnixSocket::default()
    };
    let mut attributes = &message[16..];
    while attributes.len() >= 4 {
        let length = usize::from(half(attributes, 0)).max(4);
        let value = attributes.get(4..length).unwrap_or(&[]);
        match half(attributes, 2) {
            UNIX_DIAG_NAME => socket.named = !value.is_empty(),
            UNIX_DIAG_PEER if value.len() >= 4 => socket.peer = u64::from(word(value, 0)),
            UNIX_DIAG_SHUTDOWN if !value.is_empty() => socket.shutdown = value[0],
            _ => {}
        }
        attributes = &attributes[length.next_multiple_of(4).min(attributes.len())..];
    }
    (u64::from(word(message, 4)), socket)
}

/// What waits at a socket, without taking it: one entry a message, one in all for a stream. `None` where descriptors
/// travel with it.
///
/// # Errors
/// `EOPNOTSUPP` where the socket cannot peek at an offset.
pub fn peek(socket: std::os::fd::BorrowedFd<'_>, stream: bool) -> Result<Option<Vec<Vec<u8>>>> {
    let error = |call| SysError::last(call, socket.as_raw_fd());
    let set = |value: i32| {
        let size = libc::socklen_t::try_from(size_of::<i32>()).expect("an int is four bytes");
        // SAFETY: the option value is a live int of the size stated.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEEK_OFF,
                (&raw const value).cast(),
                size,
            )
        };
        if result < 0 { Err(error("SO_PEEK_OFF")) } else { Ok(()) }
    };
    set(0)?;
    let result = peek_all(socket, stream);
    set(-1)?;
    result
}

fn peek_all(socket: std::os::fd::BorrowedFd<'_>, stream: bool) -> Result<Option<Vec<Vec<u8>>>> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut buffer = vec![0u8; 1 << 18];
    loop {
        let mut io = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: msghdr is plain data for which all-zero is valid.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_iov = &raw mut io;
        header.msg_iovlen = 1;
        // SAFETY: `header` points to one live iovec over `buffer`; no control buffer is given, so no descriptor is made.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
        if got < 0 {
            let error = SysError::last("recvmsg", socket.as_raw_fd());
            return if error.errno == libc::EAGAIN {
                Ok(Some(all))
            } else {
                Err(error)
            };
        }
        if header.msg_flags & libc::MSG_CTRUNC != 0 {
            return Ok(None);
        }
        let bytes = &buffer[..usize::try_from(got).expect("positive")];
        if bytes.is_empty() && stream {
            return Ok(Some(all));
        }
        match all.first_mut() {
            Some(first) if stream => first.extend_from_slice(bytes),
            _ => all.push(bytes.to_vec()),
        }
        if bytes.is_empty() {
            return Ok(Some(all));
        }
    }
}

/// Takes everything that waits at a socket.
///
/// # Errors
/// As `recv(2)`.
pub fn drain(socket: std::os::fd::BorrowedFd<'_>) -> Result<()> {
    let mut buffer = vec![0u8; 65536];
    loop {
        match rustix::net::recv(socket, buffer.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((0, _)) | Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(SysError::rustix("recv", socket.as_raw_fd(), e)),
        }
    }
}

/// Sends one message (or a stretch of a stream) whole, without blocking and without a signal.
///
/// # Errors
/// `EAGAIN` where it does not fit, `EPIPE` where the other end is closed.
pub fn send(socket: std::os::fd::BorrowedFd<'_>, mut bytes: &[u8], stream: bool) -> Result<()> {
    loop {
        let sent = rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            .map_err(|e| SysError::rustix("send", socket.as_raw_fd(), e))?;
        bytes = &bytes[sent..];
        if !stream || bytes.is_empty() {
            return Ok(());
        }
    }
}

/// `SO_DOMAIN` and `SO_TYPE`.
///
/// # Errors
/// `ENOTSOCK`.
pub fn domain_and_type(socket: std::os::fd::BorrowedFd<'_>) -> Result<(i32, i32)> {
    let domain = rustix::net::sockopt::socket_domain(socket)
        .map_err(|e| SysError::rustix("SO_DOMAIN", socket.as_raw_fd(), e))?;
    let kind =
        rustix::net::sockopt::socket_type(socket).map_err(|e| SysError::rustix("SO_TYPE", socket.as_raw_fd(), e))?;
    Ok((
        i32::from(domain.as_raw()),
        i32::try_from(kind.as_raw()).expect("a small number"),
    ))
}
