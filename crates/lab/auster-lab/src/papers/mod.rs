//! `auster papers`: runs every figure, table and headline number of the papers, compares them with
//! the papers' claims, and writes one report.
//!
//! `list` has the claims and the places of our figures, `read` parses its file · `run` runs the
//! commands · `store` finds their results · `path` and `figure` read figures out of them · `judge`
//! compares both · `page` and `markdown` write the report. The report depends only on the list and
//! on the documents of results.

mod figure;
mod judge;
mod list;
mod markdown;
mod page;
mod path;
mod read;
mod run;
mod store;
mod template;

use std::path::{Path, PathBuf};

use cli::failure::Failure;
use cli::output::{note, say};
use judge::Book;
use list::List;
use store::Store;

#[derive(clap::Subcommand)]
pub enum Command {
    /// Run the measurements in the list of the papers, one after the other, and write the report
    #[command(after_help = "\
Example:
  auster papers run
  auster papers run --quick -o results/today
  auster papers run --only table-2,pso-sim/fig9 --long

make papers and make papers QUICK=1 do the first two. What a measurement finds is no failure: the
exit code is 1 when one could not be run or was left out.")]
    Run(run::Args),
    /// Write the report, and the table of docs/papers.md, from existing results
    #[command(after_help = "\
Example:
  auster papers report results -o report.html
  auster papers report results/2026-11-22-channel results/papers-2026-11-22
  auster papers report results --markdown docs/papers.md")]
    Report(ReportArgs),
}

#[derive(clap::Args)]
pub struct ReportArgs {
    /// Directories of results, or their parents; the newest result of each measurement counts
    #[arg(value_name = "DIR", required = true)]
    dirs: Vec<PathBuf>,
    /// The list of figures
    #[arg(long, value_name = "FILE", default_value = run::LIST)]
    list: PathBuf,
    /// File for the page [default: report.html in the first DIR, if --markdown is not given]
    #[arg(short = 'o', long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the table between two marks in this file with that of these results
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Reads a list of claims without running anything.
pub fn check(path: &Path) -> Result<(), Failure> {
    List::read(path).map(drop)
}

pub fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Report(args) => report(&args),
    }
}

fn report(args: &ReportArgs) -> Result<(), Failure> {
    let list = List::read(&args.list)?;
    let store = Store::open(&list, &args.dirs)?;
    if store.len() == 0 && store.runs.is_empty() {
        return Err(Failure::usage(format!(
            "there is no result of {} in {}",
            args.list.display(),
            args.dirs[0].display()
        )));
    }
    let book = Book::of(&list, &store);
    tell_doubts(&book, &store);
    if let Some(path) = &args.markdown {
        let text = std::fs::read_to_string(path).map_err(|e| Failure::file(path, e))?;
        let made = markdown::of(&list, &book, &store);
        let text = markdown::replace(&text, &made).map_err(|e| Failure::file(path, e))?;
        std::fs::write(path, text).map_err(|e| Failure::file(path, e))?;
        say!("{}", path.display());
    }
    let beside = || args.dirs[0].join(run::REPORT_FILE);
    let page = match (&args.out, &args.markdown) {
        (Some(path), _) => Some(path.clone()),
        (None, None) => Some(beside()),
        (None, Some(_)) => None,
    };
    if let Some(path) = page {
        write_page(&path, &list, &book, &store)?;
    }
    Ok(())
}

/// Writes the page, and prints a line with its counts.
fn write_page(path: &Path, list: &List, book: &Book, store: &Store) -> Result<(), Failure> {
    let page = page::of(list, book, store);
    std::fs::write(path, page).map_err(|e| Failure::file(path, e))?;
    say!("{}: {}", path.display(), book.counts_in_words());
    Ok(())
}

