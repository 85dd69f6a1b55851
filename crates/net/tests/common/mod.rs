//! Certificates made for one test, and connections over every transport.
#![allow(dead_code, reason = "each test binary uses its part of it")]

pub mod switch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use net::method::Method;
use net::tls::{CredentialFiles, Credentials, Role, Security};
use net::transport::{Connection, Limits, Listener, connect};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber,
};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A CA and the files it has written.
pub struct Pki {
    pub dir: TempDir,
    ca: CertifiedIssuer<'static, KeyPair>,
}

/// The contents of a certificate.
#[derive(Clone, Default)]
pub struct Leaf {
    pub uris: Vec<String>,
    pub names: Vec<String>,
    pub usage: Vec<ExtendedKeyUsagePurpose>,
    pub is_expired: bool,
    /// Lifetime from the time of issue.
    pub lasts: Option<Duration>,
}

impl Leaf {
    pub fn of(role: Role) -> Leaf {
        Leaf {
            uris: vec![role.urn()],
            ..Leaf::default()
        }
    }

    pub fn datapath(id: u64) -> Leaf {
        let mut leaf = Leaf::of(Role::Switch);
        leaf.uris.push(format!("urn:auster:dpid:{id:016x}"));
        leaf
    }
}

impl Pki {
    pub fn new() -> Pki {
        let dir = TempDir::new().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.path().join("cacert.pem"), ca.pem()).unwrap();
        Pki { dir, ca }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes `NAME-privkey.pem` and `NAME-cert.pem`, as `ovs-pki` names them, for an owner of that
    /// name.
    pub fn issue(&self, name: &str, leaf: &Leaf) -> CredentialFiles {
        let key = KeyPair::generate().unwrap();
        let mut params = leaf.params();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        self.write(name, &key, &certificate.pem())
    }

    pub fn issue_self_signed(&self, name: &str, leaf: &Leaf) -> CredentialFiles {
        let key = KeyPair::generate().unwrap();
        let certificate = leaf.params().self_signed(&key).unwrap();
        self.write(name, &key, &certificate.pem())
    }

    fn write(&self, name: &str, key: &KeyPair, certificate: &str) -> CredentialFiles {
        let files = CredentialFiles {
            private_key: self.path(&format!("{name}-privkey.pem")),
            certificate: self.path(&format!("{name}-cert.pem")),
            ca: self.path("cacert.pem"),
            crl: None,
        };
        std::fs::write(&files.private_key, key.serialize_pem()).unwrap();
        std::fs::write(&files.certificate, certificate).unwrap();
        files
    }

    /// Writes the CA's list of revoked certificates to `name`, with those of `revoked` in it.
    pub fn revoke(&self, name: &str, revoked: &[&CredentialFiles]) -> PathBuf {
        let serial = |files: &&CredentialFiles| {
            let der = CertificateDer::from_pem_file(&files.certificate).unwrap();
            let (_, parsed) = X509Certificate::from_der(&der).unwrap();
            SerialNumber::from_slice(parsed.raw_serial())
        };
        let now = rcgen::date_time_ymd(1970, 1, 1)
            + SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let list = CertificateRevocationListParams {
            this_update: now,
            next_update: now + Duration::from_secs(86_400),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked
                .iter()
                .map(|files| RevokedCertParams {
                    serial_number: serial(files),
                    revocation_time: now,
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.path(name);
        std::fs::write(&path, list.signed_by(&self.ca).unwrap().pem().unwrap()).unwrap();
        path
    }

    pub fn credentials(&self, name: &str, leaf: &Leaf) -> Arc<Credentials> {
        Arc::new(self.issue(name, leaf).load().unwrap())
    }

    /// A controller that accepts switches only.
    pub fn controller(&self) -> Security {
        Security::new(self.credentials("ctl", &Leaf::of(Role::Controller))).expecting(Role::Switch)
    }

    /// A switch that accepts controllers only.
    pub fn switch(&self) -> Security {
        Security::new(self.credentials("sc", &Leaf::datapath(7))).expecting(Role::Controller)
    }
}

impl Leaf {
    fn params(&self) -> CertificateParams {
        let mut params = CertificateParams::new(self.names.clone()).unwrap();
        for uri in &self.uris {
            let uri = SanType::URI(uri.as_str().try_into().unwrap());
            params.subject_alt_names.push(uri);
        }
        params.extended_key_usages.clone_from(&self.usage);
        if self.is_expired {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        if let Some(lasts) = self.lasts {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + (now + lasts);
        }
        params
    }
}

pub async fn listen(method: &str, security: &Security) -> Listener {
    let method: Method = method.parse().unwrap();
    Listener::bind(&method, security, Limits::default())
        .await
        .unwrap()
}

/// The method that dials `listener`.
pub fn dial_method(listener: &Listener) -> Method {
    match listener.local().clone() {
        Method::Listen(transport, host, port) => Method::Dial(transport, host, port),
        Method::ListenUnix(path) => Method::DialUnix(path),
        active => active,
    }
}

/// A listener for `kind` on a free port, or on a socket in `dir`.
pub fn passive(kind: &str, dir: &Path) -> String {
    match kind {
        "unix" => format!("punix:{}", dir.join("sock").display()),
        kind => format!("p{kind}:0:127.0.0.1"),
    }
}

/// The dialled and the accepted end of one connection. The dialler speaks first, so that QUIC's
/// stream exists: one byte, `!`.
pub async fn pair(listener: &mut Listener, dialler: &Security) -> (Connection, Connection) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let method = dial_method(listener);
    let mut dialled = connect(&method, dialler).await.unwrap();
    dialled.writer.write_all(b"!").await.unwrap();
    dialled.writer.flush().await.unwrap();
    let mut accepted = listener.accept().await;
    assert_eq!(accepted.reader.read_u8().await.unwrap(), b'!');
    (dialled, accepted)
}
