//! Expressions over figures: the columns of rows, and claims about them.
//!
//! Every value that is computed from a missing figure is missing too, so a claim about such a value
//! does not hold.

use std::fmt;

use measure::quantiles::nearest_rank;
use measure::stats::Summary;
use winnow::combinator::{alt, delimited, opt, peek, preceded, repeat, separated};
use winnow::error::EmptyError;
use winnow::prelude::*;
use winnow::token::{one_of, take_while};

use crate::engine::reader::suggestion;

/// One number, or one for each packet, pair or row. NaN marks a missing number.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    One(f64),
    Many(Vec<f64>),
}

/// The kind of an expression's result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// A comparison, rather than a number.
    pub truth: bool,
    pub many: bool,
}

/// Figures, each with its shape: a number, or several.
pub type Figures = &'static [(&'static str, Shape)];

pub const ONE: Shape = Shape {
    truth: false,
    many: false,
};
pub const MANY: Shape = Shape { many: true, ..ONE };

#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    root: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Number(f64),
    Name(String),
    /// With one argument, or several.
    Call(Function, Vec<Node>),
    Minus(Box<Node>),
    Not(Box<Node>),
    Pair(Operator, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Max,
    Min,
    Mean,
    Sum,
    P50,
    P99,
    Count,
    /// Half the width of the 95 % confidence interval of the mean.
    Ci95,
    /// The only function that applies to each value by itself.
    Abs,
}

const FUNCTIONS: [(&str, Function); 9] = [
    ("max", Function::Max),
    ("min", Function::Min),
    ("mean", Function::Mean),
    ("sum", Function::Sum),
    ("p50", Function::P50),
    ("p99", Function::P99),
    ("count", Function::Count),
    ("ci95", Function::Ci95),
    ("abs", Function::Abs),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Or,
    And,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
    Plus,
    Minus,
    Times,
    Divided,
}

const TEXT_BYTES_MAX: usize = 500;

