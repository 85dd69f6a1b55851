//! Rules of style that rustfmt and clippy do not check, for every Rust file of the repository.

use std::fs;
use std::path::{Path, PathBuf};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Folders with Rust code, and folders in them that have none of ours.
const FOLDERS: [&str; 2] = ["crates", "fuzz"];
const PASSED_OVER: [&str; 3] = ["target", "artifacts", "corpus"];

/// `max_width` of `rustfmt.toml`. rustfmt itself leaves long comments, literals and macros alone.
const COLUMNS_MAX: usize = 100;

/// Words that hide the subject of a doc comment. A continuation that begins so is wrapped anew.
const OPENINGS: [&str; 7] = ["Of", "As", "By", "That", "Who", "So", "What"];

/// Private words that must not name a type, module or file, and the field's words for them.
const NAMES: [(&str, &str); 5] = [
    ("bed", "network or setup"),
    ("coarse", "shared or aggregate"),
    ("ear", "listener or capture"),
    ("told", "report or notice"),
    ("way", "path, direction or method"),
];

/// Private words that no doc comment uses, and the field's words for them.
const WORDS: [(&str, &str); 6] = [
    ("bed", "network or setup"),
    ("ear", "listener or capture"),
    ("ears", "listeners or captures"),
    ("tell", "report, announce or distinguish"),
    ("tells", "reports, announces or distinguishes"),
    ("told", "reported, announced or distinguished"),
];

/// Libraries that are published by themselves.
const LIBRARIES: [&str; 4] = ["clock", "openflow", "ovsdb", "sched"];

/// All breaches of the rules in one file, in the form `path:line: what is wrong; what is right`.
fn breaches(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in path.split(['/', '.', '_']) {
        if let Some(right) = replacement(&NAMES, word) {
            found.push(format!("{path}: a file is named '{word}'; use {right}"));
        }
    }
    for (line, number) in text.lines().zip(1..) {
        let wrong = [
            too_wide(line),
            opening(line),
            dead_code(path, line),
            private_name(line),
            private_word(line),
        ];
        let wrong = wrong.into_iter().flatten();
        found.extend(wrong.map(|wrong| format!("{path}:{number}: {wrong}")));
    }
    found
}

fn too_wide(line: &str) -> Option<String> {
    let columns = line.chars().count();
    (columns > COLUMNS_MAX).then(|| {
        format!(
            "{columns} columns; wrap the comment, or continue the literal after a backslash, at \
             {COLUMNS_MAX} or before"
        )
    })
}

fn opening(line: &str) -> Option<String> {
    let first = doc(line)?.split(|c: char| !c.is_alphanumeric()).next()?;
    OPENINGS
        .contains(&first)
        .then(|| format!("a doc comment begins with '{first}'; begin with a noun phrase or a verb"))
}

/// Test programs that share a module use different parts of it, so the module says why it is
/// allowed. Nothing else may keep dead code.
fn dead_code(path: &str, line: &str) -> Option<String> {
    let line = line.trim_start();
    let attribute = line.strip_prefix("#![").or(line.strip_prefix("#["))?;
    let lints = attribute.split_once("allow(")?.1;
    let is_shared = path.contains("/tests/") || path.contains("/benches/");
    let is_excused = is_shared && lints.contains("reason = ");
    (lints.contains("dead_code") && !is_excused).then(|| {
        "dead code is allowed; delete it, or give the reason in a module that tests share"
            .to_owned()
    })
}

fn private_name(line: &str) -> Option<String> {
    let name = defined(line)?;
    let words = words(name);
    words.iter().find_map(|word| {
        let right = replacement(&NAMES, word)?;
        Some(format!("'{name}' is a name with '{word}'; use {right}"))
    })
}

fn private_word(line: &str) -> Option<String> {
    // Code in backticks is not prose.
    let prose = doc(line)?.split('`').step_by(2);
    let mut words = prose.flat_map(|part| part.split(|c: char| !c.is_alphanumeric()));
    words.find_map(|word| {
        let right = replacement(&WORDS, &word.to_lowercase())?;
        Some(format!("a doc comment says '{word}'; use {right}"))
    })
}

