//! The report as one self-contained page. It has no script, and follows the reader's light or dark
//! theme.

use data_encoding::BASE64;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::papers::judge::{Book, Chapter, Item, Row, Verdict};
use crate::papers::list::{List, Paper, anchor};
use crate::papers::store::{Outcome, Store};
use cli::date::day;

const STYLE: &str = include_str!("page.css");

pub fn of(list: &List, book: &Book, store: &Store) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (list.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (header(list, book, store))
                main {
                    @for chapter in &book.chapters { (self::chapter(chapter, store)) }
                    (sources(list, store))
                }
                footer {
                    p {
                        "Every figure on this page was read out of a " code { "result.json" }
                        " named under "
                        a href="#sources" { "Where the figures are from" }
                        ", and every verdict follows from the rule beside it."
                    }
                }
            }
        }
    };
    page.into_string()
}

fn header(list: &List, book: &Book, store: &Store) -> Markup {
    let items = book.items().count();
    html! {
        header {
            h1 { (list.title) }
            p.lead {
                (items) " figures, tables and headline numbers of " (book.chapters.len())
                " papers, and what this "
                "system does about each. Where the paper's number can be repeated, the verdict \
                 says whether it "
                "was; where this system is far better, it says " em { "exceeded" } "."
            }
            @for run in &store.runs {
                p.run {
                    "Run of " (day(run.started_unix_s)) " (" (run.which) "): "
                    (of_run(run.measurements.iter().map(|ran| ran.outcome)))
                    ", " (format!("{:.0}", run.took_s / 60.0)) " min."
                }
            }
            ul.counts {
                @for (words, verdict, count) in book.counts() {
                    li { (badge(verdict, &words)) span.count { (count) } }
                }
            }
            nav aria-label="Contents" {
                @for chapter in &book.chapters {
                    section {
                        h2 { a href={ "#" (chapter.paper.id) } { (chapter.paper.title) } }
                        ol {
                            @for item in &chapter.items {
                                li {
                                    a href={ "#" (item.anchor) } class=(class(item.verdict))
                                        title=(item.badge()) {
                                        (mark(item.verdict)) (item.entry.place)
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// `11 ran, 1 failed`.
fn of_run(outcomes: impl Iterator<Item = Outcome>) -> String {
    let outcomes: Vec<Outcome> = outcomes.collect();
    let words = [
        (Outcome::Ran, "ran"),
        (Outcome::Failed, "failed"),
        (Outcome::LeftOut, "left out"),
        (Outcome::NotInThisRun, "not part of it"),
    ];
    let told = words.iter().filter_map(|(outcome, words)| {
        let count = outcomes.iter().filter(|found| *found == outcome).count();
        (count > 0).then(|| format!("{count} {words}"))
    });
    told.collect::<Vec<_>>().join(", ")
}

fn chapter(chapter: &Chapter, store: &Store) -> Markup {
    let Paper {
        id,
        title,
        authors,
        source,
        drawings,
        ..
    } = chapter.paper;
    html! {
        section.paper id=(id) {
            h2 { (title) }
            p.by { (authors) ". " cite { (source) } }
            @for item in &chapter.items { (self::item(item, store)) }
            @if !drawings.is_empty() {
                aside {
                    h3 { "Drawings, definitions and surroundings, which claim no result" }
                    dl {
                        @for drawing in drawings {
                            div id=(anchor(id, &drawing.place)) {
                                dt { (drawing.place) } " " dd { (drawing.about) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn item(item: &Item, store: &Store) -> Markup {
    let entry = item.entry;
    html! {
        article id=(item.anchor) {
            h3 {
                span.place { (entry.place) }
                span.title { (entry.title) }
                (badge(item.verdict, &item.badge()))
            }
            dl.words {
                div { dt { "The paper" } dd { (entry.claim) } }
                @if let Some(sentence) = &entry.sentence {
                    div { dt { "Its words" } dd { (sentence) } }
                }
                @let is_measured = item.verdict != Verdict::NotMeasured;
                @if let Some(found) = item.found.as_ref().filter(|_| is_measured) {
                    div { dt { "Here" } dd { (found) } }
                }
                @if let Some(why) = &item.why { div { dt { "Why" } dd { (why) } } }
            }
            @if !item.rows.is_empty() { (rows(&item.rows, entry.is_beyond)) }
            @if !item.plots.is_empty() {
                div.plots { @for svg in &item.plots { (picture(svg)) } }
            }
            (origin(item, store))
        }
    }
}

fn rows(rows: &[Row], is_beyond: bool) -> Markup {
    html! {
        div.scroll {
            table.figures {
                thead {
                    tr {
                        th.label { } th.number.paper-column { "paper" } th.number.here { "here" }
                        th.rule { "rule" } th.verdict { "verdict" }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            th scope="row" { (row.value.label) }
                            td.number data-label="paper" { (row.paper) }
                            @match &row.ours {
                                Ok(ours) => { td.number.ours data-label="here" { (ours) } }
                                Err(missing) => {
                                    td.number.missing data-label="here" { (missing) }
                                }
                            }
                            td.rule data-label="rule" { (row.rule) }
                            td {
                                @if let Some(verdict) = row.verdict {
                                    @match (verdict, is_beyond) {
                                        // Our own rule.
                                        (Verdict::Reproduced, true) => {
                                            (badge(Verdict::Beyond, "kept"))
                                        }
                                        _ => (badge(verdict, verdict.words())),
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn picture(svg: &str) -> Markup {
    let source = format!(
        "data:image/svg+xml;base64,{}",
        BASE64.encode(svg.as_bytes())
    );
    let title = svg.split_once("<title>");
    let title = title.and_then(|(_, rest)| rest.split_once("</title>"));
    let title = title.map_or_else(|| "plot".to_owned(), |(title, _)| unescape(title));
    html! {
        figure { img src=(source) alt=(title) loading="lazy"; }
    }
}

/// Decodes the entities that our plots escape.
fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}

/// The origin of an entry: commands and tests.
fn origin(item: &Item, store: &Store) -> Markup {
    html! {
        @if !item.sources.is_empty() || !item.entry.tests.is_empty() {
            ul.origin {
                @for name in &item.sources {
                    li {
                        a href={ "#" (anchor("source", name)) } { (name) }
                        @match store.get(name) {
                            Some(stored) => {
                                " " code { (stored.command()) } " "
                                span.when {
                                    (day(stored.started_unix_s()))
                                    @if stored.is_quick() { ", quick" }
                                    @if stored.is_interrupted() { ", interrupted" }
                                }
                            }
                            None => { " " span.when { (store.why_missing(name)) } }
                        }
                    }
                }
                @for test in &item.entry.tests { li { "test " code { (test) } } }
            }
        }
    }
}

fn sources(list: &List, store: &Store) -> Markup {
    html! {
        section.paper #sources {
            h2 { "Where the figures are from" }
            div.scroll {
                table.sources {
                    thead {
                        tr {
                            th { "measurement" } th { "command" } th { "when" } th { "kept in" }
                            th { "machine" }
                        }
                    }
                    tbody {
                        @for measurement in &list.measurements {
                            tr id=(anchor("source", &measurement.name)) {
                                th scope="row" { (measurement.name) }
                                @match store.get(&measurement.name) {
                                    Some(stored) => {
                                        td { code { (stored.command()) } }
                                        td.when { (day(stored.started_unix_s())) }
                                        td { code { (stored.dir.display()) } }
                                        td { (stored.machine()) }
                                    }
                                    None => {
                                        td { code { (measurement.told()) } }
                                        td.missing colspan="3" {
                                            (store.why_missing(&measurement.name))
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn badge(verdict: Verdict, words: &str) -> Markup {
    html! { span class={ "badge " (class(verdict)) } { (mark(verdict)) (words) } }
}

/// Returns the mark beside a verdict's colour, for readers who cannot see the colour.
fn mark(verdict: Verdict) -> Markup {
    let mark = match verdict {
        Verdict::Exceeded => "▲",
        Verdict::Reproduced => "✓",
        Verdict::Beyond => "+",
        Verdict::InPart => "◐",
        Verdict::Not => "✕",
        Verdict::Impossible => "∅",
        Verdict::Tested => "◆",
        Verdict::NotMeasured => "–",
    };
    html! { span.mark aria-hidden="true" { (mark) } }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Exceeded => "exceeded",
        Verdict::Reproduced => "reproduced",
        Verdict::Beyond => "beyond",
        Verdict::InPart => "in-part",
        Verdict::Not => "not",
        Verdict::Impossible => "impossible",
        Verdict::Tested => "tested",
        Verdict::NotMeasured => "unmeasured",
    }
}
