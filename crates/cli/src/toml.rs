//! Mistakes in a TOML file, as an operator reads them.

/// The error in one line, with the number of the line in which it occurs.
pub fn toml_problem(text: &str, error: &toml::de::Error) -> String {
    let newlines = |span: std::ops::Range<usize>| text[..span.start].matches('\n').count();
    let line = error.span().map_or(0, newlines) + 1;
    format!("line {line}: {}", error.message().trim().replace('\n', " "))
}