impl Expression {
    pub fn parse(text: &str) -> Result<Expression, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("longer than {TEXT_BYTES_MAX} bytes"));
        }
        if text.matches('(').count() != text.matches(')').count() {
            return Err(format!("'{text}' does not have as many ( as )"));
        }
        let mut rest = text;
        let parsed = either(&mut rest);
        let root = match (parsed, rest.trim()) {
            (Ok(root), "") => root,
            (_, "") => return Err(format!("'{text}' ends too early")),
            (_, rest) if rest.starts_with('(') => {
                let known = FUNCTIONS.map(|(name, _)| name).join(", ");
                return Err(format!(
                    "'{text}' has no function before '{rest}'; known: {known}"
                ));
            }
            (_, rest) => return Err(format!("'{text}' cannot be read from '{rest}' on")),
        };
        let text = text.trim().to_string();
        Ok(Expression { text, root })
    }

    /// The result's shape, or the mistake, given that only these names exist.
    pub fn check(&self, names: &[(String, Shape)]) -> Result<Shape, String> {
        self.root.check(names)
    }

    /// The value, with the figures that `value_of` knows.
    pub fn value(&self, value_of: &dyn Fn(&str) -> Value) -> Value {
        self.root.value(value_of)
    }

    /// Whether a comparison holds. A comparison of several values must hold for each of them.
    pub fn holds(&self, value_of: &dyn Fn(&str) -> Value) -> bool {
        match self.value(value_of) {
            Value::One(truth) => truth == 1.0,
            Value::Many(truths) => !truths.is_empty() && truths.iter().all(|truth| *truth == 1.0),
        }
    }

    /// The figures that a claim compares, with their values.
    pub fn found(&self, value_of: &dyn Fn(&str) -> Value) -> String {
        let mut found = Vec::new();
        self.root.found(value_of, &mut found);
        found.dedup();
        found.join(", ")
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    fn check(&self, names: &[(String, Shape)]) -> Result<Shape, String> {
        let number = |node: &Node| match node.check(names)? {
            shape if shape.truth => Err("compares or calculates with a comparison".to_string()),
            shape => Ok(shape.many),
        };
        let truth = |node: &Node| match node.check(names)? {
            shape if !shape.truth => Err("and, or and not want comparisons beside them".into()),
            shape => Ok::<bool, String>(shape.many),
        };
        let (is_truth, many) = match self {
            Node::Number(_) => (false, false),
            Node::Name(name) => {
                let found = names.iter().find(|(known, _)| known == name);
                let known = names.iter().map(|(known, _)| known.as_str());
                let (_, shape) =
                    found.ok_or_else(|| format!("no {name}; {}", suggestion(name, known)))?;
                return Ok(*shape);
            }
            Node::Call(Function::Abs, of) => match &of[..] {
                [one] => (false, number(one)?),
                _ => return Err("abs(…) wants one value".to_string()),
            },
            Node::Call(function, of) => {
                let is_count = *function == Function::Count && of.iter().all(Node::is_truth);
                let mut any_many = of.len() > 1;
                for argument in of {
                    any_many |= if is_count {
                        truth(argument)?
                    } else {
                        number(argument)?
                    };
                }
                if !any_many {
                    let name = function.name();
                    return Err(format!("{name}(…) wants several values and gets one"));
                }
                (false, false)
            }
            Node::Minus(of) => (false, number(of)?),
            Node::Not(of) => (true, truth(of)?),
            Node::Pair(Operator::And | Operator::Or, a, b) => (true, truth(a)? | truth(b)?),
            Node::Pair(operator, a, b) => (operator.compares(), number(a)? | number(b)?),
        };
        Ok(Shape {
            truth: is_truth,
            many,
        })
    }

    fn is_truth(&self) -> bool {
        match self {
            Node::Not(_) => true,
            Node::Pair(operator, ..) => {
                operator.compares() || matches!(operator, Operator::And | Operator::Or)
            }
            _ => false,
        }
    }

    fn value(&self, value_of: &dyn Fn(&str) -> Value) -> Value {
        match self {
            Node::Number(number) => Value::One(*number),
            Node::Name(name) => value_of(name),
            Node::Call(Function::Abs, of) => each(of[0].value(value_of), f64::abs),
            Node::Call(function, of) => {
                let values = of.iter().flat_map(|argument| {
                    let values = match argument.value(value_of) {
                        Value::One(one) => vec![one],
                        Value::Many(many) => many,
                    };
                    // For a comparison, only the values for which it holds.
                    let counts = |value: &f64| !argument.is_truth() || *value == 1.0;
                    values.into_iter().filter(counts).collect::<Vec<f64>>()
                });
                Value::One(function.of(values.collect()))
            }
            Node::Minus(of) => each(of.value(value_of), |x| -x),
            Node::Not(of) => each(of.value(value_of), |x| 1.0 - x),
            Node::Pair(operator, a, b) => both(a.value(value_of), b.value(value_of), |a, b| {
                operator.of(a, b)
            }),
        }
    }

    fn found(&self, value_of: &dyn Fn(&str) -> Value, found: &mut Vec<String>) {
        match self {
            Node::Number(_) => {}
            Node::Name(name) => {
                let shown = match self.value(value_of) {
                    Value::One(one) => figure(one),
                    Value::Many(many) => many
                        .iter()
                        .map(|x| figure(*x))
                        .collect::<Vec<_>>()
                        .join(" "),
                };
                found.push(format!("{name} = {shown}"));
            }
            Node::Call(Function::Abs, of) => of[0].found(value_of, found),
            Node::Call(function, of) => {
                let Value::One(one) = self.value(value_of) else {
                    return;
                };
                let name = function.name();
                match &of[..] {
                    [Node::Name(of)] => found.push(format!("{name}({of}) = {}", figure(one))),
                    _ => found.push(format!("{name}(…) = {}", figure(one))),
                }
            }
            Node::Minus(of) | Node::Not(of) => of.found(value_of, found),
            Node::Pair(_, a, b) => {
                a.found(value_of, found);
                b.found(value_of, found);
            }
        }
    }
}

/// A figure for people: whole, or three digits after the point.
pub fn figure(number: f64) -> String {
    match number {
        missing if missing.is_nan() => "-".to_string(),
        whole if whole.fract() == 0.0 => format!("{whole:.0}"),
        other => format!("{other:.3}"),
    }
}

