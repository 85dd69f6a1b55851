//! TLS for the southbound: certificates on both sides, always; TLS 1.2 and 1.3; no resumption, no
//! early data, except between two relays that both ask for it ([`Security::early_data`]).
//!
//! A peer is trusted when its certificate chains to our CA file, is within its validity period and,
//! if it has an extended key usage, allows this side. Beyond the chain, a certificate made by
//! `auster pki` names its owner's [`Role`] and datapath. A certificate marked as a switch is
//! refused where a controller is expected, and the other way round: a stolen switch key opens no
//! switch. Certificates of `ovs-pki` have no such mark and pass on the chain alone, as in Open
//! vSwitch.
//!
//! Like Open vSwitch, a dialler does not compare the host it dialled with the certificate:
//! `ovs-pki` writes the certificate's title there as a DNS name, and addresses of a control network
//! are seldom in certificates. [`Security::server_name`] asks for the comparison.
//! [`Security::naming`] requires, on either side, one of several names in the peer's certificate.

mod client;
mod files;
mod held;
mod identity;
mod server;
mod verify;

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::ResolvesClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName};

pub use client::ClientFiles;
pub use files::{CredentialFiles, Credentials, CredentialsError, Expiry, ExpiryKind, FileFault};
pub use held::{HeldPeer, Judged, PeerSide, Revoked};
pub use identity::{CertificateIdentity, Role, role_marks};
pub use server::{ServerFiles, ServerSecurity};

use held::Peers;

/// The required marks and names of a peer's certificate.
#[derive(Clone, Debug, Default)]
struct Expected {
    role: Option<Role>,
    /// Names of which the certificate must have one; empty if any name will do.
    names: Arc<[String]>,
}

/// The needs of a connection besides its method: our certificates, and the required peer.
#[derive(Clone, Debug, Default)]
pub struct Security {
    credentials: Option<Arc<Current>>,
    expected: Expected,
    server_name: Option<ServerName<'static>>,
    early_data: bool,
}

impl Security {
    /// The security of `tcp:` and `unix:`; dialling `ssl:` with it is an error.
    pub fn plain() -> Security {
        Security::default()
    }

    pub fn new(credentials: Arc<Credentials>) -> Security {
        Security {
            credentials: Some(Arc::new(Current {
                credentials: RwLock::new(credentials),
                peers: Peers::default(),
                told: Mutex::default(),
            })),
            ..Security::default()
        }
    }

    /// Uses other credentials for every handshake that begins from now on, here and in all clones,
    /// also in listeners and QUIC endpoints made with them. Established connections stay open,
    /// except those of peers that are revoked now. Without credentials before, nothing changes.
    pub fn replace(&self, credentials: Arc<Credentials>) {
        if let Some(current) = &self.credentials {
            let held = current.credentials.write();
            *held.unwrap_or_else(PoisonError::into_inner) = credentials.clone();
            current.peers.judge(&credentials);
        }
    }

    /// Judges the peer of an established connection whenever the credentials change. Returns `None`
    /// without credentials.
    pub fn hold(&self, chain: Vec<CertificateDer<'static>>, side: PeerSide) -> Option<HeldPeer> {
        let current = self.credentials.as_ref()?;
        let peer = current.peers.add(chain, side);
        // The credentials may have changed since the handshake.
        peer.judge(&current.get());
        Some(peer)
    }

    /// The credentials in use; `None` without any.
    pub fn credentials(&self) -> Option<Arc<Credentials>> {
        Some(self.credentials.as_ref()?.get())
    }

    /// Refuses a peer whose certificate names another role.
    #[must_use]
    pub fn expecting(mut self, role: Role) -> Security {
        self.expected.role = Some(role);
        self
    }

    /// Refuses a peer whose certificate has none of these names as a DNS name or common name. An
    /// empty list refuses no peer. Case does not matter.
    #[must_use]
    pub fn naming(mut self, names: &[String]) -> Security {
        self.expected.names = names.into();
        self
    }

    /// Refuses a server whose certificate does not name `name`.
    #[must_use]
    pub fn server_name(mut self, name: ServerName<'static>) -> Security {
        self.server_name = Some(name);
        self
    }

    /// Lets a relay dial with early data, or accept it (see `tunnel`). Nothing else uses early
    /// data.
    #[must_use]
    pub fn early_data(mut self, is_wanted: bool) -> Security {
        self.early_data = is_wanted;
        self
    }

    pub fn has_early_data(&self) -> bool {
        self.early_data
    }

