//! Work inside network namespaces: TAP devices, offload, raw sockets. The calling thread never
//! changes namespace; a short-lived one does.
#![allow(unsafe_code)] // The ioctls and packet options below have no safe wrapper in `nix`.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, bind, setsockopt, socket, sockopt,
};

use crate::tools::NETNS_DIR;
use cli::parallel::joined;

/// Runs `work` in a namespace made by `ip netns add`. File descriptors that it opens stay in the
/// namespace.
pub fn within<T: Send>(
    namespace: &str,
    work: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let file = File::open(Path::new(NETNS_DIR).join(namespace))
        .map_err(|e| io::Error::new(e.kind(), format!("network namespace {namespace}: {e}")))?;
    std::thread::scope(|scope| {
        joined(scope.spawn(|| {
            setns(&file, CloneFlags::CLONE_NEWNET)?;
            work()
        }))
    })
}

/// Makes a namespace as quiet as a switch port: no IPv6 autoconfiguration, whose multicasts would
/// look like hosts. Interfaces made later inherit it.
pub fn silence_ipv6(namespace: &str) -> io::Result<()> {
    within(namespace, silence_ipv6_here)
}

fn silence_ipv6_here() -> io::Result<()> {
    let switch = Path::new("/proc/sys/net/ipv6/conf");
    // A kernel without IPv6 has nothing to silence.
    if switch.exists() {
        std::fs::write(switch.join("all/disable_ipv6"), "1")?;
        std::fs::write(switch.join("default/disable_ipv6"), "1")?;
    }
    Ok(())
}

/// Moves the calling thread into a new namespace without a name, silenced. The namespace disappears
/// with the last thread and socket in it, however they end. Threads and programs started from here
/// are in it too.
pub fn enter_new() -> io::Result<()> {
    nix::sched::unshare(CloneFlags::CLONE_NEWNET)?;
    silence_ipv6_here()
}

/// Turns off transmit checksum offload. A userspace switch reads packets as they are: with offload
/// on, ping works and every TCP connection hangs, because no hardware ever fills in the checksum.
pub fn disable_checksum_offload(namespace: &str, devices: &[String]) -> io::Result<()> {
    within(namespace, || {
        let flags = SockFlag::SOCK_CLOEXEC;
        let control = socket(AddressFamily::Inet, SockType::Datagram, flags, None)?;
        devices
            .iter()
            .try_for_each(|device| disable_tx_checksum(&control, device))
    })
}

/// Makes and opens a non-blocking TAP device. The device disappears with the descriptor.
pub fn open_tap(namespace: &str, device: &str) -> io::Result<File> {
    within(namespace, || open_tap_here(device))
}

/// [`open_tap`] in the namespace of the calling thread.
pub fn open_tap_here(device: &str) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let mut request = interface_request(device)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is, and keeps no pointer.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    Errno::result(done)?;
    Ok(file)
}

/// A raw ICMP socket that lives in the namespace.
pub fn open_icmp_socket(namespace: &str) -> io::Result<OwnedFd> {
    within(namespace, || {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        Ok(socket(
            AddressFamily::Inet,
            SockType::Raw,
            flags,
            SockProtocol::Icmp,
        )?)
    })
}

/// A socket that sends and receives whole Ethernet frames of one device in the namespace.
pub fn open_packet_socket(namespace: &str, device: &str) -> io::Result<OwnedFd> {
    open_packet(namespace, device, SockProtocol::EthAll.into())
}

/// A socket that sends whole Ethernet frames and receives none, so that nothing is copied for it.
pub fn open_packet_sender(namespace: &str, device: &str) -> io::Result<OwnedFd> {
    open_packet(namespace, device, None)
}

/// A socket that sees the Ethernet frames that a device receives, each with the kernel's time of
/// arrival. Frames that the device sends are left out, so that on a loopback each frame is seen
/// once.
pub fn open_packet_listener(
    namespace: &str,
    device: &str,
    buffer_bytes: usize,
) -> io::Result<OwnedFd> {
    within(namespace, || {
        open_packet_listener_here(device, buffer_bytes)
    })
}

/// [`open_packet_listener`] in the namespace of the calling thread.
pub fn open_packet_listener_here(device: &str, buffer_bytes: usize) -> io::Result<OwnedFd> {
    let opened = open_packet_here(device, SockProtocol::EthAll.into())?;
    let one: libc::c_int = 1;
    // SAFETY: the option is one `int`, of the stated length, and the kernel keeps no pointer.
    let done = unsafe {
        libc::setsockopt(
            opened.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            (&raw const one).cast(),
            size_of_val(&one) as libc::socklen_t,
        )
    };
    Errno::result(done)?;
    prepare_to_listen(&opened, buffer_bytes)?;
    Ok(opened)
}