fn each(value: Value, of: impl Fn(f64) -> f64) -> Value {
    match value {
        Value::One(one) => Value::One(of(one)),
        Value::Many(many) => Value::Many(many.into_iter().map(of).collect()),
    }
}

/// Pairs the values of two lists; a single number is paired with every value of a list.
fn both(a: Value, b: Value, of: impl Fn(f64, f64) -> f64) -> Value {
    match (a, b) {
        (Value::One(a), Value::One(b)) => Value::One(of(a, b)),
        (Value::One(a), b) => each(b, |b| of(a, b)),
        (a, Value::One(b)) => each(a, |a| of(a, b)),
        (Value::Many(a), Value::Many(b)) => {
            let length = a.len().max(b.len());
            let at = |list: &[f64], n: usize| list.get(n).copied().unwrap_or(f64::NAN);
            Value::Many((0..length).map(|n| of(at(&a, n), at(&b, n))).collect())
        }
    }
}

impl Function {
    fn name(self) -> &'static str {
        let found = FUNCTIONS.iter().find(|(_, function)| *function == self);
        found.expect("all are in the table").0
    }

    fn of(self, mut values: Vec<f64>) -> f64 {
        if self == Function::Count {
            return values.iter().filter(|x| !x.is_nan()).count() as f64;
        }
        let sum: f64 = values.iter().sum();
        if values.is_empty() || sum.is_nan() {
            return if self == Function::Sum { sum } else { f64::NAN };
        }
        values.sort_by(f64::total_cmp);
        match self {
            Function::Max => values[values.len() - 1],
            Function::Min => values[0],
            Function::Mean => sum / values.len() as f64,
            Function::P50 => nearest_rank(&values, 0.5),
            Function::P99 => nearest_rank(&values, 0.99),
            Function::Ci95 => Summary::of(values).ci95,
            Function::Sum | Function::Count | Function::Abs => sum,
        }
    }
}

impl Operator {
    fn compares(self) -> bool {
        use Operator::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};
        matches!(
            self,
            Less | LessOrEqual | Greater | GreaterOrEqual | Equal | NotEqual
        )
    }

    /// Truths are 1 and 0. `false and missing` is false and `true or missing` is true.
    fn of(self, a: f64, b: f64) -> f64 {
        let truth = |holds: bool| match a.is_nan() || b.is_nan() {
            true => f64::NAN,
            false => f64::from(u8::from(holds)),
        };
        match self {
            Operator::And if a == 0.0 || b == 0.0 => 0.0,
            Operator::And => a * b,
            Operator::Or if a == 1.0 || b == 1.0 => 1.0,
            Operator::Or => a + b,
            Operator::Less => truth(a < b),
            Operator::LessOrEqual => truth(a <= b),
            Operator::Greater => truth(a > b),
            Operator::GreaterOrEqual => truth(a >= b),
            Operator::Equal => truth(a == b),
            Operator::NotEqual => truth(a != b),
            Operator::Plus => a + b,
            Operator::Minus => a - b,
            Operator::Times => a * b,
            Operator::Divided => a / b,
        }
    }
}

type Parsed<T> = Result<T, EmptyError>;

fn space(input: &mut &str) -> Parsed<()> {
    take_while(0.., char::is_whitespace)
        .void()
        .parse_next(input)
}

/// A word of the language, and not the beginning of a name.
fn keyword(word: &'static str) -> impl FnMut(&mut &str) -> Parsed<()> {
    move |input| {
        preceded(space, name)
            .verify(|found: &str| found == word)
            .void()
            .parse_next(input)
    }
}

fn sign(sign: &'static str) -> impl FnMut(&mut &str) -> Parsed<()> {
    move |input| preceded(space, sign).void().parse_next(input)
}

fn name<'i>(input: &mut &'i str) -> Parsed<&'i str> {
    (
        one_of(|c: char| c.is_ascii_alphabetic()),
        take_while(0.., |c: char| {
            c.is_ascii_alphanumeric() || c == '_' || c == '.'
        }),
    )
        .take()
        .parse_next(input)
}

