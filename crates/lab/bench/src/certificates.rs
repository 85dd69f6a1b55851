//! Certificates of a run, in a directory that is removed with them.

use std::path::Path;

use auster::pki::files::write_secret;
use auster::pki::make::{self, KeyKind, Owner, Signer};
use cli::failure::Failure;
use cli::temp_dir::TempDir;
use net::tls::{CredentialFiles, Role};

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

    /// Makes an authority, and by it a certificate for each name at a host.
    pub fn issue(
        &self,
        authority: &str,
        role: Role,
        names: &[String],
        host: &str,
        days: u32,
    ) -> Result<(), Failure> {
        let made = make::authority(role, KeyKind::P256, days)?;
        let signer = Signer::new(&made.certificate, &made.key).map_err(Failure::machine)?;
        for name in names {
            let owner = Owner {
                name: name.clone(),
                role,
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
