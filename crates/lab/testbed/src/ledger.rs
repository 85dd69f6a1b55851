//! The record of everything a lab makes on this machine, written before it is made.
//!
//! `/run/auster/labs/<id>.json` is the record and `/run/auster/labs/<id>/` the lab's directory. Any
//! process that finds the record of a lab whose owner has ended (even by SIGKILL) can remove all of
//! the lab: its processes, then its network namespaces with every interface in them, then its
//! files. Processes are found by pid and start time, so that a reused pid is never hit, and by the
//! id in their environment, which covers the moment between starting and recording a process.
//! Nothing is found by name.

use cli::program;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::tools;
use cli::date::unix_seconds;
use cli::failure::Failure;
use cli::output::note;

/// Every process of a lab has this variable, with the lab's id as its value.
pub const ID_VARIABLE: &str = "AUSTER_LAB";

const LABS_DIR: &str = "/run/auster/labs";

/// An unreadable record is being written, or its writer died; after this time it is removed.
const UNREADABLE_AGE_MAX: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub id: String,
    pub topology: String,
    pub controller: String,
    pub switch_count: usize,
    pub started_unix_s: u64,
    /// The process that removes the lab at its end. `None`: the lab stays until `auster lab down`.
    pub owner: Option<Process>,
    pub namespaces: Vec<String>,
    pub processes: Vec<Process>,
}

/// A process that cannot be mistaken for a later one with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub role: String,
    pub pid: i32,
    /// Clock ticks after boot: field 22 of proc(5)'s stat.
    pub started_ticks: u64,
}

impl Process {
    /// Finds a process by its pid; `None` when there is no such process (any more).
    pub fn find(role: &str, pid: i32) -> Option<Process> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is the command in parentheses and may contain anything; the last ')'
        // ends it. State is the next field, number 3.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        if fields.next()? == "Z" {
            return None;
        }
        Some(Process {
            role: role.to_string(),
            pid,
            started_ticks: fields.nth(18)?.parse().ok()?,
        })
    }

    pub fn is_alive(&self) -> bool {
        Process::find(&self.role, self.pid).is_some_and(|p| p.started_ticks == self.started_ticks)
    }

    pub fn signal(&self, signal: Signal) {
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

/// The record of one lab, in memory and on disk.
#[derive(Debug)]
pub struct Ledger {
    pub record: Record,
}

impl Ledger {
    /// Claims an unused id and writes the first record, owned by this process.
    pub fn create(
        topology: &str,
        controller: &str,
        switch_count: usize,
    ) -> Result<Ledger, Failure> {
        fs::create_dir_all(LABS_DIR).map_err(|e| Failure::file(LABS_DIR, e))?;
        for _ in 0..64 {
            let id = random_id()?;
            let path = record_path(&id);
            // create_new claims the id: two labs that start at once cannot both have it.
            match fs::File::create_new(&path) {
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(Failure::file(path, e)),
            }
            let ledger = Ledger {
                record: Record {
                    id,
                    topology: topology.to_string(),
                    controller: controller.to_string(),
                    switch_count,
                    started_unix_s: unix_seconds(),
                    owner: Process::find("owner", std::process::id() as i32),
                    namespaces: Vec::new(),
                    processes: Vec::new(),
                },
            };
            ledger.save()?;
            fs::create_dir_all(ledger.dir()).map_err(|e| Failure::file(ledger.dir(), e))?;
            return Ok(ledger);
        }
        Err(Failure::machine(format!(
            "no free lab id left in {LABS_DIR}"
        )))
    }

    /// Every lab that has a readable record, oldest first.
    pub fn all() -> Vec<Ledger> {
        let mut ledgers: Vec<Ledger> = record_paths().filter_map(|path| read(&path)).collect();
        ledgers.sort_by_key(|ledger| (ledger.record.started_unix_s, ledger.record.id.clone()));
        ledgers
    }

    /// Removes the labs of this process.
    pub fn remove_own() {
        let own = std::process::id() as i32;
        let is_own = |ledger: &Ledger| ledger.record.owner.as_ref().is_some_and(|o| o.pid == own);
        Ledger::all()
            .into_iter()
            .filter(is_own)
            .for_each(Ledger::remove);
    }

    /// Removes the remains of labs whose owner has ended, and reports it. Needs root.
    pub fn sweep() {
        for path in record_paths() {
            let Some(ledger) = read(&path) else {
                if age(&path).is_some_and(|age| age > UNREADABLE_AGE_MAX) {
                    let _ = fs::remove_file(&path);
                }
                continue;
            };
            if ledger
                .record
                .owner
                .as_ref()
                .is_some_and(|owner| !owner.is_alive())
            {
                note!("removed what lab {} left behind", ledger.id());
                ledger.remove();
            }
        }
    }

    pub fn id(&self) -> &str {
        &self.record.id
    }

    pub fn dir(&self) -> PathBuf {
        Path::new(LABS_DIR).join(&self.record.id)
    }

    /// The name of one of the lab's network namespaces.
    pub fn namespace(&self, part: &str) -> String {
        format!("{}-{part}", self.record.id)
    }

    /// Records namespaces that are about to be made.
    pub fn plan_namespaces(&mut self, names: Vec<String>) -> Result<(), Failure> {
        self.record.namespaces.extend(names);
        self.save()
    }

    /// Records a process that was just started with [`ID_VARIABLE`] in its environment.
    pub fn note_process(&mut self, role: &str, pid: u32) -> Result<(), Failure> {
        self.record
            .processes
            .extend(Process::find(role, pid as i32));
        self.save()
    }

    /// Removes a process that has ended from the record, so that its role can be used again.
    pub fn forget_process(&mut self, ended: &Process) -> Result<(), Failure> {
        self.record.processes.retain(|process| process != ended);
        self.save()
    }

    /// Releases the lab: from now on it stays when this process ends.
    pub fn release(&mut self) -> Result<(), Failure> {
        self.record.owner = None;
        self.save()
    }

    /// Removes the lab: processes, namespaces, files. Needs no help from the lab, and may be
    /// repeated.
    pub fn remove(self) {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if !record_path(&self.record.id).exists() {
            return;
        }
        let mut processes = self.record.processes.clone();
        processes.extend(processes_with_id(&self.record.id));
        processes
            .iter()
            .for_each(|process| process.signal(Signal::SIGKILL));
        let deadline = Instant::now() + Duration::from_secs(5);
        while processes.iter().any(Process::is_alive) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let made = |name: &&String| Path::new(tools::NETNS_DIR).join(name).exists();
        let lines: Vec<String> = self
            .record
            .namespaces
            .iter()
            .filter(made)
            .map(|name| format!("netns del {name}"))
            .collect();
        if let Err(failure) = program::ip_batch(None, &lines) {
            tracing::warn!(
                lab = self.record.id,
                ?failure,
                "a namespace could not be removed"
            );
        }
        let _ = fs::remove_dir_all(self.dir());
        let _ = fs::remove_file(record_path(&self.record.id));
    }

    /// Replaces the whole file at once, so that a reader never sees half a record.
    fn save(&self) -> Result<(), Failure> {
        let path = record_path(&self.record.id);
        let draft = path.with_extension("draft");
        let text = serde_json::to_vec_pretty(&self.record).map_err(|e| Failure::file(&path, e))?;
        fs::File::create(&draft)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| fs::rename(&draft, &path))
            .map_err(|e| Failure::file(&path, e))
    }
}

