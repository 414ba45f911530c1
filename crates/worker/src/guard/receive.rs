//! Bytes and descriptors off the worker's socket.

use std::{
    collections::VecDeque,
    io,
    io::IoSliceMut,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::{
    cmsg_space,
    errno::Errno,
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg},
};

use super::{
    fork,
    wire::{Inbox, STREAMS},
};

/// Takes what the socket has. `false`: the other side is gone.
pub fn receive(socket: &OwnedFd, inbox: &mut Inbox, descriptors: &mut VecDeque<OwnedFd>) -> io::Result<bool> {
    let mut bytes = vec![0; 64 << 10];
    let mut space = cmsg_space!([std::os::fd::RawFd; STREAMS]);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let read = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
        Ok(message) => {
            for control in message.cmsgs()? {
                if let ControlMessageOwned::ScmRights(received) = control {
                    descriptors.extend(received.into_iter().map(fork::adopt));
                }
            }
            message.bytes
        }
        Err(Errno::EAGAIN | Errno::EINTR) => return Ok(true),
        Err(Errno::ECONNRESET) => 0,
        Err(error) => return Err(error.into()),
    };
    inbox.push(&bytes[..read]);
    Ok(read > 0)
}
