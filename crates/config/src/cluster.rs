//! `[cluster]` of the configuration: the store, this member's name, and how the others reach it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cli::failure::Failure;
use control::cluster::MemberId;
use net::method::Method;
use net::tls::{CredentialFiles, Role, Security, common_name, peer_identity};
use nix::unistd::{AccessFlags, access};
use toml::de::DeTable;

use crate::fields::{self, Fields};

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    pub etcd: Vec<etcd::Endpoint>,
    /// Whether etcd and the other members are reached by TLS.
    pub is_secure: bool,
    /// The name of the cluster.
    pub id: String,
    pub name: MemberId,
    pub listen: Method,
    /// The address that the other members dial, if it differs from `listen`.
    pub address: Option<Method>,
    pub ca: Option<PathBuf>,
    pub state: PathBuf,
}

const FIELDS: [&str; 7] = ["etcd", "id", "name", "listen", "address", "ca", "state"];

impl Stated {
    /// Reads the table; `None` if something is wrong with it, which `fields` has noted.
    pub fn read<'a>(fields: &mut Fields<'a>, root: &DeTable<'a>, dir: &Path) -> Option<Stated> {
        let table = fields.table(root, "cluster")?;
        fields.only(table, "cluster", &FIELDS);
        let at = root.get_key_value("cluster").map(|(key, _)| key.span());
        let at = at.unwrap_or(0..0);
        for needed in ["etcd", "name", "listen", "state"] {
            if !table.contains_key(needed) {
                let problem = format!(
                    "[cluster] needs {needed}; its keys are {}",
                    FIELDS.join(", ")
                );
                fields.problem(&at, problem);
            }
        }
        let endpoints = fields.list(table, "etcd", "https://10.0.0.1:2379", endpoint);
        if table.contains_key("etcd") && fields::items(table, "etcd").is_empty() {
            fields.problem(
                &at,
                "etcd names no address: write etcd = [\"https://10.0.0.1:2379\"]",
            );
        }
        let is_secure = endpoints.iter().any(|(is_secure, _)| *is_secure);
        if is_secure && endpoints.iter().any(|(is_secure, _)| !is_secure) {
            fields.problem(&at, "etcd: either all are https:// or all are http://");
        }
        let name = fields.parsed(table, "name", "a", |text| {
            MemberId::new(text).ok_or_else(|| {
                format!("'{text}' is no name of a member: 1 to 63 of a-z, 0-9 and -")
            })
        });
        let id = fields.string(table, "id", "campus");
        let listen = fields.parsed(table, "listen", "pssl:6655:10.0.0.5", |text| {
            bell(text, true)
        });
        let address = fields.parsed(table, "address", "ssl:10.0.0.5:6655", |text| {
            bell(text, false)
        });
        let file = |fields: &mut Fields<'_>, key, example| {
            fields
                .string(table, key, example)
                .map(|file| dir.join(file))
        };
        let ca = file(fields, "ca", "controllerca/cacert.pem");
        let state = file(fields, "state", "/var/lib/auster");
        let listen = listen?;
        if !table.contains_key("address") && listen.dialled().is_none() {
            let problem = format!(
                "[cluster] needs address: the other members cannot dial {listen}; write address = \
                 \"ssl:HOST:PORT\""
            );
            fields.problem(&at, problem);
        }
        let is_own = |method: &Method| match method {
            Method::Listen(_, host, _) | Method::Dial(_, host, _) => host.is_loopback(),
            _ => false,
        };
        let is_elsewhere = match &address {
            Some(address) => !is_own(address),
            None => endpoints.iter().any(|(_, at)| !at.is_loopback()),
        };
        if is_own(&listen) && is_elsewhere {
            let problem = format!(
                "[cluster] listen: only this machine reaches {listen}: write the address that the \
                 other members dial, or 0.0.0.0 for all"
            );
            fields.problem(&at, problem);
        }
        let is_secure_too = address.as_ref().map(Method::is_secure);
        if is_secure_too.is_some_and(|too| too != listen.is_secure()) {
            fields.problem(
                &at,
                "listen and address are of one kind: pssl and ssl, ptcp and tcp",
            );
        }
        Some(Stated {
            etcd: endpoints.into_iter().map(|(_, at)| at).collect(),
            is_secure,
            id: id.unwrap_or_else(|| "auster".to_owned()),
            name: name?,
            listen,
            address,
            ca,
            state: state?,
        })
    }

    /// Whether this member needs certificates.
    pub fn is_secure(&self) -> bool {
        self.is_secure || self.listen.is_secure()
    }

    /// Returns the certificate files for etcd and the other members, if TLS is configured for
    /// either. `files` are the certificate files for switches.
    pub fn files(&self, files: Option<CredentialFiles>) -> Option<CredentialFiles> {
        let files = files.filter(|_| self.is_secure())?;
        Some(CredentialFiles {
            ca: self.ca.clone().unwrap_or(files.ca),
            crl: None,
            ..files
        })
    }

    /// Loads the certificates from the files that [`Stated::files`] chooses.
    pub fn security(&self, files: Option<CredentialFiles>) -> Result<Security, Failure> {
        match self.files(files) {
            Some(files) => Ok(Security::new(Arc::new(files.load()?))),
            None => Ok(Security::plain()),
        }
    }

    /// Runs the checks that `--check` can make before the member starts: that other members will
    /// accept its certificate for this name, and that its folder can be created.
    pub fn can_start(&self, security: &Security) -> Result<(), Failure> {
        let mut problems = Vec::new();
        if let Some(credentials) = security.credentials().filter(|_| self.listen.is_secure()) {
            let (name, chain) = (&self.name, Some(credentials.certificate()));
            let owner = common_name(chain).unwrap_or_default();
            if owner != name.as_str() {
                problems.push(format!(
                    "[cluster] name is {name}, and the certificate is {owner:?}'s: a member is \
                     named as its certificate is (auster pki controller {name})"
                ));
            }
            if !peer_identity(chain).may_be(Some(Role::Controller)) {
                problems.push(format!(
                    "[cluster] the certificate is a switch's: a member needs a controller's \
                     (auster pki controller {name})"
                ));
            }
        }
        let state = self.state.ancestors().find(|folder| folder.exists());
        let state = state.filter(|folder| !folder.as_os_str().is_empty());
        let state = state.unwrap_or(Path::new("."));
        let can_write = AccessFlags::W_OK | AccessFlags::X_OK;
        if !state.is_dir() || access(state, can_write).is_err() {
            problems.push(format!(
                "[cluster] state: {} cannot be made or written: {} is no folder that this user may \
                 write to",
                self.state.display(),
                state.display()
            ));
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Failure::usage(problems.join("\n"))),
        }
    }

    /// Makes a client of etcd. Each etcd member has `deadline` to answer.
    pub fn client(&self, security: &Security, deadline: Duration) -> Result<etcd::Client, Failure> {
        let mut config = etcd::Config::new(self.etcd.clone());
        config.tls = self.is_secure.then(|| security.clone());
        config.deadline = deadline;
        etcd::Client::new(config)
            .map_err(|error| Failure::usage(format!("[cluster] etcd: {error}")))
    }

    pub fn high_water_file(&self) -> PathBuf {
        self.state.join(format!("cluster-{}.json", self.name))
    }
}

