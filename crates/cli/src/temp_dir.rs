//! Temporary directories that nobody else can enter or predict.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A directory under the system's temporary one that nobody else may enter (mode 0700), with a name
/// that nobody can predict. Dropping this value removes the directory with its content.
pub struct TempDir(PathBuf);

impl TempDir {
    #[allow(
        clippy::disallowed_methods,
        reason = "this is what to use in its place"
    )]
    pub fn new() -> Result<TempDir, Failure> {
        let template = std::env::temp_dir().join("auster-XXXXXX");
        let made = nix::unistd::mkdtemp(&template);
        let made = made.map_err(|error| Failure::file(&template, std::io::Error::from(error)))?;
        Ok(TempDir(made))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
