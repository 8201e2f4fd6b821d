//! Overload control parameters in a Via, as text and as values of `control::feedback`.

use std::time::Duration;

use arrayvec::ArrayVec;
use tidegate_control::feedback::{Algorithm, Algorithms, Feedback, Sequence, VALIDITY_DEFAULT};
use tidegate_sip::{Oc, OcLoad, OcSequence, OverloadControl};

/// Maximum length in bytes of the parameters that carry feedback: their names, 10 digits each for
/// the value and the validity, and 18 characters for the sequence.
pub(crate) const FEEDBACK_MAX: usize = 128;

/// Maximum length in bytes of the parameters that offer overload control: all algorithms, and the
/// largest value of our load.
pub(crate) const OFFER_MAX: usize = 64;

/// The overload control that our Via in a request offers to the next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum OverloadOffer {
    /// No overload control.
    #[default]
    None,
    /// The algorithms that we support.
    Algorithms,
    /// The algorithms that we support, and the load that we would send without restriction, in
    /// tenths of a call a second.
    WithLoad(u32),
}

impl OverloadOffer {
    /// Returns the offer to a server that gives feedback. `original_cps` is the load that we would
    /// send without restriction, in calls a second, or `None` if the server has not asked for it.
    pub(crate) fn with(original_cps: Option<f64>) -> Self {
        original_cps.map_or(Self::Algorithms, |cps| Self::WithLoad((10.0 * cps).round() as u32))
    }

    /// Returns the offer as parameters of a Via. `algorithms` is the text that offers algorithms
    /// ([`offer_of`]).
    pub(crate) fn text(self, algorithms: &str) -> ArrayVec<u8, OFFER_MAX> {
        let mut text = ArrayVec::new();
        let written = match self {
            Self::None => Ok(()),
            Self::Algorithms => text.try_extend_from_slice(algorithms.as_bytes()).map_err(drop),
            Self::WithLoad(tenths) => text
                .try_extend_from_slice(algorithms.as_bytes())
                .map_err(drop)
                .and_then(|()| OcLoad::TenthsCps(tenths).write(&mut text).map_err(drop)),
        };
        debug_assert!(written.is_ok(), "there is room for all algorithms and the longest load");
        text
    }
}

/// Returns the Via parameters that offer these algorithms, or an empty text if there are none.
///
/// RFC 7339 §4.2: "A SIP client MUST support the loss-based overload control scheme and MUST insert
/// at least the token "loss" as one of the "oc-algo" parameter values."
///
/// RFC 7339 §4.3: "This parameter MAY be inserted by the SIP server in a response; it MUST NOT be
/// inserted by the SIP client in a request."
///
/// RFC 7339 §4.4: "This parameter MUST be inserted by the SIP server in a response; it MUST NOT be
/// inserted by the SIP client in a request."
///
/// RFC 7339 §5.2: "The "oc-validity" and "oc-seq" Via header parameters are only defined in SIP
/// responses and MUST NOT be used in SIP requests."
///
/// RFC 7415 §3.3: "Support of rate-based control MUST be indicated by clients including the token
/// "rate" in the "oc-algo" list."
pub(crate) fn offer_of(algorithms: Algorithms) -> Box<str> {
    if algorithms.is_empty() {
        return Box::default();
    }
    let names: Vec<&str> = algorithms.iter().map(Algorithm::name).collect();
    format!(";oc;oc-algo=\"{}\"", names.join(",")).into()
}

/// Returns the algorithms that a client offers and that we know, or `None` if there are none.
///
/// RFC 7339 §5.1: "This list MUST include "loss" and MAY include other algorithm names".
pub(crate) fn offered(via: &OverloadControl<'_>) -> Option<Algorithms> {
    if via.oc != Some(Oc::Offered) {
        return None;
    }
    let known = |name: &[u8]| Algorithm::by_name(std::str::from_utf8(name).ok()?);
    let algorithms: Algorithms = via.algorithms().filter_map(known).collect();
    (!algorithms.is_empty()).then_some(algorithms)
}

/// Returns the load that a client claims it would send without restriction, in calls a second.
pub(crate) fn original_cps(via: &OverloadControl<'_>) -> Option<f64> {
    match via.load {
        Some(OcLoad::TenthsCps(tenths)) => Some(f64::from(tenths) / 10.0),
        _ => None,
    }
}

/// Returns whether a server asks for the load that we would send without restriction.
pub(crate) fn wants_load(via: &OverloadControl<'_>) -> bool {
    via.load == Some(OcLoad::Wanted)
}

/// Returns whether a server has written a value into our Via. Then the server gives feedback, even
/// if the value cannot be used. A server without overload control only copies our offer, which has
/// no value.
pub(crate) fn has_value(via: &OverloadControl<'_>) -> bool {
    matches!(via.oc, Some(Oc::Value(_))) || feedback(via).is_some()
}

/// Returns the feedback that a server has written into our Via, or `None` if the feedback is
/// incomplete or does not have exactly one algorithm that we know.
///
/// RFC 7339 §4.3: "A SIP client MUST discard a non-zero value of the "oc-validity" parameter if the
/// client receives it in a response without the corresponding "oc" parameter being present as
/// well." §4.4: the server MUST insert "oc-seq". Without it a late value could not be distinguished
/// from a new one.
pub(crate) fn feedback(via: &OverloadControl<'_>) -> Option<Feedback> {
    let mut names = via.algorithms();
    let (Some(name), None) = (names.next(), names.next()) else { return None };
    let algorithm = Algorithm::by_name(std::str::from_utf8(name).ok()?)?;
    let validity = via.validity_ms.map(|ms| Duration::from_millis(ms.into()));
    let value = match via.oc {
        Some(Oc::Value(value)) => value,
        _ if validity == Some(Duration::ZERO) => 0,
        _ => return None,
    };
    let OcSequence { seconds, fraction } = via.sequence?;
    // RFC 7339 §4.3: "If the client receives a response with the "oc" and "oc-algo" parameters
    // suitably filled in, but no "oc-validity" parameter, the SIP client should behave as if it had
    // received "oc-validity=500"."
    let validity = validity.unwrap_or(VALIDITY_DEFAULT);
    Some(Feedback { algorithm, value, validity, sequence: Sequence { seconds, fraction } })
}

/// Returns feedback as parameters for the Via of a response. These are the four parameters of RFC
/// 7339, and our own parameter `oc-tgload` if `wants_load` is true.
///
/// RFC 7339 §4.3: "A non-zero value for the "oc-validity" parameter MUST only be present in
/// conjunction with an "oc" parameter."
///
/// RFC 7339 §5.1: "It MUST put the chosen algorithm as the sole parameter value in the "oc-algo"
/// parameter of the response it sends to the client."
///
/// RFC 7415 §3.3: "Selection of rate-based control MUST be indicated by servers by setting
/// "oc-algo" to the token "rate"."
pub(crate) fn text_of(feedback: &Feedback, wants_load: bool) -> ArrayVec<u8, FEEDBACK_MAX> {
    let Feedback { algorithm, value, validity, sequence } = *feedback;
    let sequence = OcSequence { seconds: sequence.seconds, fraction: sequence.fraction };
    let validity_ms = u32::try_from(validity.as_millis()).unwrap_or(u32::MAX);
    let mut text = ArrayVec::new();
    let mut written =
        OverloadControl::write(value, algorithm.name(), validity_ms, sequence, &mut text);
    if wants_load {
        written = written.and_then(|()| OcLoad::Wanted.write(&mut text));
    }
    debug_assert!(written.is_ok(), "there is room for the longest numbers");
    text
}
