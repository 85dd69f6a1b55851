//! Keys, requests and certificates. All are X.509 version 3 with a subject alternative name; the
//! role and the datapath are URIs in it (`urn:auster:…`), which every TLS library ignores and
//! `net` reads.

use std::fmt;
use std::time::{Duration, SystemTime};

use config::tokens::Role as ApiRole;
use net::tls::Role;
use openflow::DatapathId;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use cli::failure::Failure;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyKind {
    /// ECDSA on NIST P-256: every TLS library supports it
    P256,
    /// Ed25519: TLS 1.3, and 1.2 with a recent OpenSSL
    Ed25519,
    /// RSA: accepted, not made; use openssl or ovs-pki for it
    Rsa,
}

/// The use of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// One end of the southbound.
    Southbound(Role),
    /// The API of `auster run`.
    Api(ApiRole),
}

impl Purpose {
    /// The URI of the purpose in a certificate.
    pub fn urn(self) -> String {
        match self {
            Purpose::Southbound(role) => role.urn(),
            Purpose::Api(role) => format!("urn:auster:role:{}", role.mark()),
        }
    }
}

impl fmt::Display for Purpose {
    /// The authority's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Purpose::Southbound(role) => role.fmt(f),
            Purpose::Api(_) => f.write_str("operator"),
        }
    }
}

impl From<Role> for Purpose {
    fn from(role: Role) -> Purpose {
        Purpose::Southbound(role)
    }
}

/// The intended owner of a certificate.
pub struct Owner {
    pub name: String,
    pub purpose: Purpose,
    pub hosts: Vec<String>,
    pub datapath_id: Option<DatapathId>,
    /// Whether the owner shows its certificate to peers that connect to it.
    pub listens: bool,
}

/// PEM texts.
pub struct Authority {
    pub key: String,
    pub certificate: String,
}

/// PEM texts.
pub struct Issued {
    pub key: String,
    pub request: String,
    pub certificate: String,
}

/// A new self-signed authority for one purpose.
pub fn authority(purpose: Purpose, kind: KeyKind, days: u32) -> Result<Authority, Failure> {
    let key = generate(kind)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(&format!("auster {purpose} CA"), &format!("{purpose}ca"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, days);
    let certificate = params.self_signed(&key).map_err(ours)?;
    Ok(Authority {
        key: key.serialize_pem(),
        certificate: certificate.pem(),
    })
}

/// An authority that signs.
pub struct Signer {
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    /// Makes a signer from PEM texts; RSA authorities of `ovs-pki` sign too.
    pub fn new(certificate: &str, key: &str) -> Result<Signer, String> {
        let key = KeyPair::from_pem(key).map_err(|e| format!("the CA's key is not usable: {e}"))?;
        let issuer = Issuer::from_ca_cert_pem(certificate, key)
            .map_err(|e| format!("the CA's certificate is not usable: {e}"))?;
        Ok(Signer { issuer })
    }

    pub fn issue(&self, owner: &Owner, kind: KeyKind, days: u32) -> Result<Issued, Failure> {
        let key = generate(kind)?;
        let mut params = requested(owner)?;
        let request = params
            .serialize_request(&key)
            .and_then(|r| r.pem())
            .map_err(ours)?;
        set_validity(&mut params, days);
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(ours)?;
        Ok(Issued {
            key: key.serialize_pem(),
            request,
            certificate: certificate.pem(),
        })
    }
}

/// The parts of a certificate that its owner can request.
fn requested(owner: &Owner) -> Result<CertificateParams, Failure> {
    let names: Vec<String> = std::iter::once(&owner.name)
        .chain(&owner.hosts)
        .cloned()
        .collect();
    let mut params = CertificateParams::new(names)
        .map_err(|e| Failure::usage(format!("a name that no certificate can carry: {e}")))?;
    params.distinguished_name = subject(&owner.name, &owner.purpose.to_string());
    let dpid = owner
        .datapath_id
        .map(|dpid| format!("urn:auster:dpid:{dpid}"));
    for urn in std::iter::once(owner.purpose.urn()).chain(dpid) {
        params
            .subject_alt_names
            .push(SanType::URI(urn.try_into().map_err(ours)?));
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if owner.listens {
        params
            .extended_key_usages
            .push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    Ok(params)
}

fn generate(kind: KeyKind) -> Result<KeyPair, Failure> {
    let algorithm = match kind {
        KeyKind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        KeyKind::Ed25519 => &rcgen::PKCS_ED25519,
        KeyKind::Rsa => {
            return Err(Failure::usage(
                "--key rsa: this build (ring) cannot make RSA keys; take p256, or ovs-pki",
            ));
        }
    };
    KeyPair::generate_for(algorithm).map_err(ours)
}

fn subject(common_name: &str, unit: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "auster");
    name.push(DnType::OrganizationalUnitName, unit);
    name.push(DnType::CommonName, common_name);
    name
}

/// Sets the validity from an hour ago, for clocks that are slightly wrong, to `days` from now.
fn set_validity(params: &mut CertificateParams, days: u32) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let hour = Duration::from_secs(3600);
    let long = Duration::from_secs(u64::from(days) * 86_400);
    params.not_before = epoch + now.saturating_sub(hour);
    params.not_after = epoch + now + long;
}

/// Names and keys were checked, so any other error is a failure of the machine.
fn ours(error: rcgen::Error) -> Failure {
    Failure::machine(format!("cannot make the certificate: {error}"))
}
