//! Shell completions and manual pages, generated from the commands themselves.
//!
//! The help of every command ends in `Example:` and lines that run as they stand; a test here
//! reads each of them back through the parser.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;

use crate::Cli;
use crate::failure::Failure;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  auster completions bash > ~/.local/share/bash-completion/completions/auster")]
pub struct CompletionsArgs {
    /// The shell that shall complete
    shell: clap_complete::Shell,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  auster man ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Where the pages go; made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub fn completions(args: CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "auster", &mut script);
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(&script).and_then(|()| stdout.flush());
    written.map_err(crate::output::failure)
}

pub fn man(args: ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.dir).map_err(|e| Failure::file(&args.dir, e))?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(|e| Failure::file(&args.dir, e))
}

#[cfg(test)]
mod tests {
    use clap::{Command, Parser, ValueEnum};

    use super::*;

    /// The commands that do something, with their words: `["auster", "pki", "init"]`.
    fn leaves() -> Vec<(Vec<String>, Command)> {
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
        collect(vec![], &Cli::command(), &mut leaves);
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

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_says_what_it_is() {
        for (path, command) in leaves() {
            let path = path.join(" ");
            assert!(command.get_about().is_some(), "{path} has no description");
            for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
                // A value that is named after what it is needs no more.
                let says = arg.get_help().is_some() || arg.is_positional();
                assert!(says, "{path}: {} has no help", arg.get_id());
            }
        }
    }

    #[test]
    fn every_command_has_an_example_that_is_one_of_its_own() {
        for (path, command) in leaves() {
            let examples = examples(&command);
            let title = path.join(" ");
            assert!(
                !examples.is_empty(),
                "{title} --help has no 'Example:' with an auster line"
            );
            let own = examples.iter().any(|line| words(line).starts_with(&path));
            assert!(own, "{title} --help shows only other commands");
            for line in examples {
                if let Err(error) = Cli::try_parse_from(words(&line)) {
                    panic!("{title} --help shows '{line}', which does not run: {error}");
                }
            }
        }
    }

    #[test]
    fn every_command_has_a_manual_page_with_its_example() {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("made/man1");
        man(ManArgs { dir: into.clone() }).unwrap();
        for (path, command) in leaves() {
            let page = into.join(format!("{}.1", path.join("-")));
            let text = std::fs::read_to_string(&page)
                .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
            // A backslash at the end of a line is two in roff.
            let text = text.replace("\\\\\n", " ");
            for section in [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION"] {
                assert!(
                    text.contains(section),
                    "{} has no {section}",
                    page.display()
                );
            }
            for line in examples(&command) {
                // Roff has words of its own for quotes.
                let plain = line.split(['\'', '"']).next().unwrap_or_default();
                let plain = plain.trim_end().replace('-', "\\-");
                assert!(text.contains(&plain), "{} lacks '{plain}'", page.display());
            }
        }
        assert!(into.join("auster.1").is_file());
    }

    #[test]
    fn every_shell_has_completions_that_know_every_command() {
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "auster", &mut script);
            let script = String::from_utf8(script).unwrap();
            for (path, _) in leaves() {
                let name = path.last().unwrap();
                assert!(script.contains(name.as_str()), "{shell}: {name} is missing");
            }
        }
    }

    #[test]
    fn words_are_split_as_a_shell_would() {
        assert_eq!(words("a 'b c' d=\"e f\" | g"), ["a", "b c", "d=e f"]);
        assert_eq!(words("a b > c"), ["a", "b"]);
        assert_eq!(words("a b#c  # d"), ["a", "b#c"]);
    }
}