fn tell_doubts(book: &Book, store: &Store) {
    for doubt in store.doubts.iter().chain(&book.unresolved) {
        note!("auster: {doubt}");
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::papers::judge::Verdict;
    use crate::papers::list::{Which, anchor};

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
    }

    fn list() -> List {
        List::read(&root().join(run::LIST)).unwrap_or_else(|e| panic!("{}", e.message()))
    }

    fn stored(list: &List) -> Store {
        Store::open(list, &[root().join("results")]).unwrap_or_else(|e| panic!("{}", e.message()))
    }

    /// Every numbered item of each paper.
    const PLACES: [(&str, &[&str]); 5] = [
        (
            "pso",
            &[
                "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7a", "Fig. 7b",
                "Fig. 8a", "Fig. 8b", "Fig. 9a", "Fig. 9b", "Fig. 10", "Table 1",
            ],
        ),
        (
            "timeouts",
            &[
                "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4.1", "Fig. 4.2", "Fig. 4.3", "Fig. 5.1",
                "Fig. 5.2", "Fig. 5.3", "Fig. 6", "Fig. 7", "Fig. 8.1", "Fig. 8.2", "Fig. 8.3",
                "Table 1", "Table 2", "Table 3",
            ],
        ),
        ("tls", &["Fig. 1", "Fig. 2", "Table 1"]),
        (
            "qos",
            &[
                "Fig. 1", "Fig. 2", "Fig. 3", "Fig. 4", "Fig. 5", "Fig. 6", "Fig. 7", "Fig. 8",
                "Fig. 9", "Fig. 10", "Fig. 11", "Fig. 12", "Fig. 13", "Fig. 14", "Fig. 15",
                "Fig. 16", "Table 1", "Table 2",
            ],
        ),
        (
            "quicsdn",
            &[
                "Fig. 1",
                "Fig. 2",
                "Fig. 3",
                "Fig. 4",
                "Fig. 5",
                "Fig. 6",
                "Fig. 7",
                "Fig. 8",
                "Fig. 9",
                "Fig. 10",
                "Fig. 11",
                "Table 1",
                "Table 2",
                "Eqs. 1 to 5",
            ],
        ),
    ];

    #[test]
    fn every_figure_and_table_of_the_papers_is_in_the_report_once() {
        let list = list();
        let store = Store::default();
        let page = page::of(&list, &Book::of(&list, &store), &store);
        for (paper, places) in PLACES {
            for place in places {
                let id = format!("id=\"{}\"", anchor(paper, place));
                assert_eq!(page.matches(&id).count(), 1, "{paper}, {place}: {id}");
            }
        }
        assert_eq!(list.papers.len(), PLACES.len());
    }

    #[test]
    fn without_results_nothing_passes() {
        let list = list();
        let book = Book::of(&list, &Store::default());
        for item in book.items() {
            let is_measured = item.entry.values.iter().any(list::Value::is_judged);
            let right = match (item.entry.is_impossible, is_measured) {
                (true, _) => Verdict::Impossible,
                (_, true) => Verdict::NotMeasured,
                _ => continue,
            };
            assert_eq!(item.verdict, right, "{}", item.entry.place);
        }
    }

    #[test]
    fn what_the_list_names_is_there() {
        let list = list();
        for measurement in &list.measurements {
            let forms = Which::ALL.map(|which| measurement.form(which));
            for word in forms.into_iter().flatten().flat_map(|form| &form.words) {
                if word.starts_with("scenarios/") {
                    assert!(root().join(word).is_file(), "{word}");
                }
            }
        }
        let entries = list.papers.iter().flat_map(|paper| &paper.entries);
        for test in entries.flat_map(|entry| &entry.tests) {
            assert!(root().join(test).exists(), "{test}");
        }
    }

    /// A figure whose place is mistyped would be "not measured" for ever.
    #[test]
    fn every_figure_is_found_in_the_stored_results() {
        let list = list();
        let store = stored(&list);
        assert!(store.len() > 10, "{} results", store.len());
        let book = Book::of(&list, &store);
        assert_eq!(book.unresolved, Vec::<String>::new());
        assert_eq!(store.doubts, Vec::<String>::new());
        for item in book.items() {
            let plots = item.entry.plots.iter();
            let wanted = plots.filter(|plot| store.get(&plot.measurement).is_some());
            assert_eq!(item.plots.len(), wanted.count(), "{}: plots", item.anchor);
        }
    }

    #[test]
    fn whatever_is_not_as_the_paper_says_has_a_reason() {
        let list = list();
        let store = stored(&list);
        let book = Book::of(&list, &store);
        for item in book.items() {
            let needs = item.verdict.asks_why() && item.verdict != Verdict::Tested;
            let says = item.why.is_some() || !needs;
            assert!(says, "{} is {} and says no why", item.anchor, item.badge());
        }
    }

    #[test]
    fn an_hour_is_enough_and_nine_minutes() {
        let list = list();
        for which in Which::ALL {
            let forms = list.measurements.iter().filter_map(|m| m.form(which));
            let minutes: f64 = forms.map(|form| form.minutes).sum();
            let max = which.minutes_max().unwrap_or(f64::INFINITY);
            assert!(
                minutes > 0.0 && minutes <= max,
                "{}: {minutes} min",
                which.name()
            );
        }
    }

    #[test]
    fn the_table_in_the_docs_is_that_of_the_stored_results() {
        let list = list();
        // Paths as the command sees them from the root of the repository.
        let mut store = stored(&list);
        store.relative_to(root());
        let made = markdown::of(&list, &Book::of(&list, &store), &store);
        let path = root().join("docs/papers.md");
        let text = std::fs::read_to_string(&path).unwrap();
        let right = markdown::replace(&text, &made).unwrap();
        let (text, right): (BTreeSet<_>, BTreeSet<_>) =
            (text.lines().collect(), right.lines().collect());
        let differ: Vec<_> = right.symmetric_difference(&text).collect();
        assert!(
            differ.is_empty(),
            "run: auster papers report results --markdown docs/papers.md\n{differ:#?}"
        );
    }
}
