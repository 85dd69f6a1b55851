//! Mistakes in TOML syntax, in words for people who write settings.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Kind, Problem};

/// Turns parser errors into problems, without errors that only follow from others: one problem for
/// each line, and none after a list that does not end.
pub(super) fn problems(
    text: &str,
    root: &DeTable<'_>,
    mut errors: Vec<(usize, &str)>,
) -> Vec<Problem> {
    errors.sort();
    let is_open = |(_, error): &(usize, &str)| {
        error.starts_with("unclosed array,") || error.starts_with("unclosed inline table")
    };
    let open = errors.iter().filter(|error| is_open(error));
    let open = open
        .filter_map(|(at, _)| open_value(root.values(), *at))
        .min();
    let before_open = |(at, _): &(usize, &str)| open.is_none_or(|open| *at < open);
    let mut problems = Vec::new();
    let mut line_end = 0;
    for (at, error) in errors.into_iter().filter(before_open) {
        if at < line_end {
            continue;
        }
        let behind = text.get(at..).unwrap_or_default();
        line_end = at + behind.find('\n').map_or(behind.len(), |len| len + 1);
        problems.push(problem(text, at, error));
    }
    problems.extend(open.map(|at| Problem {
        at,
        text: "what begins here has no end: close it with ] or }".to_owned(),
        kind: Kind::Syntax,
    }));
    problems
}

/// Returns the start of the outermost list or inline table that contains `at`, or ends there.
fn open_value<'t, 'v: 't>(
    values: impl Iterator<Item = &'t Spanned<DeValue<'v>>>,
    at: usize,
) -> Option<usize> {
    let around =
        |value: &Spanned<DeValue<'v>>| (value.span().start..=value.span().end).contains(&at);
    values.into_iter().find_map(|value| match value.get_ref() {
        // The span of a section covers only its header.
        DeValue::Table(table) if !around(value) => open_value(table.values(), at),
        DeValue::Array(all) if !around(value) => open_value(all.iter(), at),
        DeValue::Table(_) | DeValue::Array(_) => Some(value.span().start),
        _ => None,
    })
}

fn problem(text: &str, at: usize, error: &str) -> Problem {
    let before = text.get(..at).unwrap_or_default();
    let line = before.rfind('\n').map_or(0, |newline| newline + 1);
    let behind = text.get(at..).unwrap_or_default();
    let word = behind.split(['\n', '#', ',']).next().unwrap_or_default();
    let word: String = word.trim().chars().take(40).collect();
    let is_value = before[line..].contains('=') && !word.is_empty();
    if error == "duplicate key" {
        let name = behind.split(['\n', '=', ']']).next().unwrap_or_default();
        let (name, header) = (name.trim(), text[line..].trim_start());
        let is_list = before.contains(&format!("[[{name}]]"));
        let text = match header.starts_with('[') {
            true if is_list && !header.starts_with("[[") => {
                format!("[[{name}]] is there already: write [[{name}]] here too")
            }
            true => format!("[{name}] is there already: put all its settings into one"),
            false => format!("{name} is there already in this section: keep one of them"),
        };
        let kind = Kind::Twice;
        return Problem { at, text, kind };
    }
    let is_bare = [
        "string values must be quoted",
        "invalid boolean",
        "invalid date",
    ]
    .iter()
    .any(|start| error.starts_with(start));
    Problem {
        at,
        text: match is_bare && is_value {
            true => format!("'{word}' is no value: write a number in digits, or a text in quotes"),
            false => format!("this is not TOML: {error}"),
        },
        kind: Kind::Syntax,
    }
}
