//! The file of token owners, with one line each: `NAME ROLE SHA256`. The file keeps the digest of a
//! token and not the token, so its readers cannot log in with it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cli::failure::{Failure, FileProblem};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use nix::unistd::getuid;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The rights of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Role {
    /// Read everything
    Read,
    /// Change what the network does
    Operate,
    /// Do everything, including reloading the configuration
    Admin,
}

impl Role {
    const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Admin];

    /// Returns the role's name in a certificate, after `urn:auster:role:`.
    pub fn mark(self) -> &'static str {
        match self {
            Role::Read => "reader",
            Role::Operate => "operator",
            Role::Admin => "admin",
        }
    }

    pub fn of_mark(mark: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.mark() == mark)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Admin => "admin",
        })
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Role, String> {
        let found = Role::ALL.into_iter().find(|role| role.to_string() == text);
        found.ok_or_else(|| format!("'{text}' is none of read, operate, admin"))
    }
}

/// The most tokens in the file: each request is compared with all of them.
const TOKENS_MAX: usize = 1024;
const FILE_BYTES_MAX: u64 = 1 << 20;
const NAME_CHARS_MAX: usize = 64;
/// The most bytes of a token, longer than any that `auster api token add` makes.
pub const TOKEN_BYTES_MAX: usize = 256;
/// The beginning of every token, for scanners that look for leaked secrets.
const PREFIX: &str = "auster-";

type Sum = [u8; 32];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub role: Role,
    sum: Sum,
}

/// The owners of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Entry>);

impl Tokens {
    /// Reads the file. The failure lists every mistake in the file.
    pub fn load(path: &Path) -> Result<Tokens, Failure> {
        let text = read_secret(path)?;
        Tokens::parse(&text, path).map_err(|problems| Failure::usage(problems.join("; ")))
    }

    fn parse(text: &str, path: &Path) -> Result<Tokens, Vec<String>> {
        let (mut tokens, mut problems) = (Tokens::default(), Vec::new());
        let lines = (1..).zip(text.lines().map(str::trim));
        for (number, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
            match tokens.parse_line(line) {
                Ok(entry) => tokens.0.push(entry),
                Err(problem) => problems.push(format!("{}:{number}: {problem}", path.display())),
            }
        }
        match problems.is_empty() {
            true => Ok(tokens),
            false => Err(problems),
        }
    }

    /// Reads an entry that does not contradict the entries before it.
    fn parse_line(&self, line: &str) -> Result<Entry, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, role, sum] = words[..] else {
            let count = words.len();
            return Err(format!("{count} words; a line has NAME ROLE SHA256"));
        };
        let name = parse_name(name)?;
        let role = role.parse()?;
        let sum = parse_sum(sum).ok_or("the SHA-256 of a token has 64 hex digits")?;
        if self.has(&name) {
            return Err(format!("'{name}' is there twice"));
        }
        if self.0.iter().any(|entry| entry.sum == sum) {
            return Err(format!("'{name}' has the token of another"));
        }
        if self.0.len() >= TOKENS_MAX {
            return Err(format!("more than {TOKENS_MAX} tokens"));
        }
        Ok(Entry { name, role, sum })
    }

    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|entry| entry.name == name)
    }

    /// Finds the owner of a token. The time taken does not reveal how much of the token is right.
    pub fn owner(&self, token: &str) -> Option<&Entry> {
        let sum: Sum = Sha256::digest(token.as_bytes()).into();
        let (mut found, mut at) = (Choice::from(0), 0_u64);
        for (number, entry) in (0_u64..).zip(&self.0) {
            let is_it = entry.sum.ct_eq(&sum);
            at = u64::conditional_select(&at, &number, is_it);
            found |= is_it;
        }
        let at = usize::try_from(at).ok()?;
        self.0.get(at).filter(|_| found.into())
    }
}

/// Checks a name, which appears in logs and audit lines.
pub fn parse_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    if text.is_empty() || text.len() > NAME_CHARS_MAX || !text.chars().all(is_plain) {
        return Err(format!(
            "'{text}' is no name: at most {NAME_CHARS_MAX} letters, digits, '-', '_', '.', '@'"
        ));
    }
    Ok(text.to_owned())
}

fn parse_sum(text: &str) -> Option<Sum> {
    let sum = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    sum.try_into().ok()
}