/// Operands joined by operators of one precedence, from left to right.
fn chain(
    input: &mut &str,
    operand: fn(&mut &str) -> Parsed<Node>,
    operator: fn(&mut &str) -> Parsed<Operator>,
) -> Parsed<Node> {
    let first = operand(input)?;
    let more: Vec<(Operator, Node)> = repeat(0.., (operator, operand)).parse_next(input)?;
    let join = |left, (operator, right)| Node::Pair(operator, Box::new(left), Box::new(right));
    Ok(more.into_iter().fold(first, join))
}

fn either(input: &mut &str) -> Parsed<Node> {
    chain(input, all, |input| {
        keyword("or").value(Operator::Or).parse_next(input)
    })
}

fn all(input: &mut &str) -> Parsed<Node> {
    chain(input, negation, |input| {
        keyword("and").value(Operator::And).parse_next(input)
    })
}

fn negation(input: &mut &str) -> Parsed<Node> {
    let not = preceded(keyword("not"), negation).map(|of| Node::Not(Box::new(of)));
    alt((not, comparison)).parse_next(input)
}

fn comparison(input: &mut &str) -> Parsed<Node> {
    let left = sum(input)?;
    let operator = alt((
        sign("<=").value(Operator::LessOrEqual),
        sign(">=").value(Operator::GreaterOrEqual),
        sign("==").value(Operator::Equal),
        sign("!=").value(Operator::NotEqual),
        sign("<").value(Operator::Less),
        sign(">").value(Operator::Greater),
    ));
    let compared = opt((operator, sum)).parse_next(input)?;
    Ok(match compared {
        Some((operator, right)) => Node::Pair(operator, Box::new(left), Box::new(right)),
        None => left,
    })
}

fn sum(input: &mut &str) -> Parsed<Node> {
    chain(input, product, |input| {
        let plus = sign("+").value(Operator::Plus);
        alt((plus, sign("-").value(Operator::Minus))).parse_next(input)
    })
}

fn product(input: &mut &str) -> Parsed<Node> {
    chain(input, operand, |input| {
        let times = sign("*").value(Operator::Times);
        alt((times, sign("/").value(Operator::Divided))).parse_next(input)
    })
}

fn operand(input: &mut &str) -> Parsed<Node> {
    let number = preceded(
        space,
        take_while(1.., |c: char| c.is_ascii_digit() || c == '.'),
    )
    .verify_map(|digits: &str| digits.parse().ok())
    .map(Node::Number);
    let minus = preceded(sign("-"), operand).map(|of| Node::Minus(Box::new(of)));
    let call = (
        preceded(space, name).verify_map(function),
        delimited(sign("("), separated(1.., either, sign(",")), sign(")")),
    )
        .map(|(function, of)| Node::Call(function, of));
    let is_word = |found: &str| ["and", "or", "not"].contains(&found);
    // A column may have a function's name: without a parenthesis it is not a call.
    let figure = (preceded(space, name), peek(opt(sign("("))))
        .verify(move |(found, opens): &(&str, Option<()>)| {
            !is_word(found) && (opens.is_none() || function(found).is_none())
        })
        .map(|(found, _): (&str, _)| Node::Name(found.to_string()));
    let inner = delimited(sign("("), either, sign(")"));
    alt((number, minus, call, figure, inner)).parse_next(input)
}

