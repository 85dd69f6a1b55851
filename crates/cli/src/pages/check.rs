//! Checks of a program's help: every command has a description, and an `Example:` of its own whose
//! lines run as they stand. Each check panics with a message that names the problem.

use clap::{Command, ValueEnum};

/// Reads a command line, as the program's `try_parse_from` does.
pub type Parse = fn(Vec<String>) -> Result<(), clap::Error>;

/// The commands without subcommands, with their words: `["auster", "pki", "init"]`.
fn leaves(program: &Command) -> Vec<(Vec<String>, Command)> {
    fn collect(path: Vec<String>, command: &Command, leaves: &mut Vec<(Vec<String>, Command)>) {
        let path = [path, vec![command.get_name().to_string()]].concat();
        let mut inner = command
            .get_subcommands()
            .filter(|c| !c.is_hide_set())
            .peekable();
        if inner.peek().is_none() {
            return leaves.push((path, command.clone()));
        }
        inner.for_each(|command| collect(path.clone(), command, leaves));
    }
    let mut leaves = Vec::new();
    collect(vec![], program, &mut leaves);
    assert!(leaves.len() > 8, "{} commands", leaves.len());
    leaves
}

fn help(command: &Command) -> String {
    command.clone().render_long_help().to_string()
}

/// The command lines under `Example:`, with continued lines joined.
fn examples(command: &Command) -> Vec<String> {
    let help = help(command).replace("\\\n", " ");
    let example = help.split_once("\nExample").map_or("", |(_, rest)| rest);
    let lines = example.lines().map(str::trim);
    lines
        .filter(|line| line.starts_with("auster "))
        .map(String::from)
        .collect()
}

/// The words of a command line, up to a pipe, redirection, comment or `&`.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![];
    let (mut word, mut quote) = (None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            (None, '|' | '>' | '#' | '&') if word.is_none() => return words,
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Checks everything below.
pub fn all(program: &Command, parse: Parse) {
    program.clone().debug_assert();
    descriptions(program);
    examples_run(program, parse);
    manual_pages(program);
    completions(program);
}

fn descriptions(program: &Command) {
    for (path, command) in leaves(program) {
        let path = path.join(" ");
        assert!(command.get_about().is_some(), "{path} has no description");
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            // A value whose name describes it needs no help.
            let says = arg.get_help().is_some() || arg.is_positional();
            assert!(says, "{path}: {} has no help", arg.get_id());
        }
    }
}

fn examples_run(program: &Command, parse: Parse) {
    for (path, command) in leaves(program) {
        let examples = examples(&command);
        let title = path.join(" ");
        assert!(
            !examples.is_empty(),
            "{title} --help has no 'Example:' with an auster line"
        );
        let own = examples.iter().any(|line| words(line).starts_with(&path));
        assert!(own, "{title} --help shows only other commands");
        for line in examples {
            // A line may show how another program's commands lead to this one.
            if let (true, Err(error)) = (words(&line).starts_with(&path), parse(words(&line))) {
                panic!("{title} --help shows '{line}', which does not run: {error}");
            }
        }
    }
}

fn manual_pages(program: &Command) {
    for (path, command) in leaves(program) {
        let name = path.join("-");
        let mut page = Vec::new();
        let man = clap_mangen::Man::new(command.clone());
        man.render(&mut page)
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        // A backslash at the end of a line is two in roff.
        let text = String::from_utf8_lossy(&page).replace("\\\\\n", " ");
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
            assert!(text.contains(section), "{name} has no {section}");
        }
        for line in examples(&command) {
            // Roff has its own notation for quotes.
            let plain = line.split(['\'', '"']).next().unwrap_or_default();
            let plain = plain.trim_end().replace('-', "\\-");
            assert!(text.contains(&plain), "{name} lacks '{plain}'");
        }
    }
}

fn completions(program: &Command) {
    for shell in clap_complete::Shell::value_variants() {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut program.clone(), "auster", &mut script);
        let script = String::from_utf8_lossy(&script);
        for (path, _) in leaves(program) {
            let is_known = path
                .last()
                .is_some_and(|name| script.contains(name.as_str()));
            assert!(is_known, "{shell}: {path:?} is missing");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_would() {
        assert_eq!(words("a 'b c' d=\"e f\" | g"), ["a", "b c", "d=e f"]);
        assert_eq!(words("a b > c"), ["a", "b"]);
        assert_eq!(words("a b#c  # d"), ["a", "b#c"]);
    }
}