/// Makes a token. Returns the token, and stores its digest in the file, which is created if needed.
pub fn add(path: &Path, name: &str, role: Role) -> Result<String, Failure> {
    let text = match path.exists() {
        true => read_secret(path)?,
        false => "# NAME ROLE SHA256: written by auster api token\n".to_owned(),
    };
    let tokens = Tokens::parse(&text, path).map_err(|all| Failure::usage(all.join("; ")))?;
    if tokens.has(name) {
        return Err(Failure::usage(format!(
            "'{name}' has a token already; take it away first: auster api token remove {name}"
        )));
    }
    let mut secret = [0; 32];
    let source = "/dev/urandom";
    File::open(source)
        .and_then(|mut file| file.read_exact(&mut secret))
        .map_err(|error| Failure::file(source, error))?;
    let token = format!("{PREFIX}{}", HEXLOWER.encode(&secret));
    let line = format!(
        "{name} {role} {}",
        HEXLOWER.encode(&Sha256::digest(token.as_bytes()))
    );
    let text = format!("{}\n{line}\n", text.trim_end());
    Tokens::parse(&text, path).map_err(|all| Failure::usage(all.join("; ")))?;
    replace(path, &text).map_err(|error| Failure::file(path, error))?;
    Ok(token)
}

/// Removes a token, and leaves all other lines unchanged.
pub fn remove(path: &Path, name: &str) -> Result<(), Failure> {
    let text = read_secret(path)?;
    let is_it = |line: &&str| line.split_whitespace().next() == Some(name);
    if !text.lines().any(|line| is_it(&line)) {
        let problem = format!("nobody of the name '{name}' is in it");
        return Err(Failure::usage(format!("{}: {problem}", path.display())));
    }
    let left: Vec<&str> = text.lines().filter(|line| !is_it(line)).collect();
    let text = format!("{}\n", left.join("\n"));
    replace(path, &text).map_err(|error| Failure::file(path, error))
}

/// Replaces the old file with a new one of the same owner. A reader sees one or the other.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new: PathBuf = path.with_file_name(name);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    if let Ok(old) = std::fs::metadata(path) {
        std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid()))?;
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// Reads a file that other users of this machine may neither read nor change.
pub fn read_secret(path: &Path) -> Result<String, Failure> {
    let failed = |problem: String| Failure::file(path, problem);
    let system = |error: io::Error| Failure::file(path, error.say());
    // Without O_NONBLOCK a FIFO would wait for a writer.
    let flags = nix::libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(system)?;
    // Ask about the open file: the path may name another file a moment later.
    let facts = file.metadata().map_err(system)?;
    if !facts.is_file() || facts.len() > FILE_BYTES_MAX {
        return Err(failed("it is no file of tokens".to_owned()));
    }
    let owner = facts.uid();
    if owner != 0 && owner != getuid().as_raw() {
        return Err(failed(format!(
            "it belongs to uid {owner}; it must be root's, or that of the user who runs auster"
        )));
    }
    if facts.mode() & 0o027 != 0 {
        return Err(failed(format!(
            "others may read or change it (mode {:03o}); chmod 600 {}",
            facts.mode() & 0o777,
            path.display()
        )));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => failed("it is no text".to_owned()),
        _ => system(error),
    })?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_found_and_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        let reader = add(&path, "grafana", Role::Read).unwrap();
        let operator = add(&path, "ops@example", Role::Operate).unwrap();
        assert!(add(&path, "grafana", Role::Admin).unwrap_err().is_usage());
        let tokens = Tokens::load(&path).unwrap();
        let owner = |token: &str| tokens.owner(token).map(|entry| (&*entry.name, entry.role));
        assert_eq!(owner(&reader), Some(("grafana", Role::Read)));
        assert_eq!(owner(&operator), Some(("ops@example", Role::Operate)));
        assert_eq!(reader.len(), PREFIX.len() + 64);
        for wrong in ["", "auster-", &reader[1..], &format!("{reader} ")] {
            assert_eq!(owner(wrong), None);
        }
        assert!(!std::fs::read_to_string(&path).unwrap().contains(&reader));
        remove(&path, "grafana").unwrap();
        assert!(remove(&path, "grafana").unwrap_err().is_usage());
        let left = Tokens::load(&path).unwrap();
        assert_eq!(left.owner(&reader), None);
        assert_eq!(left.entries().len(), 1);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with('#'));
    }

    #[test]
    fn all_mistakes_are_reported_at_once_each_with_its_line() {
        let sum = "0".repeat(64);
        let text = format!(
            "# a comment\n\nops operate {sum}\nops read {}\nx read {sum}\ny root {sum}\n\
             z read 12\na b\nb/c read {sum}\n",
            "1".repeat(64)
        );
        let problems = Tokens::parse(&text, Path::new("t")).unwrap_err();
        let lines: Vec<_> = problems
            .iter()
            .map(|p| p.split(' ').next().unwrap())
            .collect();
        assert_eq!(
            lines,
            ["t:4:", "t:5:", "t:6:", "t:7:", "t:8:", "t:9:"],
            "{problems:#?}"
        );
    }

    #[test]
    fn a_file_that_others_may_read_or_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens");
        add(&path, "ops", Role::Operate).unwrap();
        for (mode, is_taken) in [(0o600, true), (0o640, true), (0o644, false), (0o620, false)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, permissions).unwrap();
            assert_eq!(Tokens::load(&path).is_ok(), is_taken, "{mode:o}");
        }
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Tokens::load(&fifo).is_err());
    }
}
