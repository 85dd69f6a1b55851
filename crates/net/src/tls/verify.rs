//! The two verifiers: chain, validity and key usage as webpki checks them, then the role.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, RootCertStore,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::identity::{CertificateIdentity, Role};

/// A certificate that chains to our CA and says it is something else than what we expect.
#[derive(Debug)]
struct WrongIdentity(String);

impl std::fmt::Display for WrongIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongIdentity {}

fn check_role(certificate: &CertificateDer<'_>, expected: Option<Role>) -> Result<(), Error> {
    let refuse = |why: String| {
        let why = OtherError(Arc::new(WrongIdentity(why)));
        Err(Error::InvalidCertificate(CertificateError::Other(why)))
    };
    match CertificateIdentity::of(certificate) {
        Err(why) => refuse(format!("refused certificate: {why}")),
        Ok(identity) if identity.may_be(expected) => Ok(()),
        Ok(identity) => refuse(format!(
            "its certificate is for a {}, a {} is expected",
            identity.role.map_or(String::new(), |r| r.to_string()),
            expected.map_or(String::new(), |r| r.to_string()),
        )),
    }
}

fn algorithms() -> WebPkiSupportedAlgorithms {
    rustls::crypto::ring::default_provider().signature_verification_algorithms
}

/// Judges the server we dialled.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    roots: Arc<RootCertStore>,
    expected: Option<Role>,
    name: Option<ServerName<'static>>,
}

impl ServerVerifier {
    pub(super) fn new(
        roots: Arc<RootCertStore>,
        expected: Option<Role>,
        name: Option<ServerName<'static>>,
    ) -> ServerVerifier {
        ServerVerifier {
            roots,
            expected,
            name,
        }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _dialled: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms().all,
        )?;
        if let Some(name) = &self.name {
            verify_server_name(&parsed, name)?;
        }
        check_role(end_entity, self.expected)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &algorithms())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &algorithms())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        algorithms().supported_schemes()
    }
}

/// Judges who dialled us; a client without a certificate is refused.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    chain: Arc<dyn ClientCertVerifier>,
    expected: Option<Role>,
}

impl ClientVerifier {
    /// `roots` is not empty: [`super::Credentials`] sees to it.
    pub(super) fn new(roots: Arc<RootCertStore>, expected: Option<Role>) -> ClientVerifier {
        let chain = WebPkiClientVerifier::builder_with_provider(roots, super::provider())
            .build()
            .expect("the CA file was checked when it was loaded");
        ClientVerifier { chain, expected }
    }
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self
            .chain
            .verify_client_cert(end_entity, intermediates, now)?;
        check_role(end_entity, self.expected)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
