//! From a drawing to bytes.

use plotters::backend::{BitMapBackend, SVGBackend};
use plotters::drawing::IntoDrawingArea;

use super::Figure;
use super::dots::DOTS;
use super::draw::{Medium, draw, size};

/// Drawn dots to a pixel of the PNG, in each direction.
const DOTS_PER_PIXEL: usize = 2;

/// The figure as an SVG document.
pub(super) fn svg(figure: &Figure) -> String {
    let (width, height) = size(figure);
    let (dots_x, dots_y) = (width * DOTS as u32, height * DOTS as u32);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (dots_x, dots_y)).into_drawing_area();
        draw(figure, Medium::Svg, &area).expect("a string takes everything");
        area.present().expect("a string takes everything");
    }
    let in_dots = format!("width=\"{dots_x}\" height=\"{dots_y}\"");
    text.replacen(&in_dots, &format!("width=\"{width}\" height=\"{height}\""), 1)
}

/// The figure as a PNG image.
pub(super) fn png(figure: &Figure) -> Vec<u8> {
    let (width, height) = size(figure);
    let dots = (width as usize * DOTS as usize, height as usize * DOTS as usize);
    let mut fine = vec![0; dots.0 * dots.1 * 3];
    {
        let area = BitMapBackend::with_buffer(&mut fine, (dots.0 as u32, dots.1 as u32))
            .into_drawing_area();
        draw(figure, Medium::Bitmap, &area).expect("the fonts are in the program");
        area.present().expect("a buffer takes everything");
    }
    let (smooth, width, height) = smooth(&fine, dots);
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("a vector takes everything");
    writer.write_image_data(&smooth).expect("as many bytes as the header says");
    writer.finish().expect("a vector takes everything");
    file
}

/// Each pixel the mean of its dots.
fn smooth(fine: &[u8], (dots_x, dots_y): (usize, usize)) -> (Vec<u8>, u32, u32) {
    let (width, height) = (dots_x / DOTS_PER_PIXEL, dots_y / DOTS_PER_PIXEL);
    let mut out = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let dots = (0..DOTS_PER_PIXEL * DOTS_PER_PIXEL).map(|dot| {
                    let row = y * DOTS_PER_PIXEL + dot / DOTS_PER_PIXEL;
                    let column = x * DOTS_PER_PIXEL + dot % DOTS_PER_PIXEL;
                    usize::from(fine[(row * dots_x + column) * 3 + channel])
                });
                let mean = dots.sum::<usize>() / (DOTS_PER_PIXEL * DOTS_PER_PIXEL);
                out.push(u8::try_from(mean).expect("a mean of bytes"));
            }
        }
    }
    (out, width as u32, height as u32)
}
