//! Parses text to a draft of a map: lines, keys and values, each with its position. Parsing does
//! not stop at the first mistake.

mod rule;
mod settings;

use super::draft::{self, Against, Draft};
use super::problem::{Code, Position, Problem};
use super::{PolicyMap, check};

/// Number of problems after which reading stops: whatever the text is, it is no policy map.
const PROBLEMS_MAX: usize = 1000;

pub(super) fn parse(
    text: &str,
    against: &Against,
) -> Result<(PolicyMap, Vec<Problem>), Vec<Problem>> {
    let mut reader = Reader::default();
    for (number, line) in text.lines().enumerate() {
        reader.line(number + 1, line);
        if reader.problems.len() >= PROBLEMS_MAX {
            break;
        }
    }
    let Reader {
        draft,
        mut problems,
        ..
    } = reader;
    let map = draft::assemble(&draft);
    check::check(&draft, &map, &mut problems);
    draft::check_against(&draft, &map, against, &mut problems);
    problems.sort_by_key(|problem| (problem.at, problem.code));
    problems.dedup();
    if problems.iter().any(|problem| problem.code.is_error()) {
        Err(problems)
    } else {
        Ok((map, problems))
    }
}

/// `key=value`, with the positions of both.
#[derive(Clone, Copy)]
struct Item<'a> {
    key: &'a str,
    value: &'a str,
    at: Position,
    value_at: Position,
}

#[derive(Default)]
struct Reader {
    draft: Draft,
    problems: Vec<Problem>,
    seen: Vec<&'static str>,
}

/// A line cut at its comment, with its number.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    text: &'a str,
}

impl<'a> Line<'a> {
    /// The place of `part`, which is a piece of this line.
    fn place(&self, part: &str) -> Position {
        let offset = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        let before = self.text.get(..offset).unwrap_or(self.text);
        Position {
            line: self.number,
            column: before.chars().count() + 1,
        }
    }
}

impl Reader {
    fn problem(
        &mut self,
        code: Code,
        at: Position,
        field: impl Into<String>,
        what: impl Into<String>,
        wanted: impl Into<String>,
    ) {
        let problem = Problem::new(code, at, field, what, wanted);
        self.problems.push(problem);
    }

    fn line(&mut self, number: usize, text: &str) {
        let line = Line { number, text };
        let content = text.trim();
        if content.is_empty() || content.starts_with('#') {
            return;
        }
        self.draft.end = line.place(content);
        let colon = content.find(':');
        let is_headless = match (colon, content.find('=')) {
            (Some(colon), Some(equals)) => equals < colon,
            (None, _) => true,
            _ => false,
        };
        if is_headless {
            return self.headless(line, content);
        }
        let (header, body) = content.split_at(colon.unwrap_or(0));
        let body = &body[1..];
        let body = body.split_once('#').map_or(body, |(body, _)| body).trim();
        let (word, id) = match header.split_once('#') {
            Some((word, id)) => (word.trim(), Some(id.trim())),
            None => (header.trim(), None),
        };
        let at = line.place(content);
        match (word.to_ascii_lowercase().as_str(), id) {
            ("rule", id) => self.rule(line, at, id, body),
            ("queue", Some(id)) => self.queue(line, at, id, body),
            ("profile", None) if self.once("Profile", at) => self.profile(line, body),
            ("generation", None) if self.once("Generation", at) => self.generation(line, body),
            ("default", None) if self.once("Default", at) => self.default_action(line, at, body),
            ("scheduler", None) if self.once("Scheduler", at) => self.scheduler(line, at, body),
            ("dscp", None) => self.dscp(line, body),
            ("profile" | "generation" | "default" | "scheduler", None) => {}
            _ => self.problem(
                Code::Syntax,
                at,
                clip(header),
                "no such line",
                "Rule #N:, Default:, Profile:, Generation:, Scheduler:, Queue #N: or Dscp:",
            ),
        }
    }

    fn headless(&mut self, line: Line<'_>, content: &str) {
        let body = content.split_once('#').map_or(content, |(body, _)| body);
        let at = line.place(content);
        if body.contains('=') {
            return self.rule(line, at, None, body.trim());
        }
        self.problem(
            Code::Syntax,
            at,
            clip(content),
            "neither a rule nor a setting",
            "Rule #N: traffic_type=…, action=queue_id:N",
        );
    }

    /// Reports whether this is the first line of its kind, and adds a problem if it is not.
    fn once(&mut self, word: &'static str, at: Position) -> bool {
        if self.seen.contains(&word) {
            self.problem(
                Code::Syntax,
                at,
                word,
                "said twice",
                format!("one {word}: line"),
            );
            return false;
        }
        self.seen.push(word);
        true
    }

    /// Reads the `key=value` items of a line, and reports pieces that are none.
    fn items<'a>(&mut self, line: Line<'_>, body: &'a str) -> (Vec<Item<'a>>, bool) {
        let mut is_whole = true;
        let mut items: Vec<Item<'a>> = Vec::new();
        for piece in body.split(',') {
            let piece = piece.trim();
            let at = line.place(piece);
            let Some((key, value)) = piece.split_once('=') else {
                is_whole = false;
                let what = if piece.is_empty() {
                    "nothing stands here"
                } else {
                    "no value"
                };
                self.problem(Code::Syntax, at, clip(piece), what, "key=value");
                continue;
            };
            let (key, value) = (key.trim(), value.trim());
            if value.is_empty() {
                is_whole = false;
                let wanted = format!("{}=…", clip(key));
                self.problem(Code::Syntax, at, clip(key), "no value", wanted);
                continue;
            }
            // Two actions are an error of their own.
            if key != "action" && items.iter().any(|item| item.key == key) {
                is_whole = false;
                let wanted = format!("{} once", clip(key));
                self.problem(Code::Syntax, at, clip(key), "given twice", wanted);
                continue;
            }
            items.push(Item {
                key,
                value,
                at,
                value_at: line.place(value),
            });
        }
        (items, is_whole)
    }
}

/// A piece of the text, short enough for a line.
fn clip(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    let mut shown: String = text.chars().take(CHARS_MAX).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
