//! Chooses the curves that are drawn in colour: at most eight. The other curves are grey.

/// The maximum number of curves in colour.
pub const MAX: usize = 8;

/// A colour as red, green and blue.
pub(crate) type Colour = (u8, u8, u8);

/// The colour of the curve of an unprotected server. No other curve has this colour.
pub const DANGER: Colour = (213, 94, 0);

/// The colours of all other highlighted curves. People with any kind of colour blindness can
/// distinguish these colours (Okabe and Ito, "Color Universal Design", 2008). The last colour is a
/// darker yellow than in that paper, because a light line is hard to see.
pub(crate) const COLOURS: [Colour; MAX - 1] = [
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (34, 34, 34),
    (153, 153, 51),
];

/// Names of curves of servers without overload control.
const UNPROTECTED: [&str; 2] = ["none", "unprotected"];

/// The highlighted curves. Each has a slot, the index of its colour in the palette.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Highlights {
    slots: Vec<(String, usize)>,
}

impl Highlights {
    /// Chooses the curves to highlight: at most [`MAX`], or one less if no curve is unprotected. If
    /// `samples` has more curves, this function prefers the curves named in `asked`, then the
    /// unprotected curve, then the curves with the best mean goodput at loads above the capacity. A
    /// sample is a curve's name, an offered load as a multiple of the capacity, and the goodput at
    /// this load as a part of the greatest possible goodput.
    pub fn choose(samples: &[(&str, f64, f64)], asked: &[String]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for (name, ..) in samples {
            if !names.contains(name) {
                names.push(name);
            }
        }
        let score = |name: &str| {
            let beyond = samples.iter().filter(|(of, load, _)| *of == name && *load > 1.0);
            let (sum, count) =
                beyond.fold((0.0, 0.0), |(sum, n), sample| (sum + sample.2, n + 1.0));
            sum / f64::max(count, 1.0)
        };
        let mut ranked: Vec<(u8, f64, &str)> = names
            .iter()
            .map(|name| match *name {
                name if asked.iter().any(|asked| asked == name) => (0, 0.0, name),
                name if UNPROTECTED.contains(&name) => (1, 0.0, name),
                name => (2, -score(name), name),
            })
            .collect();
        ranked.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        // Red is reserved for an unprotected curve. Without one, there is one colour less.
        let most = MAX - usize::from(!names.iter().any(|name| UNPROTECTED.contains(name)));
        ranked.truncate(most);
        let (mut danger, mut others) = (Some(0), 1..MAX);
        let mut slots = Vec::new();
        for name in names.into_iter().filter(|name| ranked.iter().any(|(.., of)| of == name)) {
            let red = if UNPROTECTED.contains(&name) { danger.take() } else { None };
            slots.extend(red.or_else(|| others.next()).map(|slot| (name.to_owned(), slot)));
        }
        Self { slots }
    }

    /// Returns the names of the highlighted curves with their slots, in the order in which the
    /// curves appeared in the samples.
    pub fn slots(&self) -> &[(String, usize)] {
        &self.slots
    }

    /// Returns the slot of the curve called `name`: 0 is [`DANGER`], n is the n-th of [`COLOURS`].
    /// Returns `None` for a grey curve.
    pub fn slot(&self, name: &str) -> Option<usize> {
        self.slots.iter().find(|(other, _)| other == name).map(|(_, slot)| *slot)
    }

    /// Returns the colour of the curve called `name`, or `None` for a grey curve.
    pub fn colour(&self, name: &str) -> Option<Colour> {
        palette().nth(self.slot(name)?)
    }
}

/// Returns the colour of each slot, in the order of the slots.
pub(crate) fn palette() -> impl Iterator<Item = Colour> {
    std::iter::once(DANGER).chain(COLOURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAWS: [&str; 10] = ["none", "a", "b", "c", "d", "e", "f", "g", "h", "i"];

    /// Returns samples in which a later law of [`LAWS`] is better above the capacity and worse
    /// below it.
    fn samples(laws: &[&'static str]) -> Vec<(&'static str, f64, f64)> {
        let score = |law: &str| LAWS.iter().position(|other| *other == law).unwrap() as f64;
        laws.iter()
            .flat_map(|law| [(*law, 0.5, -99.0 * score(law)), (*law, 2.0, score(law))])
            .collect()
    }

    fn slots(chosen: &Highlights) -> Vec<Option<usize>> {
        LAWS.iter().map(|law| chosen.slot(law)).collect()
    }

    #[test]
    fn up_to_eight_curves_are_all_highlighted_and_only_none_is_red() {
        let chosen = Highlights::choose(&samples(&["a", "none", "b"]), &[]);
        assert_eq!(slots(&chosen)[..4], [Some(0), Some(1), Some(2), None]);
        assert_eq!((chosen.colour("none"), chosen.colour("c")), (Some(DANGER), None));
    }

    #[test]
    fn of_more_than_eight_the_requested_ones_none_and_the_best_are_highlighted() {
        let chosen = Highlights::choose(&samples(&LAWS), &["a".to_owned()]);
        let [one, two] = [None; 2];
        let coloured = (2..8).map(Some);
        let expected: Vec<_> = [Some(0), Some(1), one, two].into_iter().chain(coloured).collect();
        assert_eq!(slots(&chosen), expected);
    }

    #[test]
    fn red_is_kept_for_a_curve_without_protection() {
        let chosen = Highlights::choose(&samples(&LAWS[1..9]), &[]);
        assert_eq!(
            slots(&chosen).iter().flatten().copied().collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6, 7]
        );
    }
}
