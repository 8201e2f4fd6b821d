use super::overload::{Facet, Heading, Series, goodput, retransmissions, set_up_delay};
use super::*;
use resvg::tiny_skia::Pixmap;

/// Returns two panels with curves like those of servers under overload.
fn facets() -> Vec<Facet> {
    let loads = [0.5, 1.0, 1.5, 2.0, 3.0, 5.0];
    let series = |name: &str, medians: [f64; 6]| Series {
        name: name.to_owned(),
        points: std::iter::zip(loads, medians)
            .map(|(x, y)| Point { x, min: y * 0.95, median: y, max: y * 1.04 })
            .collect(),
    };
    let facet = |title: &str, factor: f64| Facet {
        title: title.to_owned(),
        series: vec![
            series("none", [0.5, 0.9, 0.1, 0.02, 0.0, 0.0]),
            series("occupancy", [0.5, 0.95, 0.7 * factor, 0.5 * factor, 0.3, 0.1]),
            series("ohta", [0.5, 0.93, 0.5, 0.4 * factor, 0.2, 0.1 * factor]),
            series("pi", [0.5, 0.97, 0.92, 0.9 * factor, 0.8 * factor, 0.6 * factor]),
        ],
    };
    vec![facet("decided at service, one FIFO", 0.6), facet("decided on arrival, by class", 1.0)]
}

fn heading() -> Heading {
    Heading {
        title: "Goodput under overload".to_owned(),
        note: "Median, minimum and maximum of 3 runs · r/s = 0.08".to_owned(),
        highlights: highlights(&facets()),
    }
}

fn highlights(facets: &[Facet]) -> Highlights {
    let series = facets.iter().flat_map(|facet| &facet.series);
    let samples: Vec<_> = series
        .flat_map(|series| series.points.iter().map(|p| (&*series.name, p.x, p.median)))
        .collect();
    Highlights::choose(&samples, &[])
}

fn pixels(figure: &Figure) -> Pixmap {
    Pixmap::decode_png(&figure.png()).unwrap()
}

fn bound(_: usize, m: f64) -> f64 {
    if m < 1.0 { m } else { ((1.0 - m * 0.08) / 0.92).clamp(0.0, 1.0) }
}

/// Writes the figure to the folder in the environment variable `TIDEGATE_LOOK`, if that is set.
fn look(name: &str, figure: &Figure) {
    if let Some(folder) = std::env::var_os("TIDEGATE_LOOK") {
        let folder = std::path::PathBuf::from(folder);
        std::fs::write(folder.join(format!("{name}.svg")), figure.svg()).unwrap();
        std::fs::write(folder.join(format!("{name}.png")), figure.png()).unwrap();
    }
}

#[test]
fn a_goodput_figure_names_every_line_in_every_panel() {
    let figure = goodput(heading(), &facets(), bound);
    look("goodput", &figure);
    let svg = figure.svg();
    for name in ["none", "occupancy", "ohta", "pi", "bound"] {
        let labels = svg.lines().filter(|line| *line == name).count();
        assert_eq!(labels, 2, "{name}");
    }
    assert!(
        svg.starts_with("<svg width=\"1163\" height=\"484\" viewBox=\"0 0 4652 1936\""),
        "{svg}"
    );
    assert_eq!(svg, figure.svg(), "the same figure, the same bytes");
}

#[test]
fn curves_that_are_not_highlighted_are_grey_and_named_in_the_note() {
    let mut facets = facets();
    for facet in &mut facets {
        for number in 0..10 {
            let points = facet.series[1].points.iter();
            let lower = |p: &Point| Point::exact(p.x, p.median * (0.95 - 0.09 * f64::from(number)));
            let name = format!("law {number}");
            let points = points.map(lower).collect();
            facet.series.push(Series { name, points });
        }
    }
    let figure = goodput(Heading { highlights: highlights(&facets), ..heading() }, &facets, bound);
    look("many", &figure);
    assert_eq!(figure.highlights.slots().len(), highlight::MAX);
    let svg = figure.svg();
    for name in ["none", "pi", "law 0"] {
        assert_eq!(svg.lines().filter(|line| *line == name).count(), 2, "{name}");
    }
    assert!(!svg.lines().any(|line| line == "law 9"));
    assert!(
        figure.note.ends_with("· grey: law 4, law 5, law 6, law 7, law 8, law 9"),
        "{}",
        figure.note
    );
}

#[test]
fn a_png_is_an_image_of_twice_the_size_and_the_unprotected_curve_is_red() {
    let image = pixels(&goodput(heading(), &facets()[..1], bound));
    assert_eq!((image.width(), image.height()), (1204, 968));
    let red = image.pixels().iter().filter(|p| (p.red(), p.green(), p.blue()) == highlight::DANGER);
    let red = red.count();
    assert!(red > 500, "{red} pixels");
}

#[test]
fn values_that_round_to_zero_are_shown_as_zero() {
    let mut facets = facets();
    for point in facets.iter_mut().flat_map(|f| &mut f.series).flat_map(|s| &mut s.points) {
        *point = Point::exact(point.x, 0.0);
    }
    let figure = retransmissions(heading(), &facets);
    look("zeros", &figure);
    assert_eq!(figure.svg().matches("0 at every point").count(), 2);
    assert!(!retransmissions(heading(), &self::facets()).svg().contains("0 at every point"));
}

