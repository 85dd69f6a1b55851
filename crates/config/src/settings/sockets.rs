//! The sockets, folders and files that a start of a controller or a relay would make, checked in
//! advance as far as possible without opening any.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cli::output::note;
use net::method::{Host, Method, Transport, UdpMethod};

use super::super::fields::Mistaken;
use super::Settings;
use super::document::Document;
use crate::api::{self, ApiAddress};

/// The status socket that `unix:FILE` or `FILE` names.
pub fn status_socket(text: &str) -> Result<PathBuf, String> {
    let kind = text.split_once(':').map(|(kind, _)| kind);
    let is_method = kind.is_some_and(|kind| kind.bytes().all(|b| b.is_ascii_alphanumeric()));
    match text.parse() {
        Ok(Method::DialUnix(path) | Method::ListenUnix(path)) => Ok(path),
        _ if is_method || text.is_empty() => Err(format!(
            "'{text}' is no Unix socket: write unix:FILE or FILE"
        )),
        _ => Ok(text.into()),
    }
}

/// Warns of a method that is neither encrypted nor authenticated.
pub fn warn_if_exposed(method: &Method) {
    if method.is_exposed() {
        note!(
            "auster: warning: {method} is neither encrypted nor authenticated: whoever reaches it \
             controls the network; prefer ssl or quic (see auster pki)"
        );
    }
}

/// An address that one of our sockets would be bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tcp(SocketAddr),
    Udp(SocketAddr),
    Unix(PathBuf),
}

impl Address {
    /// Whether the system allows only one of the two addresses to be bound.
    fn excludes(&self, other: &Address) -> bool {
        match (self, other) {
            (Address::Tcp(one), Address::Tcp(two)) | (Address::Udp(one), Address::Udp(two)) => {
                let is_any = one.ip().is_unspecified() || two.ip().is_unspecified();
                let is_link = scope(one) == scope(two);
                let is_same = one.ip() == two.ip() && is_link;
                let is_in = is_any && one.is_ipv4() == two.is_ipv4();
                (is_same || is_in) && one.port() == two.port() && one.port() != 0
            }
            (one, two) => one == two,
        }
    }
}

/// The link of an address that may exist on many links.
fn scope(at: &SocketAddr) -> u32 {
    match at {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(at) => at.scope_id(),
    }
}

/// A socket that a setting or an option asks for.
pub struct Socket {
    setting: &'static str,
    stated: String,
    /// The socket's place in the file.
    place: Option<String>,
    addresses: Result<Vec<Address>, String>,
}

impl Socket {
    pub fn of_method(option: &'static str, method: &Method) -> Socket {
        Socket::of_option(option, method, of_method(method))
    }

    pub fn of_udp(option: &'static str, method: &UdpMethod) -> Socket {
        let address = address(method, &method.host, method.port);
        let addresses = address.map(|address| vec![Address::Udp(address)]);
        Socket::of_option(option, method, addresses)
    }

    pub fn of_api(option: &'static str, at: &ApiAddress) -> Socket {
        Socket::of_option(option, at, Ok(of_api(at)))
    }

    fn of_option(
        option: &'static str,
        stated: &dyn Display,
        addresses: Result<Vec<Address>, String>,
    ) -> Socket {
        Socket {
            setting: option,
            stated: stated.to_string(),
            place: None,
            addresses,
        }
    }

    /// A line for a mistake, at the place of the socket.
    fn line(&self, problem: &str) -> String {
        let place = self.place.iter().map(|place| format!("{place}: "));
        place.collect::<String>() + self.setting + ": " + problem
    }
}

