//! Key, certificate and CA from PEM files, in the layout of `ovs-pki` and under the flags of Open
//! vSwitch: `-p KEY -c CERT -C CA`. The error names each unusable file and its fault.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate, X509Version};
use x509_parser::revocation_list::CertificateRevocationList;

use super::held::Serials;
use crate::advice::file_problem;

/// The files of a TLS peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialFiles {
    /// PKCS #8, PKCS #1 or SEC1; not encrypted.
    pub private_key: PathBuf,
    /// Our certificate, then its intermediates.
    pub certificate: PathBuf,
    /// The CAs that we trust: one certificate or more.
    pub ca: PathBuf,
    /// The file of revoked certificates: a list by each CA in `ca`, and by each intermediate that
    /// peers show.
    pub crl: Option<PathBuf>,
}

/// A key and certificate that belong together, and the verifiers of peers' certificates.
pub struct Credentials {
    pub(super) own: Arc<CertifiedKey>,
    pub(super) clients: Arc<dyn ClientCertVerifier>,
    pub(super) servers: Arc<WebPkiServerVerifier>,
    pub(super) revoked: Serials,
    expiries: Vec<Expiry>,
}

impl Credentials {
    /// The expiry of each file, in the order key pair, CA, revocation list.
    pub fn expiries(&self) -> &[Expiry] {
        &self.expiries
    }

    /// Our certificate, then its intermediates.
    pub fn certificate(&self) -> &[CertificateDer<'static>] {
        &self.own.cert
    }
}

impl fmt::Debug for Credentials {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({} certificates)", self.own.cert.len())
    }
}

/// The earliest expiry in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    pub path: PathBuf,
    pub kind: ExpiryKind,
    pub at: SystemTime,
}

/// The kind of a file's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryKind {
    Certificate,
    Ca,
    /// A list past its date still names revoked certificates: it stays in use.
    RevocationList,
}

impl fmt::Display for ExpiryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExpiryKind::Certificate => "certificate",
            ExpiryKind::Ca => "ca",
            ExpiryKind::RevocationList => "crl",
        })
    }
}

/// All faults of the files; at least one.
#[derive(Debug)]
pub struct CredentialsError {
    pub faults: Vec<FileFault>,
}

/// A file that gives no credentials.
#[derive(Debug)]
pub struct FileFault {
    pub path: PathBuf,
    /// The text after the path.
    pub problem: String,
    /// Whether the file could not be read at all.
    pub is_unreadable: bool,
}