fn record_path(id: &str) -> PathBuf {
    Path::new(LABS_DIR).join(format!("{id}.json"))
}

fn record_paths() -> impl Iterator<Item = PathBuf> {
    fs::read_dir(LABS_DIR)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
}

fn read(path: &Path) -> Option<Ledger> {
    let record = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
    Some(Ledger { record })
}

fn age(path: &Path) -> Option<Duration> {
    fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()
}

/// An id of four hex digits, which leaves room for the parts' names in the kernel's 15 characters.
fn random_id() -> Result<String, Failure> {
    let mut bytes = [0u8; 2];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes))
        .map_err(|e| Failure::file("/dev/urandom", e))?;
    Ok(format!("au{:02x}{:02x}", bytes[0], bytes[1]))
}

fn processes_with_id(id: &str) -> Vec<Process> {
    let wanted = format!("{ID_VARIABLE}={id}");
    let pids = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables
                .any(|variable| variable == wanted.as_bytes())
                .then_some(pid)
        });
    pids.filter(|pid| *pid != std::process::id() as i32)
        .filter_map(|pid| Process::find("found by id", pid))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_pid_and_start_time() {
        let mut me = Process::find("me", std::process::id() as i32).unwrap();
        assert!(me.is_alive());
        me.started_ticks -= 1;
        assert!(!me.is_alive(), "an earlier process with this pid is not me");
        assert_eq!(Process::find("nobody", i32::MAX), None);
    }

    #[test]
    fn processes_are_found_by_the_lab_in_their_environment() {
        let id = format!("test-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env(ID_VARIABLE, &id)
            .spawn()
            .unwrap();
        // Until exec the child has the parent's environment.
        let deadline = Instant::now() + Duration::from_secs(5);
        while processes_with_id(&id).is_empty() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found: Vec<i32> = processes_with_id(&id).iter().map(|p| p.pid).collect();
        let others = processes_with_id(&format!("{id}0"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [child.id() as i32]);
        assert_eq!(others, [], "an id is not found by its prefix");
    }
}
