//! Sentences with `{name}` for a value: `{name}` is the figure, `{name:±}` the figure with its
//! spread.

/// Returns the names in a text.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    pieces(text).filter_map(|piece| match piece {
        Piece::Name(name, _) => Some(name),
        Piece::Text(_) => None,
    })
}

/// Replaces every name in the text; `value` is given a name and whether its spread is wanted.
pub fn fill(text: &str, value: impl Fn(&str, bool) -> String) -> String {
    let filled = pieces(text).map(|piece| match piece {
        Piece::Text(text) => text.to_owned(),
        Piece::Name(name, has_spread) => value(name, has_spread),
    });
    filled.collect()
}

enum Piece<'t> {
    Text(&'t str),
    Name(&'t str, bool),
}

fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let named = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
        if let Some((name, after)) = named {
            rest = after;
            return Some(match name.strip_suffix(":±") {
                Some(name) => Piece::Name(name, true),
                None => Piece::Name(name, false),
            });
        }
        // A brace that is never closed is text.
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let begin = rest[first..].find('{').map_or(rest.len(), |at| at + first);
        let (text, after) = rest.split_at(begin);
        rest = after;
        Some(Piece::Text(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced() {
        let text = "p99 {a} ms, {b:±} with queues, {c";
        let words =
            |name: &str, spread: bool| format!("<{name}{}>", if spread { " ±" } else { "" });
        assert_eq!(names(text).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(fill(text, words), "p99 <a> ms, <b ±> with queues, {c");
        assert_eq!(fill("µ {a}{b}", words), "µ <a><b>");
        assert_eq!(fill("", words), "");
    }
}
