//! Measures the CPU time of a server, for [`costs`](crate::costs), [`overhead`](crate::overhead)
//! and [`calibrate`](crate::calibrate). Contains the measured servers, the messages that these
//! servers get ([`messages`], [`script`]), and the CPU clock of a thread, which other programs on
//! the processor do not affect.
//!
//! A server is measured without sockets ([`alone`]), or on a loopback socket ([`loopback`]).
//! [`subject`] keeps the overload-control law of the server in one state.

pub(crate) mod alone;
mod clock;
pub(crate) mod loopback;
pub(crate) mod messages;
pub(crate) mod script;
pub(crate) mod subject;

use std::net::SocketAddr;
use std::path::Path;

use tidegate_proxy::{Mode, Secret};
use tidegate_server::assembly::{Assembly, Server};
use tidegate_server::config::Config;
use tidegate_world::{Pool, Seed};

use crate::spread::Spread;
pub(crate) use clock::thread_ns;

/// Parameters of the law `occupancy` with which it admits one message in ten thousand when the
/// processor is busy.
pub(crate) const REJECTS: &str = "k = 2, w = 1, rho_targ = 0.01, f_min = 0.0001";

/// Creates a server that listens on `local`, forwards to `backend` and has `overload` as its
/// configuration table `[overload]`.
pub(crate) fn server(
    [local, backend]: [SocketAddr; 2],
    mode: Mode,
    overload: &str,
    seed: Seed,
    pool: Pool,
) -> Server {
    let mode = mode.name();
    let text = format!(
        "[[listen]]\ntransport = \"udp\"\naddress = \"{local}\"\n\
         [[pool]]\nname = \"app\"\nmode = \"{mode}\"\n\
         [[pool.backend]]\nuri = \"sip:{backend}\"\n\
         [overload]\n{overload}"
    );
    let config = Config::parse(Path::new("measured"), text.as_bytes());
    let config = config.unwrap_or_else(|wrong| panic!("it is written here: {wrong}"));
    Assembly::new(&config, &Secret::of([0; 32]), vec![local], seed).part(0).core(pool)
}

/// Returns the median CPU time in ns that the measurement shows for `times` batches without
/// messages. This is the cost of the measurement itself.
fn empty_ns(times: usize, batch: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    let empty: Result<Vec<f64>, String> = std::iter::repeat_with(batch).take(times).collect();
    Ok(Spread::of(empty?).map_or(0.0, |all| all.median))
}

/// Implements the functions of `Core` that take an input, for a type that contains an inner core.
/// Each function calls `$self.$pass` with the time and a closure that gives the input to the inner
/// core. The macro does not implement `offer`, `serve` and `on_load`. If `Core` gets a new input,
/// add it to this macro.
macro_rules! pass_inputs {
    ($self:ident.$pass:ident) => {
        $crate::measure::pass_inputs! {
            $self.$pass:
            handle_timeout();
            on_failed(failure: tidegate_world::Failure);
            on_transmit(transmit: tidegate_world::Transmit);
            on_connected(flow: tidegate_world::Flow);
            on_closed(id: tidegate_world::ConnectionId, cause: tidegate_world::CloseCause);
            on_writable(id: tidegate_world::ConnectionId);
            on_command(command: &[u8]);
            on_answer(id: tidegate_world::QueryId, answer: tidegate_world::QueryAnswer);
            on_drain();
        }
    };
    ($self:ident.$pass:ident: $($name:ident($($given:ident: $type:ty),*);)+) => {
        $(fn $name(&mut $self, now: tidegate_world::Timestamp $(, $given: $type)*) {
            $self.$pass(now, |core, now| core.$name(now $(, $given)*));
        })+
    };
}
pub(crate) use pass_inputs;