fn function(name: &str) -> Option<Function> {
    let found = FUNCTIONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, function)| *function)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(name: &str) -> Value {
        match name {
            "lost" => Value::Many(vec![0.0, 3.0, 1.0, 0.0]),
            "sent" => Value::Many(vec![10.0, 20.0, 10.0, 10.0]),
            "late.ms" => Value::Many(vec![1.0, f64::NAN, 2.0, 3.0]),
            "limit" => Value::One(2.5),
            "p99" => Value::Many(vec![4.0, 6.0]),
            _ => Value::Many(Vec::new()),
        }
    }

    fn number(text: &str) -> f64 {
        match Expression::parse(text).unwrap().value(&figures) {
            Value::One(one) => one,
            Value::Many(many) => panic!("{text}: {many:?}"),
        }
    }

    fn holds(text: &str) -> bool {
        Expression::parse(text).unwrap().holds(&figures)
    }

    #[test]
    fn numbers_follow_the_usual_ranks() {
        for (text, expected) in [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("10 - 4 - 3", 3.0),
            ("8 / 4 / 2", 1.0),
            ("-2 * -3", 6.0),
            ("max(lost)", 3.0),
            ("min(lost) + limit", 2.5),
            ("mean(lost)", 1.0),
            ("sum(lost) / sum(sent)", 0.08),
            ("p50(sent)", 10.0),
            ("p99(sent)", 20.0),
            ("count(late.ms)", 3.0),
            ("max(lost / sent)", 0.15),
            ("max(0, limit - 3)", 0.0),
            ("max(lost, limit, 7)", 7.0),
            ("count(none)", 0.0),
            ("count(lost <= 1)", 3.0),
            ("count(late.ms < 3 and sent > 0)", 2.0),
            ("abs(limit - 3)", 0.5),
            ("max(abs(lost - 2))", 2.0),
            // Student's t of three degrees of freedom: 3.182 * 5 / sqrt(4).
            ("ci95(sent)", 7.955),
            ("sum(none)", 0.0),
            ("max(p99)", 6.0),
            ("mean(p99 + 1) - max (lost)", 3.0),
        ] {
            assert_eq!(number(text), expected, "{text}");
        }
        assert!(number("max(late.ms)").is_nan(), "one is missing");
        assert!(number("p50(none)").is_nan());
    }

    #[test]
    fn comparisons_hold_for_every_row_and_never_for_a_missing_figure() {
        for (text, expected) in [
            ("max(lost) <= 3", true),
            ("max(lost) < 3", false),
            ("lost < sent", true),
            ("lost == 0", false),
            ("lost <= 3 and sent >= 10", true),
            ("max(lost) == 9 or limit != 2", true),
            ("not lost > 3", true),
            ("not (max(lost) == 3 and limit > 2)", false),
            ("max(late.ms) < 100", false),
            ("not max(late.ms) < 100", false),
            ("late.ms < 100", false),
            ("limit > 0 or max(late.ms) < 1", true),
            ("none == 0", false),
            ("1 < 2", true),
        ] {
            assert_eq!(holds(text), expected, "{text}");
        }
    }

    #[test]
    fn a_mistake_says_where_it_is() {
        for (text, words) in [
            ("max(lost", "as many ( as )"),
            ("lost = 3", "'= 3'"),
            ("1 +", "'+'"),
            ("lost == ", "'=='"),
            ("", "ends too early"),
            ("avg(lost)", "'(lost)'"),
            ("lost and", "'and'"),
            ("1 2", "'2'"),
        ] {
            let problem = Expression::parse(text).unwrap_err();
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }

    #[test]
    fn shapes_are_checked_before_anything_runs() {
        let of = |truth, many| Shape { truth, many };
        let names = [("lost", of(false, true)), ("limit", of(false, false))];
        let names = names.map(|(name, shape)| (name.to_string(), shape));
        let check = |text: &str| Expression::parse(text).unwrap().check(&names);
        assert_eq!(check("max(lost) == 0"), Ok(of(true, false)));
        assert_eq!(check("lost == 0 and limit < 1"), Ok(of(true, true)));
        assert_eq!(check("lost * 2"), Ok(of(false, true)));
        assert_eq!(check("count(lost < 2) > 1"), Ok(of(true, false)));
        let refused = |text: &str| check(text).unwrap_err();
        assert!(refused("lots == 0").contains("did you mean lost?"));
        assert_eq!(check("abs(lost - 2)"), Ok(of(false, true)));
        assert!(refused("abs(lost, limit) < 2").contains("wants one value"));
        assert!(refused("max(limit)").contains("several values"));
        assert!(refused("max(lost < 2)").contains("calculates with a comparison"));
        assert!(refused("lost and limit").contains("want comparisons"));
        assert!(refused("(lost == 0) + 1").contains("calculates with a comparison"));
    }

    #[test]
    fn what_was_found_is_the_figures_that_were_compared() {
        let found = |text: &str| Expression::parse(text).unwrap().found(&figures);
        assert_eq!(found("max(lost) <= limit"), "max(lost) = 3, limit = 2.500");
        assert_eq!(found("late.ms < 5"), "late.ms = 1 - 2 3");
        assert_eq!(found("abs(mean(sent) - 12) < 1"), "mean(sent) = 12.500");
    }
}
