//! `auster reload`: makes a running controller read its configuration again, through its API.

use cli::failure::Failure;
use cli::output::{note, say};
use cli::runtime::block_on;
use hyper::Method;
use serde_json::Value;

use crate::qos::ApiArgs;

pub const EXAMPLE: &str = "\
Example:
  auster run --check --config run.toml
  auster reload
  changed      drain
  unchanged    101 settings
  restart      threads: a connection stays on its thread

It ends with 0 if the configuration is in use, and with 2 if it has mistakes: then nothing has
changed.";

const PATH: &str = "/v1/reload";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    api: ApiArgs,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// # Errors
/// The API does not answer, or refuses, or the configuration has mistakes.
pub fn run(args: &Args) -> Result<(), Failure> {
    block_on(async {
        let client = args.api.client()?;
        let (status, report) = client.answer(Method::POST, PATH, None).await?;
        if report["applied"].is_null() {
            let detail = report["detail"].as_str().unwrap_or("no report");
            return Err(Failure::negative(format!("{}: {detail}", status.as_u16())));
        }
        if args.json {
            say!("{report}");
        } else {
            lines(&report).iter().for_each(|line| say!("{line}"));
        }
        let mistakes = texts(&report["mistakes"]);
        if report["applied"] == true {
            return Ok(());
        }
        let count = match mistakes.len() {
            1 => "one mistake".to_owned(),
            count => format!("{count} mistakes"),
        };
        mistakes.into_iter().for_each(|mistake| note!("{mistake}"));
        Err(Failure::usage(format!(
            "the configuration has {count}, and nothing has changed"
        )))
    })
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten();
    texts
        .filter_map(|text| Some(text.as_str()?.to_owned()))
        .collect()
}

fn lines(report: &Value) -> Vec<String> {
    if report["applied"] != true {
        return Vec::new();
    }
    let row = |what: &str, of: &Value, why: &str| {
        let setting = of["setting"].as_str().unwrap_or_default();
        match of[why].as_str() {
            Some(why) => format!("{what:<12} {setting}: {why}"),
            None => format!("{what:<12} {setting}"),
        }
    };
    let each = |key: &str| report[key].as_array().cloned().unwrap_or_default();
    let changed = each("changed");
    let mut lines: Vec<String> = changed
        .iter()
        .map(|changed| row("changed", changed, "effect"))
        .collect();
    lines.push(format!(
        "{:<12} {} settings",
        "unchanged", report["unchanged"]
    ));
    let kept = each("needs_restart");
    lines.extend(kept.iter().map(|kept| row("restart", kept, "reason")));
    let warnings = texts(&report["warnings"]).into_iter();
    lines.extend(warnings.map(|warning| format!("{:<12} {warning}", "warning")));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_is_a_line_for_each_setting() {
        let report = json!({
            "applied": true,
            "changed": [
                {"setting": "drain", "effect": null},
                {"setting": "listen", "effect": "they stay"},
            ],
            "unchanged": 98,
            "needs_restart": [{"setting": "threads", "reason": "so it is"}],
            "mistakes": [],
            "warnings": ["run.toml:3:1: no packet"],
        });
        let expected = [
            "changed      drain",
            "changed      listen: they stay",
            "unchanged    98 settings",
            "restart      threads: so it is",
            "warning      run.toml:3:1: no packet",
        ];
        assert_eq!(lines(&report), expected);
        assert_eq!(lines(&json!({"applied": false})), [""; 0]);
    }
}
