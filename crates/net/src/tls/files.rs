//! Key, certificate and CA from PEM files, in the layout of `ovs-pki` and under the flags of Open
//! vSwitch: `-p KEY -c CERT -C CA`. Each file that will not do is named with what is wrong with it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::advice::file_problem;

/// The three files of a TLS peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// PKCS #8, PKCS #1 or SEC1; not encrypted.
    pub private_key: PathBuf,
    /// Our certificate, then its intermediates.
    pub certificate: PathBuf,
    /// Whom we trust: one certificate or more.
    pub ca: PathBuf,
}

/// A key and certificate that belong together, and the CAs that peers are judged by.
pub struct Credentials {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
    pub(super) roots: Arc<RootCertStore>,
}

impl fmt::Debug for Credentials {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({} certificates)", self.chain.len())
    }
}

/// A file that gives no credentials.
#[derive(Debug)]
pub struct CredentialsError {
    pub path: PathBuf,
    /// What to say after the path.
    pub problem: String,
    /// The file could not be read at all.
    pub is_unreadable: bool,
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.problem)
    }
}

impl std::error::Error for CredentialsError {}

impl CredentialFiles {
    pub fn load(&self) -> Result<Credentials, CredentialsError> {
        let key = load_key(&self.private_key)?;
        let chain = load_certificates(&self.certificate)?;
        check_validity(&self.certificate, &chain[0])?;
        if let Err(error) =
            CertifiedKey::from_der(chain.clone(), key.clone_key(), &super::provider())
        {
            return Err(match error {
                rustls::Error::InconsistentKeys(_) => bad(
                    &self.private_key,
                    format!("the key is not that of {}", self.certificate.display()),
                ),
                error => bad(&self.private_key, format!("not a usable key: {error}")),
            });
        }
        let mut roots = RootCertStore::empty();
        for ca in load_certificates(&self.ca)? {
            check_validity(&self.ca, &ca)?;
            roots
                .add(ca)
                .map_err(|error| bad(&self.ca, format!("not a CA certificate: {error}")))?;
        }
        Ok(Credentials {
            chain,
            key,
            roots: Arc::new(roots),
        })
    }
}

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, CredentialsError> {
    let text = read(path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let encrypted = String::from_utf8_lossy(&text).contains("ENCRYPTED");
        bad(
            path,
            match error {
                _ if encrypted => {
                    "the key is encrypted; decrypt it with `openssl pkey -in KEY -out PLAIN`"
                        .to_owned()
                }
                pem::Error::NoItemsFound => {
                    "no private key in it (PEM: PKCS #8, RSA or EC)".to_owned()
                }
                error => format!("not a PEM file: {error}"),
            },
        )
    })
}

fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let text = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(path, format!("not a PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(bad(path, "no certificate in it (PEM)".to_owned()));
    }
    Ok(certificates)
}

/// Peers would refuse it anyway, and say less about it.
fn check_validity(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), CredentialsError> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| bad(path, format!("not an X.509 certificate: {error}")))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs().cast_signed());
    let validity = parsed.validity();
    if now > validity.not_after.timestamp() {
        let when = validity.not_after;
        return Err(bad(path, format!("the certificate expired on {when}")));
    }
    if now < validity.not_before.timestamp() {
        let when = validity.not_before;
        return Err(bad(
            path,
            format!("the certificate is valid only from {when}; is the clock right?"),
        ));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialsError> {
    /// Room for thousands of CA certificates.
    const FILE_BYTES_MAX: u64 = 16 << 20;
    let unreadable = |problem: String| CredentialsError {
        path: path.to_owned(),
        problem,
        is_unreadable: true,
    };
    let facts = std::fs::metadata(path).map_err(|error| unreadable(file_problem(&error)))?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return Err(unreadable("not a PEM file".to_owned()));
    }
    std::fs::read(path).map_err(|error| unreadable(file_problem(&error)))
}

fn bad(path: &Path, problem: String) -> CredentialsError {
    CredentialsError {
        path: path.to_owned(),
        problem,
        is_unreadable: false,
    }
}