/// One line for each socket, folder and file that a start could not make. The values of `mistaken`
/// settings are not known.
pub fn problems(settings: &Settings, mistaken: &Mistaken, document: &Document<'_>) -> Vec<String> {
    let mut problems = clashes(&sockets(settings, mistaken, document));
    let api = settings.api.as_ref();
    let audit = api.and_then(|api| api.audit.as_deref());
    let state = settings.state.as_deref();
    let of_cluster = settings.cluster.as_ref().map(|cluster| &*cluster.state);
    let found = [
        ("api.audit", audit, file_problem as fn(&Path) -> _),
        ("state", state, folder_problem),
        ("cluster.state", of_cluster, folder_problem),
    ];
    for (setting, path, problem_of) in found {
        let problem = path.and_then(|path| Some((path, problem_of(path)?)));
        let line = problem.map(|(path, problem)| {
            let place = document.place_of_text(setting, 0, |text| document.path(text) == path);
            let place = place.map_or(String::new(), |place| format!("{place}: "));
            format!("{place}{setting}: {problem}")
        });
        problems.extend(line);
    }
    problems
}

/// One line for each socket that could not be made: another socket has its address, or its file
/// cannot be made.
pub fn clashes(sockets: &[Socket]) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, socket) in sockets.iter().enumerate() {
        let addresses = match &socket.addresses {
            Ok(addresses) => addresses,
            Err(problem) => {
                problems.push(socket.line(problem));
                continue;
            }
        };
        let is_taken = |other: &&Socket| {
            let mut taken = other.addresses.iter().flatten();
            taken.any(|one| addresses.iter().any(|two| one.excludes(two)))
        };
        if let Some(other) = sockets[..number].iter().find(is_taken) {
            problems.push(socket.line(&taken(socket, other)));
        }
        for path in addresses.iter().filter_map(Address::file) {
            problems.extend(socket_problem(path).map(|problem| socket.line(&problem)));
        }
    }
    problems
}

fn taken(socket: &Socket, other: &Socket) -> String {
    let stated = &socket.stated;
    match socket.setting == other.setting && *stated == other.stated {
        true => format!("{stated} is there already; take one of the two out"),
        false => format!(
            "{stated} is taken by {}, which is {}; choose another {} for one of them",
            other.setting,
            other.stated,
            match socket
                .addresses
                .iter()
                .flatten()
                .any(|one| one.file().is_some())
            {
                true => "file",
                false => "port",
            }
        ),
    }
}

impl Address {
    fn file(&self) -> Option<&Path> {
        match self {
            Address::Unix(path) => Some(path),
            _ => None,
        }
    }
}

fn sockets(settings: &Settings, mistaken: &Mistaken, document: &Document<'_>) -> Vec<Socket> {
    let mut sockets: Vec<Socket> = Vec::new();
    let mut add = |setting, stated: &dyn Display, reads: &dyn Fn(&str) -> bool, addresses| {
        let stated = stated.to_string();
        let is_same = |one: &&Socket| one.setting == setting && one.stated == stated;
        let before = sockets.iter().filter(is_same).count();
        sockets.push(Socket {
            setting,
            place: document.place_of_text(setting, before, reads),
            stated,
            addresses,
        });
    };
    // The default does not apply where a setting could not be read.
    let listen = match mistaken.has("listen") || mistaken.has("connect") {
        true => settings.listen.clone(),
        false => settings.listening(),
    };
    let of_cluster = settings.cluster.iter().map(|cluster| &cluster.listen);
    let methods = [
        ("listen", listen.iter().collect::<Vec<_>>()),
        ("ovsdb", settings.ovsdb.iter().collect()),
        ("cluster.listen", of_cluster.collect()),
    ];
    for (setting, methods) in methods {
        for method in methods.into_iter().filter(|method| method.is_passive()) {
            let reads = |text: &str| match setting {
                "ovsdb" => super::ovsdb_method(text).is_ok_and(|one| one == *method),
                _ => text.parse().is_ok_and(|one: Method| one == *method),
            };
            add(setting, method, &reads, of_method(method));
        }
    }
    if let Some(status) = &settings.status {
        let reads = |text: &str| document.path(text) == *status;
        let at = Address::Unix(status.clone());
        add("status", &status.display(), &reads, Ok(vec![at]));
    }
    let api = settings.api.as_ref();
    let api = api.map(|api| match mistaken.has("api") {
        true => api.listen.clone(),
        false => api.listening(),
    });
    for at in api.iter().flatten() {
        let reads = |text: &str| match (api::address(text), at) {
            (Ok(ApiAddress::Unix(one)), ApiAddress::Unix(path)) => document.path(one) == *path,
            (one, at) => one.is_ok_and(|one| one == *at),
        };
        add("api.listen", at, &reads, Ok(of_api(at)));
    }
    sockets
}

