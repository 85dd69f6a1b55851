//! `auster pki show`.

use std::fmt::Write;
use std::net::IpAddr;
use std::path::Path;

use net::tls::{CertificateIdentity, role_marks};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::run::ApiRole;
use cli::failure::Failure;
use cli::output::say_part;

pub fn show(path: &Path) -> Result<(), Failure> {
    let text = std::fs::read(path).map_err(|error| Failure::file(path, error))?;
    let bad = |problem: &str| Failure::network(format!("{}: {problem}", path.display()));
    let der = CertificateDer::from_pem_slice(&text)
        .map_err(|_| bad("no certificate in it (-----BEGIN CERTIFICATE-----)"))?;
    say_part!("{}", describe(&der).map_err(|problem| bad(&problem))?);
    Ok(())
}

/// The statements of a certificate, a line each.
pub fn describe(der: &[u8]) -> Result<String, String> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|_| "not an X.509 certificate")?;
    let marks = role_marks(der)?;
    let of_api = match &marks[..] {
        [mark] => ApiRole::of_mark(mark),
        _ => None,
    };
    let identity = match of_api {
        Some(_) => CertificateIdentity::default(),
        None => CertificateIdentity::of(der)?,
    };
    let of_api = of_api.map(|role| format!("{} of the API", role.mark()));
    let role = identity.role.map(|role| role.to_string()).or(of_api);
    let role = role.unwrap_or_else(|| "not said".into());
    let datapath = identity
        .datapath_id
        .map_or("any".into(), |dpid| dpid.to_string());
    let usage = match certificate.extended_key_usage() {
        Ok(Some(usage)) => {
            let uses = [
                (usage.value.server_auth, "TLS server"),
                (usage.value.client_auth, "TLS client"),
            ];
            let uses = uses.iter().filter(|(has, _)| *has).map(|(_, what)| *what);
            uses.collect::<Vec<_>>().join(", ")
        }
        Ok(None) => "anything".into(),
        Err(_) => return Err("its extended key usage does not parse".into()),
    };
    let names = match certificate.subject_alternative_name() {
        Ok(names) => names.map_or(vec![], |n| n.value.general_names.iter().map(name).collect()),
        Err(_) => return Err("its subject alternative name does not parse".into()),
    };
    let validity = certificate.validity();

    let mut text = String::new();
    for (what, said) in [
        ("subject", certificate.subject().to_string()),
        ("issuer", certificate.issuer().to_string()),
        (
            "authority",
            if certificate.is_ca() { "yes" } else { "no" }.into(),
        ),
        ("role", role),
        ("datapath", datapath),
        ("names", names.join(", ")),
        ("valid for", usage),
        ("valid from", validity.not_before.to_string()),
        ("valid until", validity.not_after.to_string()),
    ] {
        let _ = writeln!(text, "{what:<12}{said}");
    }
    Ok(text)
}

fn name(name: &GeneralName) -> String {
    match name {
        GeneralName::DNSName(dns) => format!("DNS:{dns}"),
        GeneralName::URI(uri) => (*uri).into(),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            address.map_or("IP:malformed".into(), |address| format!("IP:{address}"))
        }
        other => other.to_string(),
    }
}
