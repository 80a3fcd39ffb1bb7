//! Interface flags: SIOCSIFFLAGS of netdevice(7).

use super::mount::last_errno;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket};
use std::os::fd::AsRawFd;

/// Brings `lo` up in this network namespace; the kernel gives it 127.0.0.1 and ::1.
///
/// # Errors
/// The errno of socket(2) or ioctl(2).
pub fn loopback_up() -> Result<(), Errno> {
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut name = [0; libc::IFNAMSIZ];
    name[0] = b'l' as libc::c_char;
    name[1] = b'o' as libc::c_char;
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let request = libc::ifreq { ifr_name: name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: `request` is a whole ifreq with its flags set, and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
