//! A list of all laws by name, with their parameters. Configuration, documentation and the command
//! line are generated from this list.

use tidegate_world::Registry;
pub use tidegate_world::{Param, Range, Wrong};

pub use crate::law::{Entry, Values};
use crate::law::{
    Laws, acceptance, aro, asterisk, breakwater, cinnamon, clearwater, codel, cpu_threshold, dagor,
    deadline, envoy_gradient, gradient2, kamailio_feedback, none, occ, occupancy, ohta, pi,
    rate_abs, rate_occ, sired, tide, vegas, win_auto, win_cont, win_disc,
};

/// All laws. First comes the law that admits everything, then our own law, then the laws of the
/// papers, then the laws of current products.
pub static LAWS: Registry<Laws> = Registry::new(&[
    &none::ENTRY,
    &tide::ENTRY,
    &occupancy::ENTRY,
    &acceptance::ENTRY,
    &aro::ENTRY,
    &sired::ENTRY,
    &ohta::ENTRY,
    &occ::ENTRY,
    &pi::ENTRY,
    &win_disc::ENTRY,
    &win_cont::ENTRY,
    &win_auto::ENTRY,
    &rate_abs::ENTRY,
    &rate_occ::ENTRY,
    &codel::ENTRY,
    &gradient2::ENTRY,
    &breakwater::ENTRY,
    &dagor::ENTRY,
    &clearwater::ENTRY,
    &vegas::ENTRY,
    &envoy_gradient::ENTRY,
    &cinnamon::ENTRY,
    &kamailio_feedback::ENTRY,
    &cpu_threshold::ENTRY,
    &asterisk::ENTRY,
    &deadline::ENTRY,
]);

/// Returns the law with this name.
pub fn find(name: &str) -> Option<&'static Entry> {
    LAWS.find(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_law_is_complete_and_built_by_its_defaults() {
        LAWS.assert_complete();
        for entry in LAWS.iter() {
            let _ = (entry.build)(&entry.defaults());
        }
    }

    #[test]
    fn a_wrong_value_is_named() {
        let ohta = find("ohta").unwrap();
        let wrong = |given: &[(&str, f64)]| ohta.values(given).unwrap_err().to_string();
        assert_eq!(wrong(&[("hi", 1.0)]), "there is no parameter `hi`");
        assert_eq!(
            wrong(&[("hi_wm", 0.0)]),
            "hi_wm = 0, but it must be a whole number from 1 to 1000000"
        );
        assert_eq!(
            wrong(&[("hi_wm", f64::NAN)]),
            "hi_wm = NaN, but it must be a whole number from 1 to 1000000"
        );
        assert_eq!(
            wrong(&[("lo_wm", 0.5)]),
            "lo_wm = 0.5, but it must be a whole number from 0 to 1000000"
        );
        assert!(
            wrong(&[("hi_wm", 300.0)])
                .starts_with("the values do not fit together: they must have lo_wm < hi_wm")
        );
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
