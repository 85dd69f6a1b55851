//! SVG, element by element.

use std::fmt::Write;

/// Approximate width of a character, for text that must not overlap.
pub const TEXT_WIDTH: f64 = 6.9;

/// Colours for a light and a dark background, and the dash of lines, by series. Further series
/// repeat them.
const STYLES: [(&str, &str, &str); 8] = [
    ("#0072b2", "#56b4e9", "none"),
    ("#d55e00", "#ff8f45", "7 3"),
    ("#009e73", "#2fd0a2", "2 3"),
    ("#b8528f", "#e79cc8", "10 3 2 3"),
    ("#a87800", "#f0c440", "4 2"),
    ("#5b4bb0", "#b3a7f5", "12 4"),
    ("#4d4d4d", "#c4c4c4", "1 2"),
    ("#8b1a1a", "#ff9d9d", "6 2 1 2 1 2"),
];

const STYLE: &str = "
text { font-family: system-ui, 'DejaVu Sans', sans-serif; font-size: 12.5px; fill: var(--ink); }
.title { font-size: 15px; font-weight: 600; }
.tick { fill: var(--soft); font-size: 12px; }
.ground { fill: var(--ground); }
.grid { stroke: var(--grid); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1.2; }
.curve { fill: none; stroke: var(--c); stroke-width: 2; stroke-dasharray: var(--d); \
stroke-linejoin: round; }
.mark { fill: var(--c); stroke: var(--ground); stroke-width: 1; }
.bar { fill: var(--c); stroke: var(--ground); stroke-width: 0.5; }
.error { fill: none; stroke: var(--ink); stroke-width: 1.2; opacity: 0.75; }
";

#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture being drawn; `finish` takes its final height.
pub struct Canvas {
    title: String,
    width: f64,
    body: String,
}

impl Canvas {
    pub fn new(title: &str, width: f64) -> Canvas {
        let mut canvas = Canvas {
            title: escape(title),
            width,
            body: String::new(),
        };
        canvas.text("title", Anchor::Middle, (width / 2.0, 26.0), title);
        canvas
    }

    pub fn finish(&mut self, height: f64) -> String {
        let (width, title, body) = (self.width, &self.title, &self.body);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n<style>"
        );
        let theme = |dark: bool| {
            let ground = match dark {
                false => "--ink: #1b1b1f; --soft: #55555c; --grid: #e4e4e8; --ground: #ffffff;",
                true => "--ink: #ececf1; --soft: #a9a9b2; --grid: #34343c; --ground: #16161a;",
            };
            let colours = STYLES.iter().enumerate().map(|(n, (light, night, _))| {
                let colour = if dark { night } else { light };
                format!(" --c{n}: {colour};")
            });
            format!("svg {{ {ground}{} }}\n", colours.collect::<String>())
        };
        let _ = write!(svg, "\n{}", theme(false));
        let _ = write!(
            svg,
            "@media (prefers-color-scheme: dark) {{ {} }}",
            theme(true).trim_end()
        );
        for (n, (_, _, dash)) in STYLES.iter().enumerate() {
            let _ = write!(svg, "\n.s{n} {{ --c: var(--c{n}); --d: {dash}; }}");
        }
        let ground = "<rect class=\"ground\" width=\"100%\" height=\"100%\"/>";
        let _ = write!(svg, "{STYLE}</style>\n{ground}\n{body}</svg>\n");
        svg
    }

    pub fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.push(format!(
            "<text class=\"{class}\" text-anchor=\"{anchor}\" x=\"{x:.1}\" \
             y=\"{y:.1}\">{text}</text>"
        ));
    }

    /// Draws text that reads from bottom to top, centred on this point.
    pub fn upright(&mut self, (x, y): (f64, f64), text: &str) {
        let text = escape(text);
        self.push(format!(
            "<text class=\"label\" text-anchor=\"middle\" \
             transform=\"translate({x:.1} {y:.1}) rotate(-90)\">{text}</text>"
        ));
    }

    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// Opens a group for this series. Shapes belong to it until `close`.
    pub fn open_series(&mut self, n: usize) {
        self.push(format!("<g class=\"s{}\">", n % STYLES.len()));
    }

    pub fn close(&mut self) {
        self.push("</g>".to_string());
    }

    pub fn path(&mut self, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (n, (x, y)) in points.iter().enumerate() {
            let step = if n == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{step}{x:.1} {y:.1}");
        }
        self.push(format!("<path class=\"curve\" d=\"{path}\"/>"));
    }

    /// Draws the series' own marker shape.
    pub fn marker(&mut self, n: usize, (x, y): (f64, f64)) {
        let shape = match n % 4 {
            0 => "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
            1 => "m-3.8 -3.8h7.6v7.6h-7.6z",
            2 => "m0 -5l4.8 8.4h-9.6z",
            _ => "m0 -5.2l5.2 5.2l-5.2 5.2l-5.2 -5.2z",
        };
        self.push(format!(
            "<path class=\"mark\" d=\"M{x:.1} {y:.1}{shape}\"/>"
        ));
    }

    pub fn bar(&mut self, (x, y): (f64, f64), width: f64, height: f64) {
        self.push(format!(
            "<rect class=\"bar\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        ));
    }

    /// Draws a bar with caps, from one y to another.
    pub fn error_bar(&mut self, x: f64, from: f64, to: f64) {
        let left = x - 3.5;
        self.push(format!(
            "<path class=\"error\" d=\"M{x:.1} {from:.1}V{to:.1}M{left:.1} {from:.1}h7M{left:.1} \
             {to:.1}h7\"/>"
        ));
    }

    fn push(&mut self, element: String) {
        self.body += &element;
        self.body.push('\n');
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
