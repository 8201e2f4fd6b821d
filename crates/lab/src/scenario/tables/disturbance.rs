//! `[disturbance]`: disturbances of the servers under test that are unknown to overload control.

use std::time::Duration;

use tidegate_server::config::schema::{Choice, Real, real_millis, real_seconds};
use tidegate_server::config_table;

use crate::disturbance::Spread;

config_table! {
    /// Disturbances of the servers under test, such as costs that vary or a processor that pauses.
    /// The laws get no information about them. They exist only in simulated time. The capacity and
    /// the load are computed without them.
    pub(in crate::scenario) static DISTURBANCE: "[disturbance]" 0..=1, None, []
        => DisturbanceTable, DisturbanceDraft;

    /// The distribution of the cost of each message around its mean. `distribution` in `[emulate]`
    /// has more distributions, and also works on real sockets. Only one of the two keys may be
    /// given. `hyperexponential`: the variance is ten times the square of the mean, and one message
    /// in twenty takes ten times the mean on average. `pareto`: α is 1.5, so the most expensive
    /// hundredth of the messages takes a fifth of the time. The costs of `pareto` are cut at a
    /// hundred times the mean.
    costs: Spread = Choice {
        words: &[
            ("constant", Spread::Constant),
            ("exponential", Spread::Exponential),
            ("hyperexponential", Spread::Hyperexponential),
            ("pareto", Spread::Pareto),
        ],
        reserved: &[],
    }, Default("\"constant\"");
    /// Factor by which all costs are multiplied from `dearer_at_s` on.
    dearer: f64 = Real(0.01..=100.0), Default("1");
    /// Seconds after the start of the load at which all costs change by the factor `dearer`.
    dearer_at("dearer_at_s"): Duration = real_seconds(0.0..=3600.0), Default("0");
    /// Milliseconds of each period (`stolen_every_ms`) in which the server does not have the
    /// processor, because of other programs or of a quota.
    stolen("stolen_ms"): Duration = real_millis(0.0..=60_000.0), Default("0");
    /// The period of `stolen_ms`, in milliseconds. It must be longer than `stolen_ms`.
    stolen_every("stolen_every_ms"): Duration = real_millis(0.001..=60_000.0), Default("100");
    /// The server reads the occupancy of the processor multiplied by this factor. A law infers the
    /// capacity from this occupancy, so the inferred capacity is wrong too. An occupancy above 1 is
    /// read as 1.
    misread: f64 = Real(0.01..=100.0), Default("1");
}
