//! Every law by name, with its parameters: configuration, documentation and the command
//! line are made from this list.

pub use tidegate_world::{Param, Wrong};

pub use crate::law::{Entry, Values};
use crate::law::{
    acceptance, aro, breakwater, clearwater, codel, dagor, gradient2, kamailio_feedback, none, occ,
    occupancy, ohta, pi, sired, tide,
};

/// All laws: none, our own, those of the papers, then those of current practice.
pub static LAWS: [&Entry; 15] = [
    &none::ENTRY,
    &tide::ENTRY,
    &occupancy::ENTRY,
    &acceptance::ENTRY,
    &aro::ENTRY,
    &sired::ENTRY,
    &ohta::ENTRY,
    &occ::ENTRY,
    &pi::ENTRY,
    &codel::ENTRY,
    &gradient2::ENTRY,
    &breakwater::ENTRY,
    &dagor::ENTRY,
    &clearwater::ENTRY,
    &kamailio_feedback::ENTRY,
];

/// Returns the law with this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    LAWS.into_iter().find(|entry| entry.name == name)
}

#[cfg(test)]
mod tests {
    use tidegate_world::PARAMS_MAX;

    use super::*;

    #[test]
    fn every_law_is_found_and_built_by_its_defaults() {
        for entry in LAWS {
            assert!(std::ptr::eq(find(entry.name).unwrap(), entry));
            assert!((entry.check)(&entry.defaults()).is_ok(), "{}", entry.name);
            let _ = (entry.build)(&entry.defaults());
        }
        assert!(find("nothing").is_none());
    }

    #[test]
    fn every_parameter_is_documented_and_its_default_within_its_bounds() {
        for entry in LAWS {
            assert!(entry.doc.ends_with('.') && !entry.summary.ends_with('.'), "{}", entry.name);
            assert!(entry.params.len() <= PARAMS_MAX);
            for (index, param) in entry.params.iter().enumerate() {
                let Param { name, doc, unit, default, min, max } = param;
                assert!((min..=max).contains(&default), "{} {name}", entry.name);
                assert!(doc.ends_with('.') && !unit.is_empty(), "{} {name}", entry.name);
                let twin = entry.params[..index].iter().any(|other| other.name == *name);
                assert!(!twin, "{} has two {name}", entry.name);
            }
        }
    }

    #[test]
    fn a_wrong_value_is_named() {
        let ohta = find("ohta").unwrap();
        let wrong = |given: &[(&str, f64)]| ohta.values(given).unwrap_err().to_string();
        assert_eq!(wrong(&[("hi", 1.0)]), "there is no parameter `hi`");
        assert_eq!(wrong(&[("hi_wm", 0.0)]), "hi_wm = 0, but it may be 1 to 1000000");
        assert_eq!(wrong(&[("hi_wm", f64::NAN)]), "hi_wm = NaN, but it may be 1 to 1000000");
        assert!(wrong(&[("hi_wm", 300.0)]).starts_with("the values must have lo_wm < hi_wm"));
        let values = ohta.values(&[("hi_wm", 500.0)]).unwrap();
        let each: Vec<_> = values.each().map(|(param, value)| (param.name, value)).collect();
        assert_eq!(each, [("buffer", 1000.0), ("hi_wm", 500.0), ("lo_wm", 400.0)]);
    }

    #[test]
    fn values_are_alike_if_law_and_numbers_are() {
        let [ohta, pi] = ["ohta", "pi"].map(|name| find(name).unwrap());
        assert_eq!(ohta.defaults(), ohta.values(&[("hi_wm", 800.0)]).unwrap());
        assert_ne!(ohta.defaults(), ohta.values(&[("hi_wm", 801.0)]).unwrap());
        assert_ne!(ohta.defaults(), pi.defaults());
        assert!(format!("{:?}", ohta.defaults()).contains("\"ohta\""));
    }
}
