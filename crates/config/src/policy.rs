//! Policy maps that an option or a file names.

use std::fmt::Write as _;
use std::path::Path;

use cli::failure::Failure;
use sched::PolicyMap;
use sched::policy::Problem;

/// The longest file that is read as a map; 64 rules have some 6 kB.
const FILE_LEN_MAX: u64 = 1 << 20;

/// The map that `--policy` names: a file, or a shipped map. Doubtful parts of a file are logged.
pub fn load(argument: &str) -> Result<PolicyMap, Failure> {
    let shipped = match argument {
        "auster" => Some(PolicyMap::auster()),
        "paper" => Some(PolicyMap::paper()),
        "none" => Some(PolicyMap::none()),
        _ => None,
    };
    if let Some(map) = shipped {
        return Ok(map);
    }
    let path = Path::new(argument);
    if !path.exists() {
        let problem = "No such file or directory; check the path, or write auster, paper or none";
        return Err(Failure::file(path, problem));
    }
    let text = read(path)?;
    let (map, warnings) = PolicyMap::parse(&text).map_err(|problems| refused(path, &problems))?;
    for warning in warnings {
        tracing::warn!("{argument}: {warning}");
    }
    Ok(map)
}

/// The text of a file with a map.
pub fn read(path: &Path) -> Result<String, Failure> {
    let size = std::fs::metadata(path).map_err(|e| Failure::file(path, e))?;
    if size.len() > FILE_LEN_MAX {
        return Err(Failure::file(
            path,
            "more than 1 MiB: this is no policy map",
        ));
    }
    let bytes = std::fs::read(path).map_err(|e| Failure::file(path, e))?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        Failure::usage(format!(
            "{}: byte {at} is no UTF-8: a policy map is text",
            path.display()
        ))
    })
}

/// Every problem, a line each, after a line that says that nothing of the map is used.
pub fn refused(path: &Path, problems: &[Problem]) -> Failure {
    let errors = problems.iter().filter(|p| p.code.is_error()).count();
    let mut message = format!(
        "{}: {}, so none of it is used",
        path.display(),
        counted(errors, "error")
    );
    for problem in problems {
        let _ = write!(message, "\n{}: {problem}", path.display());
    }
    Failure::usage(message)
}

/// A number of things, in words: `3 rules`.
pub fn counted(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}
