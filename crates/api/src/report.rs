//! The report of a reload: the settings that have changed, how many have not, which need a restart
//! and why; or every mistake, and then nothing has changed.

use std::fmt::Write;

use serde::Serialize;
use utoipa::ToSchema;

use config::settings::effective::Change;

/// The answer to a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Report {
    /// Whether the configuration is in use. If not, nothing has changed.
    pub applied: bool,
    /// The settings that have another value now.
    pub changed: Vec<Changed>,
    /// The number of settings that have the value which they had.
    pub unchanged: usize,
    /// The settings that have another value in the file, and the one from before in use.
    pub needs_restart: Vec<NeedsRestart>,
    /// Why nothing has changed: a line for each mistake.
    pub mistakes: Vec<String>,
    /// Settings in use that are probably not meant, and further effects of the change.
    pub warnings: Vec<String>,
}

/// A setting that has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Changed {
    #[schema(example = "controller.path_rate_max")]
    pub setting: String,
    /// The meaning for what is there already, if it has any.
    pub effect: Option<String>,
}

/// A setting that a reload does not change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct NeedsRestart {
    #[schema(example = "threads")]
    pub setting: String,
    pub reason: String,
}

impl Report {
    /// The report of a reload that has applied all of `changes` but those that need a restart.
    pub fn applied(changes: &[Change], count: usize) -> Report {
        let (kept, changed): (Vec<&Change>, Vec<&Change>) =
            changes.iter().partition(|change| change.needs_restart);
        let changed = changed.into_iter().map(|change| Changed {
            setting: change.path.to_owned(),
            effect: (!change.words.is_empty()).then(|| change.words.to_owned()),
        });
        let kept = kept.into_iter().map(|change| NeedsRestart {
            setting: change.path.to_owned(),
            reason: change.words.to_owned(),
        });
        Report {
            applied: true,
            changed: changed.collect(),
            unchanged: count - changes.len(),
            needs_restart: kept.collect(),
            ..Report::default()
        }
    }

    pub fn refused(mistakes: Vec<String>) -> Report {
        Report {
            mistakes,
            ..Report::default()
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        if !self.applied {
            let mistakes = self.mistakes.join("; ");
            return format!("refused, all in use stays as it was: {mistakes}");
        }
        let mut line = format!("changed {}", self.changed.len());
        let names: Vec<&str> = self.changed.iter().map(|c| c.setting.as_str()).collect();
        if !names.is_empty() {
            let _ = write!(line, " ({})", names.join(", "));
        }
        let _ = write!(line, ", unchanged {}", self.unchanged);
        for NeedsRestart { setting, reason } in &self.needs_restart {
            let _ = write!(line, "; {setting} needs a restart: {reason}");
        }
        for warning in &self.warnings {
            let _ = write!(line, "; warning: {warning}");
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_what_has_changed_and_why_the_rest_has_not() {
        let change = |path, words, needs_restart| Change {
            path,
            words,
            needs_restart,
        };
        let mut report = Report::applied(
            &[
                change("drain", "", false),
                change("threads", "they stay", true),
            ],
            97,
        );
        assert_eq!(
            report.line(),
            "changed 1 (drain), unchanged 95; threads needs a restart: they stay"
        );
        report.warnings = vec!["a.toml:3:1: b".to_owned()];
        assert!(report.line().ends_with("; warning: a.toml:3:1: b"));
        let refused = Report::refused(vec!["a.toml:1:2: no".to_owned(), "b".to_owned()]);
        assert_eq!(
            refused.line(),
            "refused, all in use stays as it was: a.toml:1:2: no; b"
        );
    }
}
