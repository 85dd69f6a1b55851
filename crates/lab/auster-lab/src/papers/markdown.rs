//! The report as a table for `docs/papers.md`, between two marks in the file.

use std::fmt::Write;

use crate::papers::judge::{Book, Chapter, Item, Verdict};
use crate::papers::list::List;
use crate::papers::store::Store;
use cli::date::day;

pub const BEGIN: &str = "<!-- what follows is written by `auster papers report` -->";
pub const END: &str = "<!-- and ends here -->";

/// Returns `text` with the part between the marks replaced.
pub fn replace(text: &str, made: &str) -> Result<String, String> {
    let wrong = || format!("it has no line '{BEGIN}' with a line '{END}' after it");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(wrong)?;
    let (_, after) = rest.split_once(END).ok_or_else(wrong)?;
    Ok(format!("{before}{BEGIN}\n\n{made}\n{END}{after}"))
}

/// Returns the text between the marks. Links are relative to `docs/`.
pub fn of(list: &List, book: &Book, store: &Store) -> String {
    let mut text = format!("{}.\n", book.counts_in_words());
    for chapter in &book.chapters {
        text += &self::chapter(chapter, list, store);
    }
    text
}

fn chapter(chapter: &Chapter, list: &List, store: &Store) -> String {
    let paper = chapter.paper;
    let mut text = format!(
        "\n## {}\n\n{}. *{}*\n\n",
        paper.title, paper.authors, paper.source
    );
    text += "| | the paper | here | verdict | by |\n| --- | --- | --- | --- | --- |\n";
    for item in &chapter.items {
        let cells = [
            format!("{}. {}", item.entry.place, item.entry.title),
            claim(item),
            found(item),
            format!("**{}**", item.badge()),
            by(item, list, store),
        ];
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    if !paper.drawings.is_empty() {
        let drawings = paper.drawings.iter();
        let drawings: Vec<String> = drawings
            .map(|drawing| format!("{} ({})", drawing.place, drawing.about))
            .collect();
        let _ = writeln!(text, "\nWithout a result: {}.", drawings.join(", "));
    }
    text
}

/// The claim, and the paper's own sentence below it.
fn claim(item: &Item) -> String {
    let entry = item.entry;
    let sentence = entry.sentence.iter();
    let lines = std::iter::once(&entry.claim).chain(sentence);
    lines.map(String::as_str).collect::<Vec<_>>().join("<br>")
}

fn found(item: &Item) -> String {
    let rows = item.rows.iter().filter_map(|row| {
        let ours = row.ours.as_ref().ok()?;
        Some(format!("{}: {ours}", row.value.label))
    });
    let found = match (&item.found, item.verdict) {
        (_, Verdict::NotMeasured) => String::new(),
        (Some(found), _) => found.clone(),
        (None, _) => rows.collect::<Vec<_>>().join("; "),
    };
    let why = item.why.clone().unwrap_or_default();
    [found, why]
        .iter()
        .filter(|text| !text.is_empty())
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Lists commands with their results, and tests.
fn by(item: &Item, list: &List, store: &Store) -> String {
    let measured = item.sources.iter().filter_map(|name| {
        let measurement = list.measurement(name)?;
        let command = format!("`{}`", measurement.told());
        Some(match store.get(name) {
            Some(stored) => format!(
                "{command} ([{}](../{}))",
                day(stored.started_unix_s()),
                stored.dir.display()
            ),
            None => format!("{command} ({})", store.why_missing(name)),
        })
    });
    let tests = item.entry.tests.iter().map(|test| format!("`{test}`"));
    measured.chain(tests).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replace(&text, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(replace(&new, "new\n").unwrap(), new);
        assert!(replace("a", "new").unwrap_err().contains("no line"));
    }
}
