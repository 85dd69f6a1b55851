//! The cells of an experiment: every combination of its axes.

/// Every combination of the axes' values. The last axis changes first.
pub fn cells<T: Clone>(axes: &[(String, Vec<T>)]) -> Vec<Vec<(String, T)>> {
    let mut cells = vec![Vec::new()];
    for (name, values) in axes {
        let with = |cell: &Vec<(String, T)>, value: &T| {
            let mut cell = cell.clone();
            cell.push((name.clone(), value.clone()));
            cell
        };
        cells = cells
            .iter()
            .flat_map(|cell| values.iter().map(move |value| with(cell, value)))
            .collect();
    }
    cells
}

/// Each run's round over all cells: a machine that slows down slows every cell alike.
pub fn rounds(cells: usize, runs: u64) -> impl Iterator<Item = (u64, usize)> {
    (1..=runs).flat_map(move |run| (0..cells).map(move |cell| (run, cell)))
}

/// Whether a cell's name is meant by a pattern in which `*` stands for anything.
pub fn is_meant(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let mut starts = rest.char_indices().map(|(n, _)| n).chain([rest.len()]);
            starts.any(|n| is_meant(after, &rest[n..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_there_once_and_rounds_take_turns() {
        let axes = [("a".to_string(), vec![1, 2]), ("b".to_string(), vec![3, 4])];
        let values = |cell: &Vec<(String, i32)>| cell.iter().map(|(_, v)| *v).collect::<Vec<_>>();
        let found: Vec<Vec<i32>> = cells(&axes).iter().map(values).collect();
        assert_eq!(found, [[1, 3], [1, 4], [2, 3], [2, 4]]);
        assert_eq!(cells::<i32>(&[]), [[]], "no axes, one cell");
        let order: Vec<_> = rounds(2, 2).collect();
        assert_eq!(order, [(1, 0), (1, 1), (2, 0), (2, 1)]);
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, meant) in [
            ("*", "", true),
            ("kill=controller*", "kill=controller, down=1s", true),
            ("*down=1s", "kill=controller, down=1s", true),
            ("*relay*", "kill=controller", false),
            ("a*b*c", "aXbYc", true),
            ("a", "ab", false),
        ] {
            assert_eq!(is_meant(pattern, name), meant, "{pattern} {name}");
        }
    }
}
