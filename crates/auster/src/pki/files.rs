//! The file layout of `ovs-pki`, and the rules for writing files: only the owner can read secrets,
//! and nothing is overwritten unless requested.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::make::Purpose;
use cli::failure::Failure;

/// A directory of certificate authorities.
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    pub fn new(dir: &Path) -> Layout {
        Layout { dir: dir.into() }
    }

    pub fn ca_certificate(&self, purpose: Purpose) -> PathBuf {
        self.ca(purpose).join("cacert.pem")
    }

    pub fn ca_key(&self, purpose: Purpose) -> PathBuf {
        self.ca(purpose).join("private").join("cakey.pem")
    }

    fn ca(&self, purpose: Purpose) -> PathBuf {
        self.dir.join(format!("{purpose}ca"))
    }
}

/// Checks paths before anything is made, so that nothing is left half made.
pub fn must_not_exist(paths: &[PathBuf], force: bool) -> Result<(), Failure> {
    match paths.iter().find(|path| path.exists()) {
        Some(path) if !force => Err(Failure::file(path, "it is there; --force overwrites it")),
        _ => Ok(()),
    }
}

/// A file of an authority, as text.
pub fn read_ca(path: &Path, layout: &Layout) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::file(
            path,
            format!(
                "no such file; first run: auster pki init --dir {}",
                layout.dir.display()
            ),
        ),
        _ => Failure::file(path, error),
    })
}

/// Writes a file with mode 0600. If its directory has to be made, that gets mode 0700.
pub fn write_secret(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text, 0o600, 0o700)
}

pub fn write_public(path: &Path, text: &str) -> Result<(), Failure> {
    write(path, text, 0o644, 0o755)
}

/// Removes the old file and never opens it: it may have another mode, or be a link.
fn write(path: &Path, text: &str, mode: u32, dir_mode: u32) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::file(path, error);
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        if let Some(above) = parent.parent() {
            fs::create_dir_all(above).map_err(fail)?;
        }
        let made = DirBuilder::new().mode(dir_mode).create(parent);
        made.or_else(|error| match error.kind() {
            ErrorKind::AlreadyExists => Ok(()),
            _ => Err(fail(error)),
        })?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(fail(error)),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use cli::temp_dir::TempDir;

    use super::*;

    #[test]
    fn a_temporary_directory_is_its_owners_alone_and_goes_with_its_content() {
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (dir, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        assert_ne!(dir.path(), other.path());
        assert_eq!(mode(dir.path()), 0o700);
        let key = dir.path().join("privkey.pem");
        // A link that somebody placed first is removed and not followed.
        std::os::unix::fs::symlink(other.path().join("stolen"), &key).unwrap();
        write_secret(&key, "key").unwrap();
        assert_eq!(mode(&key), 0o600);
        assert!(!other.path().join("stolen").exists());
        let path = dir.path().to_owned();
        drop(dir);
        assert!(!path.exists());
    }
}
