//! The cells of an experiment: every combination of its axes.

/// The values of an axis, for cells whose earlier axes match a pattern. The first pattern that
/// matches a cell counts; a cell that matches none lacks the axis.
pub type Axis<T> = Vec<(String, Vec<T>)>;

/// Every combination of the axes' values. The last axis changes first.
pub fn cells<T: Clone>(
    axes: &[(String, Axis<T>)],
    name: impl Fn(&[(String, T)]) -> String,
) -> Vec<Vec<(String, T)>> {
    let mut cells = vec![Vec::new()];
    for (axis, lists) in axes {
        let with = |cell: &Vec<(String, T)>| {
            let own = name(cell);
            let list = lists.iter().find(|(pattern, _)| is_meant(pattern, &own));
            let Some((_, values)) = list else {
                return vec![cell.clone()];
            };
            let each = values.iter().map(|value| {
                let mut cell = cell.clone();
                cell.push((axis.clone(), value.clone()));
                cell
            });
            each.collect()
        };
        cells = cells.iter().flat_map(with).collect();
    }
    cells
}

/// Orders the runs in rounds, each with one run of every cell that has runs left. A machine that
/// slows down thus slows every cell alike.
pub fn rounds(runs: &[u64]) -> impl Iterator<Item = (u64, usize)> {
    let most = runs.iter().copied().max().unwrap_or_default();
    let has = |run: u64, cell: &usize| run <= runs[*cell];
    (1..=most).flat_map(move |run| {
        let cells = (0..runs.len()).filter(move |cell| has(run, cell));
        cells.map(move |cell| (run, cell))
    })
}

/// Whether a cell's name matches a pattern, in which `*` stands for any text.
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
        let axis = |name: &str, lists: &[(&str, &[i32])]| {
            let lists = lists
                .iter()
                .map(|(of, list)| (of.to_string(), list.to_vec()));
            (name.to_string(), lists.collect::<Axis<i32>>())
        };
        let values = |cell: &[(String, i32)]| cell.iter().map(|(_, v)| *v).collect::<Vec<_>>();
        let name = |cell: &[(String, i32)]| format!("{:?}", values(cell));
        let found = |axes: &[_]| {
            let cells = cells(axes, name).into_iter();
            cells.map(|cell| values(&cell)).collect::<Vec<_>>()
        };
        let axes = [axis("a", &[("*", &[1, 2])]), axis("b", &[("*", &[3, 4])])];
        assert_eq!(found(&axes), [[1, 3], [1, 4], [2, 3], [2, 4]]);
        assert_eq!(found(&[]), [Vec::<i32>::new()], "no axes, one cell");
        let some = [axes[0].clone(), axis("b", &[("[2]", &[3, 4])])];
        assert_eq!(found(&some), [vec![1], vec![2, 3], vec![2, 4]]);
        let order: Vec<_> = rounds(&[2, 1, 3]).collect();
        assert_eq!(order, [(1, 0), (1, 1), (1, 2), (2, 0), (2, 2), (3, 2)]);
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
