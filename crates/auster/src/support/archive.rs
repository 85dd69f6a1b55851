//! A tar archive (POSIX ustar), compressed by gzip.

use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

const BLOCK: usize = 512;

/// Files in one folder, as they are written.
pub struct Archive<W: Write> {
    folder: &'static str,
    modified_s: u64,
    to: GzEncoder<W>,
}

impl<W: Write> Archive<W> {
    pub fn new(folder: &'static str, to: W) -> Archive<W> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Archive {
            folder,
            modified_s: since.map_or(0, |since| since.as_secs()),
            to: GzEncoder::new(to, Compression::default()),
        }
    }

    /// Adds a file. Its name and the folder's have at most 100 bytes together.
    pub fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = format!("{}/{name}", self.folder);
        self.to
            .write_all(&header(&path, bytes.len(), self.modified_s)?)?;
        self.to.write_all(bytes)?;
        let padding = bytes.len().next_multiple_of(BLOCK) - bytes.len();
        self.to.write_all(&[0; BLOCK][..padding])
    }

    /// Writes the end of the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.to.write_all(&[0; 2 * BLOCK])?;
        self.to.finish()
    }
}

/// The block before a file's contents (POSIX.1-2017, pax, "ustar Interchange Format").
fn header(path: &str, len: usize, modified_s: u64) -> io::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let fields = [
        (0, 100, path.to_owned()),
        (100, 8, "0000600".to_owned()),
        (108, 8, "0000000".to_owned()),
        (116, 8, "0000000".to_owned()),
        (124, 12, format!("{len:011o}")),
        (136, 12, format!("{modified_s:011o}")),
        // The sum of all bytes is computed while this field is blank.
        (148, 8, " ".repeat(8)),
        (156, 1, "0".to_owned()),
        (257, 8, "ustar\x0000".to_owned()),
    ];
    for (at, room, text) in fields {
        if text.len() > room {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    }
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn tar_unpacks_what_was_added() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.tar.gz");
        let mut archive = Archive::new("a", std::fs::File::create(&path).unwrap());
        let long = vec![b'x'; 100_000];
        let files: [(&str, &[u8]); 3] = [("one", b"1\n"), ("none", b""), ("long", &long)];
        for (name, bytes) in files {
            archive.add(name, bytes).unwrap();
        }
        assert!(
            archive.add(&"n".repeat(99), b"").is_err(),
            "no room for the name"
        );
        archive.finish().unwrap();
        let mut tar = Command::new("tar");
        let output = tar
            .arg("-xzf")
            .arg(&path)
            .current_dir(&dir)
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        for (name, bytes) in files {
            assert_eq!(
                std::fs::read(dir.path().join("a").join(name)).unwrap(),
                bytes
            );
        }
        let packed = std::fs::metadata(&path).unwrap().len();
        assert!(packed < 2000, "{packed} bytes are compressed");
    }
}
