//! TLS of a client that compares the name it has dialled with the server's certificate, as browsers
//! do, and may have a certificate of its own.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::Resumption;

use super::files::{self, CredentialsError};
use super::provider;

/// The files of such a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The CAs that servers' certificates must chain to.
    pub ca: PathBuf,
    /// Our private key and our certificate.
    pub own: Option<(PathBuf, PathBuf)>,
}

impl ClientFiles {
    /// Reads all files and checks each, even after a fault in another.
    pub fn load(&self, alpn: &[&[u8]]) -> Result<Arc<ClientConfig>, CredentialsError> {
        let mut faults = Vec::new();
        let own = self.own.as_ref();
        let own = own.map(|(key, certificate)| files::load_own(key, certificate, &mut faults));
        let roots = files::load_roots(&self.ca);
        let roots = roots.map_err(|fault| faults.push(fault)).ok();
        let (Some((roots, _)), true) = (roots, faults.is_empty()) else {
            return Err(CredentialsError { faults });
        };
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("ring has the suites of TLS 1.2 and 1.3")
            .with_root_certificates(roots);
        let mut config = match own.flatten() {
            None => builder.with_no_client_auth(),
            Some(own) => {
                let own = rustls::sign::SingleCertAndKey::from(own);
                builder.with_client_cert_resolver(Arc::new(own))
            }
        };
        config.resumption = Resumption::disabled();
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}