#[test]
fn a_title_that_is_longer_than_its_panel_is_not_cut_off() {
    let title = "Headroom of a pool: what its servers take, configured and learned: goodput";
    let note = "Median, minimum and maximum of 3 runs of each point, of which none was repeated";
    let heading = || Heading { title: title.to_owned(), note: note.to_owned(), ..self::heading() };
    let figure = goodput(heading(), &facets()[..1], bound);
    look("long-title", &figure);
    // The image has twice as many pixels as units. The right margin is empty.
    let image = pixels(&figure);
    let margin = image.pixels().chunks(image.width() as usize).flat_map(|row| &row[1162..]);
    assert_eq!(margin.filter(|pixel| pixel.green() < 255).count(), 0);
    // The whole text is written, on several lines.
    let svg = figure.svg();
    let text: Vec<&str> = svg.lines().filter(|line| !line.starts_with('<')).collect();
    assert!(text.join(" ").starts_with(&format!("{title} {note}")), "{text:?}");
    assert_eq!(goodput(heading(), &facets(), bound).svg().matches(title).count(), 1, "it has room");
}

#[test]
fn a_delay_axis_covers_what_is_measured_and_the_deadline() {
    let mut facets = facets();
    for series in facets.iter_mut().flat_map(|facet| &mut facet.series) {
        for point in &mut series.points {
            let delay = 0.004 * (1.1 - point.median).max(0.01).powi(-1) * point.x.powi(3);
            *point = Point { x: point.x, min: delay * 0.7, median: delay, max: delay * 1.6 };
        }
    }
    let figure = set_up_delay(heading(), &facets, &[0.5]);
    look("delay", &figure);
    let range = &figure.panels[0].y.range;
    let points = facets.iter().flat_map(|f| &f.series).flat_map(|s| &s.points);
    for point in points {
        assert!(range.contains(&point.min) && range.contains(&point.max), "{point:?}");
    }
    assert!(range.contains(&0.5));
    assert!(figure.svg().lines().any(|line| line == "10 ms"));
}

#[test]
fn a_ratio_axis_has_a_few_round_ticks() {
    let mut facets = facets();
    for point in facets.iter_mut().flat_map(|f| &mut f.series).flat_map(|s| &mut s.points) {
        *point = Point::exact(point.x, (point.x - point.median).max(0.0) * 1.3);
    }
    let figure = retransmissions(heading(), &facets);
    look("retransmissions", &figure);
    let ticks: Vec<&str> = figure.panels[0].y.ticks.iter().map(|(_, text)| &**text).collect();
    assert_eq!(ticks, ["0", "2", "4", "6", "8"]);
}

#[test]
fn a_goodput_axis_has_few_ticks_however_far_it_goes() {
    for (highest, ticks) in [(0.9, 6), (1.5, 8), (5.0, 6), (1e9, 6)] {
        let mut facet = facets().remove(0);
        facet.series[0].points[0].max = highest;
        let figure = goodput(heading(), &[facet], bound);
        assert_eq!(figure.panels[0].y.ticks.len(), ticks, "{highest}");
    }
}

#[test]
fn figures_without_any_data_are_drawn_too() {
    let figure = goodput(heading(), &[], bound);
    assert!(figure.panels.is_empty() && figure.svg().contains("Goodput under overload"));
    let empty = [Facet { title: "empty".to_owned(), series: vec![Series::default()] }];
    assert!(goodput(heading(), &empty, bound).svg().contains("empty"));
    assert!(set_up_delay(heading(), &empty, &[0.5]).svg().contains("deadline"));
    assert!(retransmissions(heading(), &empty).svg().contains("0.1"));
}

#[test]
fn a_load_axis_has_a_tick_for_each_load_and_a_length() {
    let ticks = |loads: &[f64]| {
        let points = loads.iter().map(|load| Point::exact(*load, 0.5)).collect();
        let series = vec![Series { name: "pi".to_owned(), points }];
        let figure = goodput(heading(), &[Facet { title: String::new(), series }], bound);
        let axis = figure.panels[0].x.clone();
        let texts: Vec<String> = axis.ticks.into_iter().map(|(_, text)| text).collect();
        (texts.join(" "), *axis.range.end())
    };
    // The sum is 0.30000000000000004.
    assert_eq!(ticks(&[0.3, 0.1 + 0.2, 1.5]), ("0.3 1.5".to_owned(), 1.5));
    assert_eq!(ticks(&[0.0]), ("0".to_owned(), 1.0));
}

#[test]
fn a_logarithmic_axis_places_ratios_evenly() {
    let axis = Axis {
        label: String::new(),
        range: 0.001..=10.0,
        scale: Scale::Logarithmic,
        ticks: Vec::new(),
    };
    for (value, place) in [(0.001, 0.0), (0.01, 0.25), (1.0, 0.75), (100.0, 1.0), (0.0, 0.0)] {
        assert!((axis.position(value) - place).abs() < 1e-9, "{value}");
    }
}
