//! The daemon's end of the talk with PID 1: words and descriptors over a `SOCK_SEQPACKET` socket. It knows the shape of
//! messages, not what they mean.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linux::SysError;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::error::{SandboxError, Step as _};
use crate::protocol::{MESSAGE_BYTES_MAX, MESSAGE_FDS_MAX};

/// One end of the socket.
#[derive(Debug)]
pub(crate) struct Control {
    socket: OwnedFd,
}

/// What came in one record.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) words: Vec<u32>,
    pub(crate) fds: Vec<OwnedFd>,
}

impl Message {
    /// The word at `index`, 0 when the message is shorter.
    pub(crate) fn word(&self, index: usize) -> u32 {
        self.words.get(index).copied().unwrap_or(0)
    }
}

impl Control {
    /// Our end and the other one. Both close on exec.
    pub(crate) fn pair() -> Result<(Self, OwnedFd), SandboxError> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|e| SysError::rustix("socketpair", "control", e))
            .step("make the control socket")?;
        Ok((Self { socket: ours }, theirs))
    }

    pub(crate) fn send(&self, words: &[u32], tail: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), SandboxError> {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend_from_slice(tail);
        assert!(
            bytes.len() <= MESSAGE_BYTES_MAX,
            "a message fits the other side's buffer"
        );
        assert!(fds.len() <= MESSAGE_FDS_MAX, "descriptors fit the other side's buffer");
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
            assert!(fits, "the space was made for as many");
        }
        sendmsg(
            &self.socket,
            &[IoSlice::new(&bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
        .map(drop)
        .map_err(|_| SandboxError::Died)
    }

    /// Waits for the next record.
    pub(crate) fn receive(&self) -> Result<Message, SandboxError> {
        self.receive_with(RecvFlags::empty())?.ok_or(SandboxError::Died)
    }

    /// The next record, if one is there.
    pub(crate) fn receive_now(&self) -> Result<Option<Message>, SandboxError> {
        self.receive_with(RecvFlags::DONTWAIT)
    }

    fn receive_with(&self, flags: RecvFlags) -> Result<Option<Message>, SandboxError> {
        let mut bytes = [0u8; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let got = loop {
            match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(_) => return Err(SandboxError::Died),
                Ok(got) => break got.bytes,
            }
        };
        if got == 0 {
            return Err(SandboxError::Died);
        }
        let mut fds = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        let (words, _) = bytes.get(..got).unwrap_or(&[]).as_chunks::<4>();
        Ok(Some(Message {
            words: words.iter().map(|word| u32::from_le_bytes(*word)).collect(),
            fds,
        }))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