/// The addresses that a start would bind, or the reason why there is none.
fn of_method(method: &Method) -> Result<Vec<Address>, String> {
    let (transport, host, port) = match method {
        Method::Listen(transport, host, port) => (transport, host, *port),
        Method::ListenUnix(path) => return Ok(vec![Address::Unix(path.clone())]),
        Method::Dial(..) | Method::DialUnix(_) => return Ok(Vec::new()),
    };
    let address = address(method, host, port)?;
    Ok(vec![match transport {
        Transport::Tcp | Transport::Tls => Address::Tcp(address),
        Transport::Quic => Address::Udp(address),
    }])
}

fn address(method: &dyn Display, host: &Host, port: u16) -> Result<SocketAddr, String> {
    let address = match host.socket_address(port) {
        Ok(Some(address)) => Ok(address),
        Ok(None) => first_address(host, port),
        Err(error) => Err(error),
    };
    address.map_err(|error| {
        format!("{method}: {host} has no address here ({error}); write one of this machine's")
    })
}

fn first_address(host: &Host, port: u16) -> io::Result<SocketAddr> {
    let mut found = (host.to_string(), port).to_socket_addrs()?;
    found.next().ok_or_else(|| io::Error::other("none found"))
}

fn of_api(at: &ApiAddress) -> Vec<Address> {
    match at {
        ApiAddress::Unix(path) => vec![Address::Unix(path.clone())],
        // Such a socket also accepts connections to IPv4 addresses.
        ApiAddress::Ip(at) if at.is_ipv6() && at.ip().is_unspecified() => {
            let other = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), at.port());
            vec![Address::Tcp(*at), Address::Tcp(other)]
        }
        ApiAddress::Ip(at) => vec![Address::Tcp(*at)],
    }
}

/// The reason why no socket can be made here. An existing socket may belong to the previous
/// process.
fn socket_problem(path: &Path) -> Option<String> {
    let found = path.symlink_metadata();
    let shown = path.display();
    match found {
        Ok(found) if found.is_dir() => Some(format!(
            "{shown} is a folder; name a file in it for the socket"
        )),
        Ok(found) if !found.file_type().is_socket() => Some(format!(
            "{shown} is there and is no socket; name another file"
        )),
        _ => parent_problem(path),
    }
}

fn file_problem(path: &Path) -> Option<String> {
    match path.is_dir() {
        true => Some(format!("{} is a folder; name a file in it", path.display())),
        false => parent_problem(path),
    }
}

fn parent_problem(path: &Path) -> Option<String> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())?;
    let problem = match folder.metadata() {
        Ok(found) if found.is_dir() => return None,
        Ok(_) => "is no folder; name another one".to_owned(),
        // The folder of a service is made there as the service starts.
        Err(_) if folder.starts_with("/run") => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            "is not there; make that folder, or name another one".to_owned()
        }
        Err(error) => error.to_string(),
    };
    Some(format!(
        "{}: {} {problem}",
        path.display(),
        folder.display()
    ))
}

/// The reason why the folder cannot exist. A start makes it, and the folders above it.
fn folder_problem(path: &Path) -> Option<String> {
    let above = path.ancestors().find(|above| above.exists())?;
    match above.is_dir() {
        true => None,
        false => Some(format!(
            "{}: {} is a file; name a folder",
            path.display(),
            above.display()
        )),
    }
}
