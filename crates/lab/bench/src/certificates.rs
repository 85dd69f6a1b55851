//! Our certificates: those that flags name, and those made for a run. The run's directory is
//! removed with them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use auster::pki::files::write_secret;
use auster::pki::make::{self, KeyKind, Owner, Signer};
use cli::failure::Failure;
use cli::temp_dir::TempDir;
use net::tls::{CredentialFiles, Role, Security};

// Our identity. A doc comment would become the help of the command.
#[derive(clap::Args)]
pub struct CredentialArgs {
    /// Private key (PEM), for ssl: and quic:
    #[arg(short = 'p', long, value_name = "FILE")]
    pub private_key: Option<PathBuf>,

    /// Certificate (PEM)
    #[arg(short = 'c', long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,

    /// The CA of the other side's certificate (PEM)
    #[arg(short = 'C', long, value_name = "FILE")]
    pub ca_cert: Option<PathBuf>,
}

impl CredentialArgs {
    /// Loads the credentials towards this peer, or returns the flags that are missing.
    pub fn load(&self, peer: Role) -> Result<Result<Security, Vec<&'static str>>, Failure> {
        let flags = [
            (&self.private_key, "-p KEY"),
            (&self.certificate, "-c CERT"),
            (&self.ca_cert, "-C CA"),
        ];
        let files = flags.map(|(file, _)| file.clone());
        let [Some(private_key), Some(certificate), Some(ca)] = files else {
            let missing = flags.iter().filter(|(file, _)| file.is_none());
            return Ok(Err(missing.map(|(_, flag)| *flag).collect()));
        };
        let files = CredentialFiles {
            private_key,
            certificate,
            ca,
            crl: None,
        };
        security(&files, peer).map(Ok)
    }
}

/// Loads our credentials towards a peer.
pub fn security(files: &CredentialFiles, peer: Role) -> Result<Security, Failure> {
    Ok(Security::new(Arc::new(files.load()?)).expecting(peer))
}

pub struct Certificates {
    dir: TempDir,
}

impl Certificates {
    pub fn new() -> Result<Certificates, Failure> {
        let dir = TempDir::new()?;
        Ok(Certificates { dir })
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Makes an authority, which issues a certificate for each name at a host.
    pub fn issue(
        &self,
        authority: &str,
        role: Role,
        names: &[String],
        host: &str,
        days: u32,
    ) -> Result<(), Failure> {
        let made = make::authority(role.into(), KeyKind::P256, days)?;
        let signer = Signer::new(&made.certificate, &made.key).map_err(Failure::machine)?;
        for name in names {
            let owner = Owner {
                name: name.clone(),
                purpose: role.into(),
                hosts: vec![host.to_owned()],
                datapath_id: None,
                listens: role == Role::Controller,
            };
            let issued = signer.issue(&owner, KeyKind::P256, days)?;
            let files = files(self.dir(), name, authority);
            write_secret(&files.private_key, &issued.key)?;
            write_secret(&files.certificate, &issued.certificate)?;
        }
        write_secret(&files(self.dir(), "", authority).ca, &made.certificate)
    }
}

/// The files of a name, with the authority of its peers.
pub fn files(dir: &Path, name: &str, authority: &str) -> CredentialFiles {
    CredentialFiles {
        private_key: dir.join(format!("{name}-privkey.pem")),
        certificate: dir.join(format!("{name}-cert.pem")),
        ca: dir.join(format!("{authority}.pem")),
        crl: None,
    }
}