fn endpoint(text: &str) -> Result<(bool, etcd::Endpoint), String> {
    let (is_secure, at) = match (text.strip_prefix("https://"), text.strip_prefix("http://")) {
        (Some(at), _) => (true, at),
        (_, Some(at)) => (false, at),
        _ => {
            return Err(format!(
                "'{text}' is no address of etcd: write https://HOST:2379 or http://HOST:2379"
            ));
        }
    };
    let endpoint = at.trim_end_matches('/').parse();
    endpoint
        .map(|at| (is_secure, at))
        .map_err(|problem| format!("'{text}': {problem}"))
}

fn bell(text: &str, is_passive: bool) -> Result<Method, String> {
    let method: Method = text
        .parse()
        .map_err(|error: net::method::MethodError| error.to_string())?;
    let is_stream = matches!(
        text.split(':').next(),
        Some("ptcp" | "pssl" | "tcp" | "ssl")
    );
    match (is_stream && method.is_passive() == is_passive, is_passive) {
        (true, _) => Ok(method),
        (false, true) => Err(format!("'{text}': write pssl:PORT:HOST or ptcp:PORT:HOST")),
        (false, false) => Err(format!("'{text}': write ssl:HOST:PORT or tcp:HOST:PORT")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::without_columns;

    fn read(text: &str) -> Result<Option<Stated>, Vec<String>> {
        let (mut fields, root) = Fields::parse(text);
        let stated = Stated::read(&mut fields, &root, Path::new("/etc/auster"));
        let done = fields.finish("net.toml").map_err(without_columns);
        done.map(|()| stated)
    }

    #[test]
    fn a_member_listens_where_the_others_dial() {
        let text = r#"
            [cluster]
            etcd = ["http://10.0.0.1:2379", "http://[::1]:2379"]
            name = "a"
            listen = "ptcp:6655:10.0.0.5"
            state = "state"
        "#;
        let stated = read(text).unwrap().unwrap();
        let dialled = stated.listen.dialled().unwrap();
        assert_eq!(dialled.to_string(), "tcp:10.0.0.5:6655");
        assert!(!stated.is_secure());
        let file = stated.high_water_file();
        assert_eq!(file, Path::new("/etc/auster/state/cluster-a.json"));
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_a_mistake() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for (state, is_good) in [("state/deep", true), ("file", false), ("file/state", false)] {
            let state = dir.path().join(state);
            let text = format!(
                "[cluster]\netcd = [\"http://127.0.0.1\"]\nname = \"a\"\n\
                 listen = \"ptcp:6655:127.0.0.1\"\nstate = \"{}\"\n",
                state.display()
            );
            let stated = read(&text).unwrap().unwrap();
            let checked = stated.can_start(&Security::plain());
            assert_eq!(checked.is_ok(), is_good, "{checked:?}");
            assert!(!state.exists() || state.is_file(), "a check makes nothing");
        }
    }

    #[test]
    fn all_mistakes_are_reported_together() {
        let text = r#"
[cluster]
etcd = ["https://10.0.0.1:2379", "10.0.0.2"]
name = "A b"
listen = "quic:10.0.0.5"
address = "pssl:6655"
shards = 3
"#;
        let problems = read(text).unwrap_err().join("\n");
        for part in [
            "net.toml:2: [cluster] needs state",
            "net.toml:3: etcd: '10.0.0.2' is no address of etcd",
            "net.toml:4: name: 'A b' is no name of a member",
            "net.toml:5: listen: ",
            "net.toml:6: address: ",
            "net.toml:7: ",
        ] {
            assert!(problems.contains(part), "{part}\n{problems}");
        }
        let nowhere = r#"
            [cluster]
            etcd = []
            name = "a"
            listen = "ptcp:6655:10.0.0.5"
            state = "state"
        "#;
        let problems = read(nowhere).unwrap_err().join("\n");
        assert!(problems.contains("etcd names no address"), "{problems}");
        for (etcd, address) in [
            ("10.0.0.1", ""),
            ("127.0.0.1", "address = \"tcp:10.0.0.5:6655\""),
        ] {
            let own = format!(
                "[cluster]\netcd = [\"http://{etcd}:2379\"]\nname = \"a\"\n\
                 listen = \"ptcp:6655:127.0.0.1\"\n{address}\nstate = \"state\"\n"
            );
            let problems = read(&own).unwrap_err().join("\n");
            assert!(problems.contains("only this machine reaches"), "{problems}");
        }
        let everywhere = r#"
            [cluster]
            etcd = ["http://10.0.0.1:2379"]
            name = "a"
            listen = "ptcp:6655:0.0.0.0"
            state = "state"
        "#;
        let problems = read(everywhere).unwrap_err().join("\n");
        assert!(problems.contains("needs address"), "{problems}");
    }
}
