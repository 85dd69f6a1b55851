//! `auster import`: converts configurations of other controllers to auster's.

mod faucet;
mod report;
mod written;
mod yaml;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cli::failure::Failure;
use cli::output::{note, say_part};
use faucet::{Include, Reader};
use report::{Report, shown};

/// The most bytes of all files together.
const BYTES_MAX: u64 = 1 << 20;
/// The most files that one file includes, directly and indirectly.
const FILES_MAX: usize = 64;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the VLANs, ports, access lists, routes and mirrors of a Faucet configuration in
    /// auster's format; on standard error, a line for each statement that is not converted
    #[command(after_help = FAUCET_EXAMPLE)]
    Faucet(FaucetArgs),
}

const FAUCET_EXAMPLE: &str = "\
Example:
  auster import faucet faucet.yaml -o auster.toml
  faucet.yaml:12: dps.sw1.stack: stacking is not carried over: auster finds links by itself
  auster run --config auster.toml

A configuration with mistakes ends with exit code 2, each of them on a line of its own.";

#[derive(clap::Args)]
pub struct FaucetArgs {
    /// Faucet's configuration, version 2
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Write the TOML to this file, which must not exist
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(command: Command) -> Result<(), Failure> {
    let Command::Faucet(args) = command;
    let imported = import(&args.file, &mut Disk { left: BYTES_MAX })?;
    match &args.output {
        Some(file) => write_new(file, &imported.toml)?,
        None => say_part!("{}", imported.toml),
    }
    for line in imported.left_out {
        note!("{line}");
    }
    Ok(())
}

#[derive(Debug)]
struct Imported {
    toml: String,
    /// A line for each statement that is not carried over.
    left_out: Vec<String>,
}

/// Reads texts of files.
trait Files {
    /// Reads a file, as far as there is room for it.
    fn read(&mut self, path: &Path) -> std::io::Result<Vec<u8>>;
}

struct Disk {
    left: u64,
}

impl Files for Disk {
    fn read(&mut self, path: &Path) -> std::io::Result<Vec<u8>> {
        // Do not wait for a pipe that nobody writes to.
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(nix::libc::O_NONBLOCK);
        let file: File = options.open(path)?;
        if !file.metadata()?.is_file() {
            let problem = "it is no regular file";
            return Err(std::io::Error::new(ErrorKind::InvalidInput, problem));
        }
        let mut bytes = Vec::new();
        file.take(self.left + 1).read_to_end(&mut bytes)?;
        let length = bytes.len() as u64;
        self.left = self.left.checked_sub(length).ok_or_else(|| {
            let problem = "more than 1 MiB, with the files that include it";
            std::io::Error::new(ErrorKind::FileTooLarge, problem)
        })?;
        Ok(bytes)
    }
}

fn import(path: &Path, files: &mut dyn Files) -> Result<Imported, Failure> {
    let bytes = files.read(path).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge | ErrorKind::InvalidInput => Failure::file(path, error.to_string()),
        _ => Failure::file(path, error),
    })?;
    let mut report = Report::default();
    let mut reader = Reader::default();
    read_all(path, bytes, files, &mut reader, &mut report);
    let network = reader.finish(&mut report);
    let toml = written::document(&network, &mut report);
    let left_out = report.all_left_out();
    match report.is_good() {
        true => Ok(Imported { toml, left_out }),
        false => Err(refused(path, &report)),
    }
}

/// Reads the file and those that it includes, each once.
fn read_all(
    path: &Path,
    bytes: Vec<u8>,
    files: &mut dyn Files,
    reader: &mut Reader,
    report: &mut Report,
) {
    let mut values_left = yaml::VALUES_MAX;
    let mut seen = BTreeSet::from([path.to_owned()]);
    let mut waiting = Vec::from([(path.to_owned(), bytes)]);
    while let Some((path, bytes)) = waiting.pop() {
        let file = report.files.len();
        report.files.push(shown_path(&path));
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => {
                let valid = error.utf8_error().valid_up_to();
                let before = &error.as_bytes()[..valid];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                report.mistake(report::At { file, line }, "no UTF-8");
                continue;
            }
        };
        let Some(root) = yaml::parse(&text, file, &mut values_left, report) else {
            continue;
        };
        for include in reader.add(&root, report) {
            let found = path.parent().unwrap_or(Path::new("")).join(&include.file);
            if !seen.insert(found.clone()) {
                continue;
            }
            if seen.len() > FILES_MAX {
                return report.mistake(include.at, format!("more than {FILES_MAX} files"));
            }
            match files.read(&found) {
                Ok(bytes) => waiting.push((found, bytes)),
                Err(error) => report_missing(&include, &error, report),
            }
        }
    }
}

fn report_missing(include: &Include, error: &std::io::Error, report: &mut Report) {
    if !include.is_optional || error.kind() != ErrorKind::NotFound {
        let file = shown(&include.file);
        report.mistake(include.at, format!("include: {file}: {error}"));
    }
}

/// A path on one line, uncut.
fn shown_path(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

/// All mistakes, a line each, after a line with their number and the consequence.
fn refused(path: &Path, report: &Report) -> Failure {
    let lines = report.mistakes();
    let plural = if lines.len() == 1 { "" } else { "s" };
    let (path, count) = (path.display(), lines.len());
    let lines = lines.join("\n");
    Failure::usage(format!(
        "{path}: {count} mistake{plural}, so nothing is printed\n{lines}"
    ))
}

fn write_new(path: &Path, text: &str) -> Result<(), Failure> {
    let file = OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = file.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            Failure::file(path, "it is there already; remove it, or give another name")
        }
        _ => Failure::file(path, error),
    })?;
    let written = file.write_all(text.as_bytes());
    written.map_err(|error| Failure::file(path, error))
}

#[cfg(test)]
mod tests;
