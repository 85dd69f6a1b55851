//! TLS of a server whose clients need no certificate: those that show one must be in order, and
//! who they are is for the caller to judge. No resumption: what a client was trusted for ends with
//! its connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;

use super::files::{self, CredentialsError, Expiry, ExpiryKind, FileFault};
use super::provider;

/// The files of such a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerFiles {
    pub private_key: PathBuf,
    /// Our certificate, then its intermediates.
    pub certificate: PathBuf,
    /// The CAs that clients' certificates must chain to; without it clients are asked for none.
    pub ca: Option<PathBuf>,
    /// A list of revoked certificates by each CA in `ca`.
    pub crl: Option<PathBuf>,
}

struct Loaded {
    config: Arc<ServerConfig>,
    expiries: Vec<Expiry>,
}

/// The credentials for handshakes that begin now.
pub struct ServerSecurity(RwLock<Loaded>);

impl fmt::Debug for ServerSecurity {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerSecurity")
    }
}

impl ServerSecurity {
    /// Reads the files. `alpn` names the protocols that are spoken over it.
    pub fn load(files: &ServerFiles, alpn: &[&[u8]]) -> Result<ServerSecurity, CredentialsError> {
        Ok(ServerSecurity(RwLock::new(files.load(alpn)?)))
    }

    /// Reads the files for every later handshake. If anything is wrong with them, returns every
    /// problem, and nothing changes.
    pub fn reload(&self, files: &ServerFiles, alpn: &[&[u8]]) -> Result<(), CredentialsError> {
        let loaded = files.load(alpn)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        Ok(())
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
        loaded.config.clone()
    }

    pub fn expiries(&self) -> Vec<Expiry> {
        let loaded = self.0.read().unwrap_or_else(PoisonError::into_inner);
        loaded.expiries.clone()
    }
}

impl ServerFiles {
    fn load(&self, alpn: &[&[u8]]) -> Result<Loaded, CredentialsError> {
        let mut faults = Vec::new();
        let own = files::load_own(&self.private_key, &self.certificate, &mut faults);
        let trusted = self.ca.as_ref().map(|ca| {
            let trusted = files::load_roots(ca);
            trusted.map_err(|fault| faults.push(fault)).ok()
        });
        let crls = match (&self.crl, &self.ca, &trusted) {
            (Some(crl), Some(ca), Some(Some((_, authorities)))) => {
                let crls = files::load_crls(crl, ca, authorities);
                crls.map_err(|fault| faults.push(fault)).ok()
            }
            _ => Some(Vec::new()),
        };
        let (Some(own), Some(crls), true) = (own, crls, faults.is_empty()) else {
            return Err(CredentialsError { faults });
        };
        let mut expiries = files::expiry(&self.certificate, ExpiryKind::Certificate, &own.cert);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of TLS 1.2 and 1.3");
        let builder = match trusted.flatten() {
            None => builder.with_no_client_auth(),
            Some((roots, authorities)) => {
                let ca = self.ca.clone().unwrap_or_default();
                expiries.extend(files::expiry(&ca, ExpiryKind::Ca, &authorities));
                if let Some(crl) = &self.crl {
                    expiries.extend(files::crl_expiry(crl, &crls));
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
                        .with_crls(crls)
                        .allow_unauthenticated()
                        .build();
                let verifier = verifier.map_err(|error| CredentialsError {
                    faults: vec![FileFault {
                        path: ca,
                        problem: error.to_string(),
                        is_unreadable: false,
                    }],
                })?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let own = Arc::new(rustls::sign::SingleCertAndKey::from(own));
        let mut config = builder.with_cert_resolver(own);
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Loaded {
            config: Arc::new(config),
            expiries,
        })
    }
}
