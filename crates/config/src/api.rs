//! The configuration of the API: `api = "8080"`, or the table `[api]`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use net::tls::ServerFiles;
use toml::de::DeTable;

use crate::fields::Fields;
use crate::settings::sockets::status_socket;
use cli::failure::Failure;

/// The protocols that a server of the API offers in TLS: HTTP/1.1 alone.
pub const ALPN: &[&[u8]] = &[b"http/1.1"];
/// The most status sockets that a configuration names.
const RELAYS_MAX: usize = 8;
/// The most addresses at which the API is served.
const LISTEN_MAX: usize = 8;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stated {
    pub listen: Vec<ApiAddress>,
    /// Further names by which clients may call the API.
    pub hosts: Vec<String>,
    pub tls: Option<ServerFiles>,
    /// The file of users who have a token.
    pub tokens: Option<PathBuf>,
    /// The audit file, with a line for each change.
    pub audit: Option<PathBuf>,
    /// Status sockets of relays that the API reads.
    pub relays: Vec<PathBuf>,
}

impl Stated {
    /// Reads `api` of a file in `dir`; `None` without it.
    pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>, dir: &Path) -> Option<Stated> {
        let value = root.get("api")?;
        let parse = |text: &str| address(text).map(|at| at.within(dir));
        if value.get_ref().as_table().is_none() {
            let listen = fields.list(root, "api", "127.0.0.1:8080", parse);
            return Some(Stated {
                listen,
                ..Stated::default()
            });
        }
        let table = fields.table(root, "api")?;
        let known = ["listen", "hosts", "tls", "tokens", "audit", "relays"];
        fields.only(table, "api", &known);
        let listen = fields.list_at(table, "listen", "127.0.0.1:8080", parse);
        if let Some((at, _)) = listen.get(LISTEN_MAX) {
            fields.problem(at, format!("listen: more than {LISTEN_MAX} addresses"));
        }
        let hosts = fields.list(table, "hosts", "controller.example", host);
        let socket = |text: &str| status_socket(text).map(|path| dir.join(path));
        let relays = fields.list_at(table, "relays", "unix:/run/auster/relay.sock", socket);
        if let Some((at, _)) = relays.get(RELAYS_MAX) {
            fields.problem(at, format!("relays: more than {RELAYS_MAX} sockets"));
        }
        let mut file = |key, example| fields.string(table, key, example).map(|f| dir.join(f));
        let tokens = file("tokens", "tokens");
        let audit = file("audit", "audit.jsonl");
        Some(Stated {
            listen: listen.into_iter().map(|(_, at)| at).collect(),
            hosts,
            tls: read_tls(fields, table, dir),
            tokens,
            audit,
            relays: relays.into_iter().map(|(_, path)| path).collect(),
        })
    }

    /// Completes the settings of the file, once flags are known, and checks that clients on other
    /// machines must identify themselves.
    pub fn complete(&mut self, hosts: &[String]) -> Result<(), Failure> {
        self.hosts.extend_from_slice(hosts);
        self.listen = self.listening();
        if self.has_users() {
            return Ok(());
        }
        let open = self.listen.iter().filter(|at| at.is_beyond_this_machine());
        let open: Vec<String> = open.map(ToString::to_string).collect();
        if open.is_empty() {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "the API at {} is beyond this machine and needs users: give it tokens = \"FILE\" in \
             [api] (auster api token add NAME --role read --file FILE) or ca in [api.tls], or \
             serve it on 127.0.0.1 behind a proxy that knows them",
            open.join(", ")
        )))
    }

    /// The addresses at which the API is served.
    pub fn listening(&self) -> Vec<ApiAddress> {
        match &self.listen[..] {
            [] => vec![ApiAddress::local(8080)],
            all => all.to_vec(),
        }
    }

    /// Whether clients must identify themselves.
    pub fn has_users(&self) -> bool {
        self.tokens.is_some() || self.tls.as_ref().is_some_and(|tls| tls.ca.is_some())
    }

    /// The addresses at which tokens would cross a network unencrypted.
    pub fn in_the_clear(&self) -> impl Iterator<Item = &ApiAddress> {
        let is_tls = self.tls.is_some();
        let open = self.listen.iter();
        open.filter(move |at| !is_tls && at.is_beyond_this_machine())
    }
}

