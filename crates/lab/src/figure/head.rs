//! Title and note of a figure, broken into lines that fit above its panels.

use plotters::style::{FontDesc, FontStyle};

use super::Figure;
use super::dots::DOTS;
use super::ink::family;

/// Sizes of letters, in units of the SVG.
pub(super) const TITLE: f64 = 21.0;
pub(super) const BODY: f64 = 15.0;

/// From the middle of a line to that of the next.
const TITLE_STEP: f64 = 26.0;
const BODY_STEP: f64 = 20.0;
/// The middle of the first line.
const FIRST: f64 = 26.0;
/// Below the middle of the last one.
const FOOT: f64 = 22.0;

/// What stands above the panels.
pub(super) struct Head {
    pub(super) title: Vec<Placed>,
    pub(super) note: Vec<Placed>,
}

/// A line of text and the height of its middle.
pub(super) struct Placed {
    pub(super) text: String,
    pub(super) y: f64,
}

impl Head {
    /// That of a figure, in lines no longer than `room`; a word that is longer has its own.
    pub(super) fn of(figure: &Figure, room: f64) -> Self {
        let placed = |lines: Vec<String>, first: f64, step: f64| -> Vec<Placed> {
            let place = |(i, text)| Placed { text, y: first + step * i as f64 };
            lines.into_iter().enumerate().map(place).collect()
        };
        let title = placed(broken(&figure.title, room, TITLE, true), FIRST, TITLE_STEP);
        let below = title.last().map_or(FIRST, |line| line.y) + TITLE_STEP;
        let note = placed(broken(&figure.note, room, BODY, false), below, BODY_STEP);
        Self { title, note }
    }

    /// How much of the page it takes.
    pub(super) fn height(&self) -> f64 {
        self.title.iter().chain(&self.note).map(|line| line.y).fold(FIRST, f64::max) + FOOT
    }
}

/// How letters of this size look to the drawing.
pub(super) fn font(size: f64, bold: bool) -> FontDesc<'static> {
    let style = if bold { FontStyle::Bold } else { FontStyle::Normal };
    FontDesc::from((family(), size * f64::from(DOTS), style))
}

/// The width of a line of text, in units of the SVG.
pub(super) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let (dots, _) = font(size, bold).box_size(text).expect("the fonts are in the program");
    f64::from(dots) / f64::from(DOTS)
}

/// The words of `text` in as few lines as have room for them; at least one.
fn broken(text: &str, room: f64, size: f64, bold: bool) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the beginning");
        let longer = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if line.is_empty() || width(&longer, size, bold) <= room {
            *line = longer;
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "A pool's headroom: what servers take, configured and learned: goodput";

    #[test]
    fn lines_have_room_and_keep_every_word() {
        for room in [150.0, 400.0, 560.0] {
            let lines = broken(LONG, room, TITLE, true);
            assert!(lines.iter().all(|line| width(line, TITLE, true) <= room), "{room}: {lines:?}");
            assert_eq!(lines.join(" "), LONG);
        }
        assert_eq!(broken(LONG, 1e6, TITLE, true), [LONG]);
        assert_eq!(broken("incomprehensibilities are long", 10.0, TITLE, true).len(), 3);
        assert_eq!(broken("", 10.0, TITLE, true), [""]);
    }

    #[test]
    fn a_longer_head_is_higher_and_its_note_below_its_title() {
        let figure = |title: &str| Figure {
            title: title.to_owned(),
            note: "of 3 runs".to_owned(),
            panels: Vec::new(),
        };
        let [short, long] = ["Goodput", LONG].map(|title| Head::of(&figure(title), 560.0));
        assert_eq!((short.title.len(), short.height()), (1, 74.0));
        assert!(long.title.len() > 1 && long.height() > short.height());
        assert!(long.note[0].y > long.title.last().unwrap().y);
    }
}
