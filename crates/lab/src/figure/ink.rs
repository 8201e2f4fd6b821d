//! Colours and letters.

use std::sync::Once;

use plotters::style::{FontFamily, FontStyle, RGBColor, register_font};

use super::{Line, Panel, Stroke};

/// What viewers of the SVG look for: the first has the widths that were reckoned with, the
/// others are no wider.
pub(super) const FONTS: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

/// Text and axes.
pub(super) const BLACK: RGBColor = RGBColor(34, 34, 34);
/// Secondary text and calculated lines.
pub(super) const GREY: RGBColor = RGBColor(102, 102, 102);
/// The grid.
pub(super) const PALE: RGBColor = RGBColor(226, 226, 226);

/// Told apart by the colour-blind (Okabe and Ito, "Color Universal Design", 2008), without
/// the yellow that is too light for a line.
pub(crate) const PALETTE: [(u8, u8, u8); 6] =
    [(213, 94, 0), (230, 159, 0), (0, 158, 115), (0, 114, 178), (204, 121, 167), (86, 180, 233)];

/// The colour of `line`: measured ones in the order in which their names first appear.
pub(super) fn colour(line: &Line, panels: &[Panel]) -> RGBColor {
    if line.stroke == Stroke::Reference {
        return GREY;
    }
    let mut names: Vec<&str> = Vec::new();
    for other in panels.iter().flat_map(|panel| &panel.lines) {
        if other.stroke != Stroke::Reference && !names.contains(&&*other.name) {
            names.push(&other.name);
        }
    }
    let place = names.iter().position(|name| *name == line.name).unwrap_or(0);
    let (red, green, blue) = PALETTE[place % PALETTE.len()];
    RGBColor(red, green, blue)
}

/// The family that texts are set in, known to the rasteriser.
pub(super) fn family() -> FontFamily<'static> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        let faces: [(FontStyle, &[u8]); 2] = [
            (FontStyle::Normal, include_bytes!("font/DejaVuSans.ttf")),
            (FontStyle::Bold, include_bytes!("font/DejaVuSans-Bold.ttf")),
        ];
        for (style, bytes) in faces {
            assert!(register_font(FONTS, style, bytes).is_ok(), "the fonts are in the program");
        }
    });
    FontFamily::Name(FONTS)
}