fn read_tls<'a>(fields: &mut Fields<'a>, api: &DeTable<'a>, dir: &Path) -> Option<ServerFiles> {
    let table = fields.table(api, "tls")?;
    let known = ["private_key", "certificate", "ca", "crl"];
    fields.only(table, "api.tls", &known);
    let mut file = |key, example| fields.string(table, key, example).map(|f| dir.join(f));
    let private_key = file("private_key", "api-privkey.pem");
    let certificate = file("certificate", "api-cert.pem");
    let ca = file("ca", "pki/operatorca/cacert.pem");
    let crl = file("crl", "pki/operatorca/crl.pem");
    let at = api.get("tls")?.span();
    for (key, missing) in [
        ("private_key", private_key.is_none()),
        ("certificate", certificate.is_none()),
    ] {
        if missing && !table.contains_key(key) {
            fields.problem(&at, format!("[api.tls] has no {key}"));
        }
    }
    if crl.is_some() && ca.is_none() {
        let problem = "crl: without ca nobody's certificate is asked for; give ca too";
        fields.problem(&at, problem);
    }
    Some(ServerFiles {
        private_key: private_key?,
        certificate: certificate?,
        ca,
        crl,
    })
}

/// The address of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiAddress {
    Ip(SocketAddr),
    /// A socket that its owner alone may connect to.
    Unix(PathBuf),
}

impl ApiAddress {
    fn local(port: u16) -> ApiAddress {
        ApiAddress::Ip(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    }

    fn within(self, dir: &Path) -> ApiAddress {
        match self {
            ApiAddress::Unix(path) => ApiAddress::Unix(dir.join(path)),
            at => at,
        }
    }

    pub fn is_beyond_this_machine(&self) -> bool {
        matches!(self, ApiAddress::Ip(at) if !at.ip().to_canonical().is_loopback())
    }
}

impl fmt::Display for ApiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApiAddress::Ip(at) => at.fmt(f),
            ApiAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Parses an address. Without a host it is this machine's own.
pub fn address(text: &str) -> Result<ApiAddress, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(ApiAddress::Unix(path.into()));
    }
    let port = text.parse::<u16>().map(ApiAddress::local).ok();
    let address = || text.parse().map(ApiAddress::Ip).ok();
    port.or_else(address).ok_or_else(|| {
        format!(
            "'{text}' is no port and no address: write 8080, 127.0.0.1:8080, [::1]:8080 or \
             unix:FILE"
        )
    })
}

/// A name, or an address without a port, as it stands in the Host of a request.
pub fn host(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_name = !text.is_empty() && text.chars().all(is_plain);
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    if !is_name && bare.parse::<IpAddr>().is_err() {
        return Err(format!(
            "'{text}' is neither a name nor an address: write controller.example, without a port"
        ));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<Stated, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root, Path::new("etc"));
        fields.finish("net.toml").map_err(without_columns)?;
        Ok(stated.unwrap())
    }

    #[test]
    fn both_forms_are_read() {
        let short = read(r#"api = "8080""#).unwrap();
        assert_eq!(short.listen, [ApiAddress::local(8080)]);
        let long = read(
            r#"
            [api]
            listen = ["[::]:8443", "unix:api.sock"]
            hosts = "controller.example"
            tokens = "tokens"
            audit = "audit.jsonl"
            relays = "unix:relay.sock"
            tls = { private_key = "k.pem", certificate = "c.pem", ca = "ca.pem" }"#,
        );
        let long = long.unwrap();
        assert_eq!(long.listen[1], ApiAddress::Unix("etc/api.sock".into()));
        assert_eq!(long.tokens, Some("etc/tokens".into()));
        assert_eq!(long.relays, [Path::new("etc/relay.sock")]);
        assert_eq!(long.tls.unwrap().ca, Some("etc/ca.pem".into()));
    }

    #[test]
    fn all_mistakes_are_reported_at_once_each_with_its_line() {
        let problems = read(
            r#"
            [api]
            listen = "eighty"
            token = "tokens"
            hosts = ["a b"]
            relays = "tcp:127.0.0.1"
            [api.tls]
            certificate = 7
            crl = "crl.pem""#,
        );
        let problems = problems.unwrap_err();
        let lines: Vec<_> = problems
            .iter()
            .map(|p| p.split(' ').next().unwrap())
            .collect();
        let expected = ["3", "4", "5", "6", "7", "7", "8"].map(|line| format!("net.toml:{line}:"));
        assert_eq!(lines, expected, "{problems:#?}");
    }

    #[test]
    fn beyond_this_machine_the_api_needs_users() {
        let complete = |text: &str| read(text).unwrap().complete(&[]);
        for at in [
            "0.0.0.0:80",
            "192.0.2.1:80",
            "[::]:80",
            "[::ffff:192.0.2.1]:80",
        ] {
            let failure = complete(&format!("api = \"{at}\"")).unwrap_err();
            assert!(failure.is_usage() && failure.message().contains("auster api token add"));
            complete(&format!("[api]\nlisten = \"{at}\"\ntokens = \"t\"")).unwrap();
            let tls = "tls = { private_key = \"k\", certificate = \"c\" }";
            complete(&format!("[api]\nlisten = \"{at}\"\n{tls}")).unwrap_err();
        }
        for at in [
            "8080",
            "127.0.0.9:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "unix:x",
        ] {
            complete(&format!("api = \"{at}\"")).unwrap();
        }
    }
}
