//! A file with the map in use: a restarted relay has the map before it connects to anything.
//!
//! The first line is a comment with the digest of the map that follows in its canonical form. The
//! file is replaced as a whole.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sched::PolicyMap;
use sched::policy::{Against, MapDigest};
use tokio::sync::watch;

use cli::whole;

const FIRST_WORDS: &str = "# sha256 ";

/// Returns the newer of `policy` and the map in the file at `path`. A file without a valid map is
/// reported, and left until it is replaced.
pub fn prefer(policy: Arc<PolicyMap>, path: &Path) -> Arc<PolicyMap> {
    let file = path.display();
    match read(path) {
        Ok(Some(stored)) if stored.generation > policy.generation => {
            let generation = stored.generation;
            tracing::info!(generation, "{file}: newer than --policy, and in use");
            Arc::new(stored)
        }
        Ok(_) => policy,
        Err(problem) => {
            tracing::error!("{file}: {problem}; --policy is in use instead");
            policy
        }
    }
}

/// Writes every map that is taken into use, for as long as it is polled.
pub async fn keep(mut maps: watch::Receiver<Arc<PolicyMap>>, path: PathBuf) {
    while maps.changed().await.is_ok() {
        let map = maps.borrow_and_update().clone();
        let to = path.clone();
        let written = tokio::task::spawn_blocking(move || write(&to, &map)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!("{}: {error}", path.display()),
            Err(error) => tracing::error!("{}: {error}", path.display()),
        }
    }
}

fn read(path: &Path) -> Result<Option<PolicyMap>, String> {
    if fs::metadata(path).is_err_and(|e| e.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let text = config::policy::read(path).map_err(|failure| failure.message().to_owned())?;
    let broken = || "its first line is not the digest of a stored map".to_owned();
    let (first, map) = text.split_once('\n').ok_or_else(broken)?;
    let digest = first.strip_prefix(FIRST_WORDS).ok_or_else(broken)?;
    let digest: MapDigest = digest.trim().parse()?;
    let against = Against {
        digest: Some(digest),
        ..Against::default()
    };
    match PolicyMap::parse_against(map, &against) {
        Ok((map, _)) => Ok(Some(map)),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            Err(lines.join("\n"))
        }
    }
}

fn write(path: &Path, map: &PolicyMap) -> io::Result<()> {
    let text = format!("{FIRST_WORDS}{}\n{}", map.digest(), map.to_text());
    whole::replace(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(generation: u64) -> Arc<PolicyMap> {
        let text = format!("Generation: {generation}\nDefault: action=queue_id:0\n");
        Arc::new(PolicyMap::parse(&text).unwrap().0)
    }

    #[test]
    fn the_greater_generation_is_preferred_and_what_is_corrupt_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("active.policy");
        let preferred = |generation| prefer(map(generation), &path).generation;
        assert_eq!(preferred(3), 3, "nothing is stored");
        write(&path, &map(7)).unwrap();
        assert_eq!((preferred(3), preferred(9)), (7, 9));
        assert_eq!(*prefer(map(3), &path), *map(7));

        let whole = fs::read_to_string(&path).unwrap();
        let generation = "Generation: 7";
        let told = whole.find(generation).unwrap() + generation.len();
        for len in 0..whole.len() {
            fs::write(&path, &whole[..len]).unwrap();
            // The part cut off at the end may only be one that is implied anyway.
            let preferred = prefer(map(3), &path);
            assert!(preferred == map(3) || preferred == map(7), "{len} bytes");
            assert!(len >= told || preferred == map(3), "{len} bytes");
        }
        fs::write(&path, whole.replace("Generation: 7", "Generation: 8")).unwrap();
        assert_eq!(preferred(3), 3, "another digest");
        fs::write(&path, [0xff; 40]).unwrap();
        assert_eq!(preferred(3), 3);
        let left: Vec<_> = fs::read_dir(&folder).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