impl CredentialsError {
    /// Whether a file could not be read at all.
    pub fn is_unreadable(&self) -> bool {
        self.faults.iter().any(|fault| fault.is_unreadable)
    }
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, fault) in self.faults.iter().enumerate() {
            let separator = if n == 0 { "" } else { "; " };
            write!(f, "{separator}{}: {}", fault.path.display(), fault.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for CredentialsError {}

impl CredentialFiles {
    /// Reads all files and checks each, even after a fault in another.
    pub fn load(&self) -> Result<Credentials, CredentialsError> {
        let mut faults = Vec::new();
        let own = load_own(&self.private_key, &self.certificate, &mut faults);
        let mut keep = |fault: FileFault| faults.push(fault);
        let trusted = load_roots(&self.ca).map_err(&mut keep).ok();
        let authorities = trusted
            .as_ref()
            .map_or(&[][..], |(_, authorities)| authorities);
        let crls = match &self.crl {
            None => Some(Vec::new()),
            Some(path) => load_crls(path, &self.ca, authorities)
                .map_err(&mut keep)
                .ok(),
        };
        let (Some(own), Some((roots, authorities)), Some(crls)) = (own, trusted, crls) else {
            return Err(CredentialsError { faults });
        };
        let expiries = self.expiries(&own.cert, &authorities, &crls);
        let revoked = Serials::of(&crls);
        let verifiers = verifiers(roots, crls);
        let (clients, servers) = verifiers.map_err(|problem| CredentialsError {
            faults: vec![bad(self.crl.as_ref().unwrap_or(&self.ca), problem)],
        })?;
        Ok(Credentials {
            own: Arc::new(own),
            clients,
            servers,
            revoked,
            expiries,
        })
    }

    fn expiries(
        &self,
        chain: &[CertificateDer<'_>],
        authorities: &[CertificateDer<'_>],
        crls: &[CertificateRevocationListDer<'_>],
    ) -> Vec<Expiry> {
        let mut expiries = expiry(&self.certificate, ExpiryKind::Certificate, chain);
        expiries.extend(expiry(&self.ca, ExpiryKind::Ca, authorities));
        if let Some(path) = &self.crl {
            expiries.extend(crl_expiry(path, crls));
        }
        expiries
    }
}

/// The first expiry of the certificates of a file; none in an empty file.
pub(super) fn expiry(
    path: &Path,
    kind: ExpiryKind,
    certificates: &[CertificateDer<'_>],
) -> Vec<Expiry> {
    let not_after = |der: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    first(path, kind, certificates.iter().filter_map(not_after).min())
}

/// The first expiry of the revocation lists of a file.
pub(super) fn crl_expiry(path: &Path, crls: &[CertificateRevocationListDer<'_>]) -> Vec<Expiry> {
    let next_update = |der: &CertificateRevocationListDer<'_>| {
        let (_, crl) = CertificateRevocationList::from_der(der).ok()?;
        Some(crl.next_update()?.timestamp())
    };
    let at = crls.iter().filter_map(next_update).min();
    first(path, ExpiryKind::RevocationList, at)
}

fn first(path: &Path, kind: ExpiryKind, at: Option<i64>) -> Vec<Expiry> {
    let seconds = at.and_then(|at| u64::try_from(at).ok());
    let expiry = seconds.map(|seconds| Expiry {
        path: path.to_owned(),
        kind,
        at: UNIX_EPOCH + Duration::from_secs(seconds),
    });
    expiry.into_iter().collect()
}

/// Loads a key and the certificate that belongs to it. Checks each even after a fault in the other.
pub(super) fn load_own(
    private_key: &Path,
    certificate: &Path,
    faults: &mut Vec<FileFault>,
) -> Option<CertifiedKey> {
    let mut keep = |fault: FileFault| faults.push(fault);
    let key = load_key(private_key).map_err(&mut keep).ok();
    let chain = load_certificates(certificate)
        .and_then(|chain| check_certificate(certificate, &chain[0]).map(|()| chain))
        .map_err(&mut keep)
        .ok();
    let paired = CertifiedKey::from_der(chain?, key?, &super::provider());
    let fault = |error| match error {
        rustls::Error::InconsistentKeys(_) => bad(
            private_key,
            format!("the key is not that of {}", certificate.display()),
        ),
        error => bad(private_key, format!("not a usable key: {error}")),
    };
    paired.map_err(|error| keep(fault(error))).ok()
}

type Authorities = (RootCertStore, Vec<CertificateDer<'static>>);
type Verifiers = (Arc<dyn ClientCertVerifier>, Arc<WebPkiServerVerifier>);

/// Makes the verifiers of a client's and of a server's chain. If there are revocation lists, a
/// certificate of a CA without one is refused.
fn verifiers(
    roots: RootCertStore,
    crls: Vec<CertificateRevocationListDer<'static>>,
) -> Result<Verifiers, String> {
    let roots = Arc::new(roots);
    let clients = WebPkiClientVerifier::builder_with_provider(roots.clone(), super::provider())
        .with_crls(crls.clone())
        .build()
        .map_err(|error| error.to_string())?;
    let servers = WebPkiServerVerifier::builder_with_provider(roots, super::provider())
        .with_crls(crls)
        .build()
        .map_err(|error| error.to_string())?;
    Ok((clients, servers))
}

/// The authorities of a file, as roots and as certificates.
pub(super) fn load_roots(path: &Path) -> Result<Authorities, FileFault> {
    let authorities = load_certificates(path)?;
    let mut roots = RootCertStore::empty();
    for ca in &authorities {
        check_certificate(path, ca)?;
        roots
            .add(ca.clone())
            .map_err(|error| bad(path, format!("not a CA certificate: {error}")))?;
    }
    Ok((roots, authorities))
}

/// Loads revocation lists. Each of `authorities` must have signed one.
pub(super) fn load_crls(
    path: &Path,
    ca: &Path,
    authorities: &[CertificateDer<'_>],
) -> Result<Vec<CertificateRevocationListDer<'static>>, FileFault> {
    let text = read(path)?;
    let crls = CertificateRevocationListDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(path, format!("not a PEM file: {error}")))?;
    if crls.is_empty() {
        let problem = "no revocation list in it (-----BEGIN X509 CRL-----)";
        return Err(bad(path, problem.to_owned()));
    }
    let mut parsed = Vec::new();
    for crl in &crls {
        let (_, crl) = CertificateRevocationList::from_der(crl)
            .map_err(|error| bad(path, format!("not a revocation list: {error}")))?;
        parsed.push(crl);
    }
    for authority in authorities {
        let Ok((_, authority)) = X509Certificate::from_der(authority) else {
            continue;
        };
        let name = authority.subject();
        let mut of_it = parsed.iter().filter(|crl| crl.issuer() == name).peekable();
        if of_it.peek().is_none() {
            return Err(bad(
                path,
                format!(
                    "no revocation list of '{name}' in {}, so all its certificates would be \
                     refused; add that CA's list",
                    ca.display()
                ),
            ));
        }
        if !of_it.any(|crl| crl.verify_signature(authority.public_key()).is_ok()) {
            return Err(bad(
                path,
                format!(
                    "the revocation list of '{name}' is not signed by the CA of that name in {}; \
                     make it again with that CA's key",
                    ca.display()
                ),
            ));
        }
    }
    Ok(crls)
}

fn load_key(path: &Path) -> Result<PrivateKeyDer<'static>, FileFault> {
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

fn load_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, FileFault> {
    let text = read(path)?;
    let certificates = CertificateDer::pem_slice_iter(&text)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| bad(path, format!("not a PEM file: {error}")))?;
    if certificates.is_empty() {
        return Err(bad(path, "no certificate in it (PEM)".to_owned()));
    }
    Ok(certificates)
}

/// The fault of a certificate without a place for extensions, which TLS here does not accept.
pub(super) const OLD_VERSION: &str =
    "it is X.509 of version 1; make it again with version 3, as 'auster pki' does";

/// Checks a certificate. Peers would refuse a faulty one anyway, with less of an explanation.
fn check_certificate(path: &Path, certificate: &CertificateDer<'_>) -> Result<(), FileFault> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| bad(path, format!("not an X.509 certificate: {error}")))?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs().cast_signed());
    if parsed.version() != X509Version::V3 {
        return Err(bad(path, OLD_VERSION.to_owned()));
    }
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

fn read(path: &Path) -> Result<Vec<u8>, FileFault> {
    /// Room for thousands of CA certificates.
    const FILE_BYTES_MAX: u64 = 16 << 20;
    let unreadable = |problem: String| FileFault {
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

fn bad(path: &Path, problem: String) -> FileFault {
    FileFault {
        path: path.to_owned(),
        problem,
        is_unreadable: false,
    }
}
