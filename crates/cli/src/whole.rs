//! Files that are replaced whole: a reader, or a process started after a power cut, finds the
//! earlier contents or the later ones.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes `contents` beside `file`, and puts it in the place of `file` once the disk has it.
pub fn replace(file: &Path, contents: &[u8]) -> io::Result<()> {
    let next = beside(file);
    let mut written = File::create(&next)?;
    written.write_all(contents)?;
    written.sync_all()?;
    fs::rename(&next, file)?;
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// The file that is written before it takes the place of `file`.
pub fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_all_of_the_earlier_contents_or_all_of_the_later_ones() {
        let dir = crate::temp_dir::TempDir::new().unwrap();
        let file = dir.path().join("state.json");
        replace(&file, b"first").unwrap();
        replace(&file, b"second").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"second");
        assert!(!beside(&file).exists());
        // The new file cannot be written: the earlier contents stay.
        fs::create_dir(beside(&file)).unwrap();
        replace(&file, b"third").unwrap_err();
        assert_eq!(fs::read(&file).unwrap(), b"second");
    }
}
