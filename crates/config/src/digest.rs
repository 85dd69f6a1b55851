//! Digests of the configuration file: of its text, and of the settings that should be the same on
//! all members of a cluster.

use std::path::Path;

use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};

/// Settings that differ between members: their addresses, their names, and their own files.
const OWN: [&str; 11] = [
    "listen",
    "connect",
    "ovsdb",
    "api",
    "api_hosts",
    "state",
    "status",
    "threads",
    "json",
    "tls",
    "cluster",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    pub file: String,
    /// The digest of the shared settings, independent of how the file writes them.
    pub shared: String,
}

impl Digests {
    /// Computes the digests of a file; `None` without a file.
    pub fn of(config: Option<&Path>) -> Option<Digests> {
        Some(Digests::of_text(&std::fs::read_to_string(config?).ok()?))
    }

    fn of_text(text: &str) -> Digests {
        let mut settings: toml::Table = text.parse().unwrap_or_default();
        settings.retain(|name, _| !OWN.contains(&name));
        Digests {
            file: hex(text),
            shared: hex(&settings.to_string()),
        }
    }
}

fn hex(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_differ_only_in_what_they_should_have_alike() {
        let a = "mode = \"hybrid\"\nlisten = \"ptcp:6653\"\n[cluster]\nname = \"a\"\n";
        let b = "# b\nlisten = \"ptcp:6654\"\nmode = 'hybrid'\n[cluster]\nname = \"b\"\n";
        let (a, other) = (Digests::of_text(a), Digests::of_text(b));
        assert_ne!(a.file, other.file);
        assert_eq!(a.shared, other.shared);
        let changed = Digests::of_text(&b.replace("hybrid", "reactive"));
        assert_ne!(a.shared, changed.shared);
    }
}