/// The text of a line of a doc comment.
fn doc(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or(line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

/// The type or module that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let (keyword, rest) = line.trim_start().split_once(' ')?;
    let is_definition = ["enum", "mod", "struct", "trait", "type", "union"].contains(&keyword);
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    is_definition.then(|| &rest[..end.unwrap_or(rest.len())])
}

/// The words of a name such as `OnTheWay` or `on_the_way`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c != '_', words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

fn replacement(list: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    let (_, right) = list.iter().find(|(private, _)| *private == word)?;
    Some(*right)
}

/// The Rust files in a folder, by their paths from the root.
fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !PASSED_OVER.contains(&name) {
            rust_files(&path, into);
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
}

#[test]
fn every_rust_file_is_tidy() {
    let mut files = Vec::new();
    for folder in FOLDERS {
        rust_files(&Path::new(ROOT).join(folder), &mut files);
    }
    files.sort();
    assert!(files.len() > 500, "only {} files are found", files.len());
    let mut found = Vec::new();
    for file in files {
        let path = file.strip_prefix(ROOT).unwrap().to_str().unwrap();
        found.extend(breaches(path, &fs::read_to_string(&file).unwrap()));
    }
    let count = found.len();
    assert!(found.is_empty(), "{count} breaches:\n{}", found.join("\n"));
}

#[test]
fn every_library_is_documented() {
    for name in LIBRARIES {
        let folder = Path::new(ROOT).join("crates").join(name);
        let code = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        let is_checked = ["#![warn(missing_docs)]", "#![deny(missing_docs)]"]
            .iter()
            .any(|lint| code.lines().any(|line| line == *lint));
        assert!(is_checked, "{name}: lib.rs needs #![warn(missing_docs)]");
        let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
        assert!(
            readme.starts_with("# ") && readme.contains("```rust"),
            "{name}: README.md needs a title and an example"
        );
    }
}

#[test]
fn each_rule_finds_its_breach_alone() {
    let wide = "x".repeat(COLUMNS_MAX + 1);
    let red = [
        ("a.rs", wide.as_str(), "a.rs:1: 101 columns; wrap"),
        (
            "a.rs",
            "\n    /// Of a port.",
            "a.rs:2: a doc comment begins with 'Of'",
        ),
        (
            "a.rs",
            "//! What is sent.",
            "a.rs:1: a doc comment begins with 'What'",
        ),
        (
            "a.rs",
            "#[allow(dead_code)]",
            "a.rs:1: dead code is allowed",
        ),
        (
            "x/src/a.rs",
            "#![allow(dead_code, reason = \"\")]",
            "a.rs:1: dead code is allowed",
        ),
        (
            "x/tests/a.rs",
            "#![allow(dead_code)]",
            "a.rs:1: dead code is allowed",
        ),
        (
            "a.rs",
            "#[cfg_attr(x, allow(unused, dead_code))]",
            "a.rs:1: dead code is allowed",
        ),
        (
            "a.rs",
            "pub(super) struct OnTheWay<T> {",
            "'OnTheWay' is a name with 'way'",
        ),
        (
            "a.rs",
            "mod test_bed;",
            "'test_bed' is a name with 'bed'; use network",
        ),
        (
            "a.rs",
            "/// Opens an ear.",
            "a.rs:1: a doc comment says 'ear'; use listener",
        ),
        (
            "x/way_out.rs",
            "",
            "x/way_out.rs: a file is named 'way'; use path",
        ),
    ];
    for (path, text, expected) in red {
        let found = breaches(path, text);
        let is_it = found.len() == 1 && found[0].contains(expected);
        assert!(is_it, "{path}: {text}: {found:?}, not {expected}");
    }
    let green = [
        ("a.rs", &wide[1..]),
        // As wide, in more bytes.
        ("a.rs", &"é".repeat(COLUMNS_MAX)),
        ("a.rs", "/// Offers a port: of that, by whom, so what."),
        ("a.rs", "// Of a port."),
        ("x/tests/a.rs", "#![allow(dead_code, reason = \"shared\")]"),
        ("a.rs", "#[expect(dead_code, reason = \"\")]"),
        ("a.rs", "let way = Highway::new(); // an ear"),
        ("a.rs", "/// Reads `ear` early."),
        ("highway/a.rs", "pub enum Bedrock {"),
    ];
    for (path, text) in green {
        assert_eq!(breaches(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}
