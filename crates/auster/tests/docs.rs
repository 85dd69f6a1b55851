//! The manual: every relative link has a target, a guide links to every page, no page is long.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const WORDS_MAX: usize = 1_500;

/// The pages of `docs/`.
fn manual() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = fs::read_dir(Path::new(ROOT).join("docs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .collect();
    pages.sort();
    pages
}

/// The lines of a page that are not within a fenced block.
fn prose(text: &str) -> Vec<&str> {
    let mut fenced = false;
    text.lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .collect()
}

/// The anchors that GitHub gives to a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let mut title = line.trim_start_matches('#').trim().to_owned();
            while let Some((before, rest)) = title.split_once("](") {
                let after = rest.split_once(')').map_or("", |(_, after)| after);
                title = format!("{before}{after}");
            }
            let kept = title.to_lowercase();
            let kept = kept.chars().filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                _ => None,
            });
            kept.collect()
        })
        .collect()
}

/// The targets of a page's links that are in this repository.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.to_owned());
    targets
        .filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
        .collect()
}

/// The links of `page` that have no target.
fn dead(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let is_dead = |link: &String| {
        let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match file {
            "" => page.to_owned(),
            file => page.parent().unwrap().join(file),
        };
        if anchor.is_empty() {
            return !target.exists();
        }
        match fs::read_to_string(&target) {
            Ok(text) => !anchors(&text).contains(anchor),
            Err(_) => true,
        }
    };
    let name = page.file_name().unwrap().display().to_string();
    links(&text)
        .into_iter()
        .filter(is_dead)
        .map(|link| format!("{name}: {link}"))
        .collect()
}

#[test]
fn every_link_of_the_manual_leads_somewhere() {
    let others = ["README.md", "ARCHITECTURE.md", "DESIGN.md", "CHANGELOG.md"];
    let others = others.map(|name| Path::new(ROOT).join(name));
    let pages = manual();
    let found: Vec<String> = pages.iter().chain(&others).flat_map(|p| dead(p)).collect();
    assert!(
        found.is_empty(),
        "these lead nowhere:\n{}",
        found.join("\n")
    );
}

#[test]
fn no_page_is_longer_than_1500_words() {
    let long: Vec<String> = manual()
        .into_iter()
        .filter(|page| !page.ends_with("papers.md"))
        .filter_map(|page| {
            let words = fs::read_to_string(&page)
                .unwrap()
                .split_whitespace()
                .count();
            (words > WORDS_MAX).then(|| format!("{}: {words} words", page.display()))
        })
        .collect();
    assert!(long.is_empty(), "split these:\n{}", long.join("\n"));
}

#[test]
fn a_guide_leads_to_every_page() {
    let index = fs::read_to_string(Path::new(ROOT).join("docs/README.md")).unwrap();
    let mut reached: BTreeSet<String> = links(&index).into_iter().collect();
    for page in reached.clone() {
        if let Ok(text) = fs::read_to_string(Path::new(ROOT).join("docs").join(&page)) {
            let targets = links(&text).into_iter();
            reached.extend(targets.map(|link| link.split('#').next().unwrap().to_owned()));
        }
    }
    let missing: Vec<PathBuf> = manual()
        .into_iter()
        .filter(|page| !page.ends_with("README.md"))
        .filter(|page| !reached.contains(page.file_name().unwrap().to_str().unwrap()))
        .collect();
    assert!(missing.is_empty(), "no guide leads to {missing:?}");
}

#[test]
fn anchors_are_those_of_github() {
    let text =
        "# `auster run`: who, and why?\n```\n# no heading\n```\n## A [link](b.md#c) & more\n";
    let expected = ["auster-run-who-and-why", "a-link--more"];
    assert_eq!(anchors(text), expected.map(str::to_owned).into());
    assert_eq!(links(text), ["b.md#c"]);
}