    /// The verifier of clients that dial us; `None` without certificates.
    pub fn client_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        let current = self.credentials.clone()?;
        let verifier = verify::ClientVerifier::new(current, self.expected.clone());
        Some(Arc::new(verifier))
    }

    /// The verifier of servers that we dial; `None` without certificates.
    pub fn server_verifier(&self) -> Option<Arc<dyn ServerCertVerifier>> {
        let current = self.credentials.clone()?;
        let name = self.server_name.clone();
        let verifier = verify::ServerVerifier::new(current, self.expected.clone(), name);
        Some(Arc::new(verifier))
    }

    pub fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// The configuration of the side that dials; `None` without certificates.
    pub fn client_config(&self, alpn: &[&[u8]]) -> Option<ClientConfig> {
        let current = self.credentials.clone()?;
        let mut config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of TLS 1.2 and 1.3")
            .dangerous()
            .with_custom_certificate_verifier(self.server_verifier()?)
            .with_client_cert_resolver(current);
        config.resumption = rustls::client::Resumption::disabled();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Some(config)
    }

    /// The configuration of the side that listens; `None` without certificates.
    pub fn server_config(&self, alpn: &[&[u8]]) -> Option<ServerConfig> {
        let current = self.credentials.clone()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of TLS 1.2 and 1.3")
            .with_client_cert_verifier(self.client_verifier()?)
            .with_cert_resolver(current);
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Some(config)
    }
}

/// The credentials in use. Each handshake asks for them when it needs them, so that a listener
/// need not be made again.
#[derive(Debug)]
struct Current {
    credentials: RwLock<Arc<Credentials>>,
    peers: Peers,
    /// The last refusal of a peer that we dialled, which may be dialled again and again.
    told: Mutex<String>,
}

impl Current {
    fn get(&self) -> Arc<Credentials> {
        let current = self.credentials.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.get().own.clone())
    }
}

impl ResolvesClientCert for Current {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.get().own.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Whether a handshake failed because of a certificate that an operator should know of. It has
/// expired, is revoked, is for another peer, or was issued by a CA that is not ours, as when the
/// wrong CA is configured. A stranger shows no certificate.
pub fn is_distrust(problem: &str) -> bool {
    let words = [
        "certificate expired",
        "certificate: Expired",
        "certificate: Revoked",
        "certificate: UnknownIssuer",
        "its certificate ",
    ];
    words.iter().any(|words| problem.contains(words))
}

/// The parameters agreed on in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFacts {
    /// `TLSv1.3` or `TLSv1.2`.
    pub version: &'static str,
    /// The cipher suite, such as `TLS13_AES_256_GCM_SHA384`; `None` over QUIC, where the library
    /// does not report it.
    pub cipher: Option<String>,
}

impl TlsFacts {
    pub(crate) fn of(connection: &rustls::CommonState) -> TlsFacts {
        let version = match connection.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        };
        let cipher = connection
            .negotiated_cipher_suite()
            .map(|suite| format!("{:?}", suite.suite()));
        TlsFacts { version, cipher }
    }
}

/// The owner's common name in the first certificate.
pub fn common_name(chain: Option<&[CertificateDer<'_>]>) -> Option<String> {
    use x509_parser::prelude::{FromDer, X509Certificate};
    let (_, certificate) = X509Certificate::from_der(chain?.first()?).ok()?;
    let mut names = certificate.subject().iter_common_name();
    Some(names.next()?.as_str().ok()?.to_owned())
}

/// The peer's identity in its first certificate, which the verifier has already read once.
pub fn peer_identity(chain: Option<&[CertificateDer<'_>]>) -> CertificateIdentity {
    chain
        .and_then(<[_]>::first)
        .and_then(|leaf| CertificateIdentity::of(leaf).ok())
        .unwrap_or_default()
}

pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, Error};
    use rustls_pki_types::UnixTime;

    use super::*;

    #[test]
    fn a_certificate_that_is_not_trusted_is_told_from_a_stranger_without_one() {
        let at = |s| UnixTime::since_unix_epoch(std::time::Duration::from_secs(s));
        let (time, not_after) = (at(20), at(10));
        for (error, is_distrusted) in [
            (CertificateError::Expired, true),
            (CertificateError::ExpiredContext { time, not_after }, true),
            (CertificateError::Revoked, true),
            (CertificateError::UnknownIssuer, true),
            (CertificateError::BadSignature, false),
        ] {
            let text = Error::InvalidCertificate(error).to_string();
            assert_eq!(is_distrust(&text), is_distrusted, "{text}");
        }
        assert!(is_distrust("its certificate names 'a'; 'b' is expected"));
        assert!(!is_distrust(&Error::NoCertificatesPresented.to_string()));
    }
}
