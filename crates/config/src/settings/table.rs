//! All settings of the configuration file: the purpose of each, its default, and the effect of a
//! change while `auster run` runs. `auster config`, the report of a reload and the page about
//! reloads are made from this table. A test compares it with the keys that the readers know.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The effect of a reload on a changed setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Applies the change. The words state the effect on what exists already, if any.
    Reload(&'static str),
    /// Leaves the setting unchanged, for this reason.
    Restart(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The setting's key after those of its tables: `controller.lldp_interval_ms`.
    pub path: &'static str,
    /// The default as TOML; empty if there is none.
    pub default: &'static str,
    /// The command-line option that overrides the setting; empty if there is none.
    pub option: &'static str,
    pub at: At,
    pub about: &'static str,
}

impl At {
    fn read(words: &'static str) -> Option<At> {
        match words.split_once(": ") {
            None if words == "applies" => Some(At::Reload("")),
            Some(("applies", words)) => Some(At::Reload(words)),
            Some(("needs a restart", why)) => Some(At::Restart(why)),
            _ => None,
        }
    }
}

const TABLE: &str = include_str!("table.txt");

/// All settings, in the order of the manual.
pub static SETTINGS: LazyLock<Vec<Setting>> = LazyLock::new(|| {
    let effects: BTreeMap<&str, At> = lines().filter_map(effect).collect();
    let setting = |line| setting(line, &effects);
    lines().filter_map(setting).collect()
});

/// The keys of a section, in their order.
pub fn keys_of(section: &str) -> Vec<&'static str> {
    let key = |setting: &Setting| setting.path.strip_prefix(section)?.strip_prefix('.');
    SETTINGS.iter().filter_map(key).collect()
}

fn lines() -> impl Iterator<Item = &'static str> {
    let lines = TABLE.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Reads a line with the name of an effect.
fn effect(line: &'static str) -> Option<(&'static str, At)> {
    let (name, words) = line.split_once(" = ")?;
    Some((name, At::read(words)?))
}

/// Reads a line with a setting.
fn setting(line: &'static str, effects: &BTreeMap<&str, At>) -> Option<Setting> {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [path, default, effect, about, option] = columns[..] else {
        return None;
    };
    Some(Setting {
        path,
        default,
        option,
        at: effects.get(effect).copied().or_else(|| At::read(effect))?,
        about,
    })
}

/// Settings of which a reload can neither add the first nor remove the last.
pub const FROM_THE_START: &[(&[&str], &str)] = &[
    (
        &["tls.private_key", "tls.certificate", "tls.ca"],
        "switches are served with certificates from the start, or without",
    ),
    (&["api.listen"], "the API is served from the start, or not"),
    (
        &["api.tokens"],
        "users of the API have tokens from the start, or not",
    ),
    (
        &["api.tls.private_key", "api.tls.certificate"],
        "the API is served with TLS from the start, or without",
    ),
    (
        &["api.tls.ca"],
        "users of the API have certificates from the start, or not",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../../docs/run-reload.md");

    fn words(at: At) -> String {
        match at {
            At::Reload("") => "applies".to_owned(),
            At::Reload(words) => format!("applies: {words}"),
            At::Restart(why) => format!("needs a restart: {why}"),
        }
    }

    /// The table of the manual: the settings with the same answer in one row.
    fn table() -> String {
        let mut all: Vec<At> = Vec::new();
        for setting in SETTINGS.iter() {
            if !all.contains(&setting.at) {
                all.push(setting.at);
            }
        }
        let row = |at: &At| {
            let same = SETTINGS.iter().filter(|setting| setting.at == *at);
            let names: Vec<_> = same.map(|setting| format!("`{}`", setting.path)).collect();
            format!("| {} | {} |\n", words(*at), names.join(", "))
        };
        all.iter().map(row).collect()
    }

    #[test]
    fn the_manual_says_of_every_setting_what_a_reload_does() {
        let table = table();
        assert!(
            MANUAL.contains(&table),
            "docs/run-reload.md must have:\n{table}"
        );
        for (paths, why) in FROM_THE_START {
            let names: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
            let row = format!("| {} | {why} |\n", names.join(", "));
            assert!(
                MANUAL.contains(&row),
                "docs/run-reload.md must have:\n{row}"
            );
            let known = |path: &&&str| SETTINGS.iter().any(|setting| setting.path == **path);
            assert_eq!(paths.iter().filter(known).count(), paths.len(), "{paths:?}");
        }
    }

    #[test]
    fn every_line_of_the_table_is_read() {
        let effects = lines().filter_map(effect).count();
        assert_eq!(effects + SETTINGS.len(), lines().count());
    }

    #[test]
    fn no_setting_needs_a_restart_without_a_reason() {
        for setting in SETTINGS.iter() {
            if let At::Restart(why) = setting.at {
                assert!(why.split(' ').count() > 3, "{}", setting.path);
            }
            assert!(!setting.about.is_empty(), "{}", setting.path);
        }
    }
}