/// [`open_packet_listener`] that also sees the frames that the device sends.
pub fn open_packet_listener_both_ways(
    namespace: &str,
    device: &str,
    buffer_bytes: usize,
) -> io::Result<OwnedFd> {
    let opened = open_packet_socket(namespace, device)?;
    prepare_to_listen(&opened, buffer_bytes)?;
    Ok(opened)
}

fn prepare_to_listen(opened: &OwnedFd, buffer_bytes: usize) -> io::Result<()> {
    setsockopt(opened, sockopt::ReceiveTimestampns, &true)?;
    // Beyond the system's maximum, if permitted.
    if setsockopt(opened, sockopt::RcvBufForce, &buffer_bytes).is_err() {
        setsockopt(opened, sockopt::RcvBuf, &buffer_bytes)?;
    }
    Ok(())
}

/// Sets the receive buffer of every packet socket of another process: Open vSwitch uses the
/// system's default, and has no setting for it.
pub fn widen_packet_sockets(process: u32, buffer_bytes: usize) -> io::Result<()> {
    // SAFETY: takes and returns numbers.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    let process_fd = owned(opened)?;
    for entry in fs::read_dir(format!("/proc/{process}/fd"))? {
        let entry = entry?;
        let is_socket = fs::read_link(entry.path())
            .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"));
        let number = entry.file_name().to_string_lossy().parse::<i32>();
        let (true, Ok(number)) = (is_socket, number) else {
            continue;
        };
        // SAFETY: takes and returns numbers; the first is open as long as `process_fd` lives.
        let copied =
            unsafe { libc::syscall(libc::SYS_pidfd_getfd, process_fd.as_raw_fd(), number, 0) };
        let socket = owned(copied)?;
        if domain(&socket)? == libc::AF_PACKET {
            setsockopt(&socket, sockopt::RcvBufForce, &buffer_bytes)?;
        }
    }
    Ok(())
}

/// Turns the result of a system call that makes a descriptor into that descriptor or its error.
fn owned(returned: libc::c_long) -> io::Result<OwnedFd> {
    Errno::result(returned)?;
    // SAFETY: the call has just made the descriptor, and nothing else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(returned as i32) })
}

fn domain(socket: &OwnedFd) -> io::Result<libc::c_int> {
    let mut domain: libc::c_int = 0;
    read_option(socket, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain)?;
    Ok(domain)
}

/// Reads an option of a socket into a value of its type.
fn read_option<T: Copy>(
    socket: &OwnedFd,
    level: i32,
    option: i32,
    value: &mut T,
) -> io::Result<()> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let place = (&raw mut *value).cast();
    // SAFETY: `value` and `len` are valid for the call, and `len` is the size of `value`, which is
    // made of integers. The kernel keeps no pointer.
    let done = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut len) };
    Errno::result(done)?;
    Ok(())
}

/// The number of frames since the last call that a packet socket had no room for.
pub fn packet_drops(socket: &OwnedFd) -> io::Result<u64> {
    let mut statistics = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
    read_option(socket, level, option, &mut statistics)?;
    Ok(statistics.tp_drops.into())
}

fn open_packet(namespace: &str, device: &str, hears: Option<SockProtocol>) -> io::Result<OwnedFd> {
    within(namespace, || open_packet_here(device, hears))
}

fn open_packet_here(device: &str, hears: Option<SockProtocol>) -> io::Result<OwnedFd> {
    let is_device = |entry: &InterfaceAddress| entry.interface_name == device;
    let link = getifaddrs()?
        .filter(is_device)
        .find_map(|entry| entry.address?.as_link_addr().copied());
    let link = link.ok_or_else(|| io::Error::other(format!("no device {device}")))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let opened = socket(AddressFamily::Packet, SockType::Raw, flags, hears)?;
    bind(opened.as_raw_fd(), &link)?;
    Ok(opened)
}

fn disable_tx_checksum(control: &OwnedFd, device: &str) -> io::Result<()> {
    /// `struct ethtool_value` of linux/ethtool.h.
    #[repr(C)]
    struct EthtoolValue {
        command: u32,
        data: u32,
    }
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let mut value = EthtoolValue {
        command: ETHTOOL_STXCSUM,
        data: 0,
    };
    let mut request = interface_request(device)?;
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: SIOCETHTOOL reads one `ifreq` whose data points to an `ethtool_value`; both outlive
    // the call, and the kernel keeps neither pointer.
    let done = unsafe { libc::ioctl(control.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    if done < 0 {
        let e = io::Error::last_os_error();
        return Err(io::Error::new(
            e.kind(),
            format!("checksum offload of {device}: {e}"),
        ));
    }
    Ok(())
}

fn interface_request(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all of `ifreq` is integers, addresses made of integers, and one raw pointer; zero is
    // a value of each.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero: the kernel wants a terminated name.
    if device.len() >= request.ifr_name.len() {
        return Err(io::Error::other(format!(
            "interface name '{device}' is longer than 15"
        )));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}
