//! Delegation of the functions of [`Core`], for cores that wrap another core.

use crate::Core;

/// Implements functions of [`Core`] that only pass their call on to an inner core.
///
/// Use it in an `impl Core`, in one of these forms:
///
/// - `delegate!(self.core, but offer, serve)` passes on every call to the field `core`, except
///   calls of the listed functions;
/// - `delegate!(self.core, only last_work)` passes on calls of the listed functions only;
/// - `delegate!(match self { Self::A(core) => core, Self::B(core) => core })` passes on every call
///   to the core of the variant.
///
/// The calls are dispatched statically, unless the inner core is a `dyn Core`.
///
/// A new function of [`Core`] has to be added to this macro. Then every delegation without `only`
/// passes on the calls of this function. If the macro lacked a function that has a default
/// implementation, wrappers would run the default and never call the inner core. Clippy detects
/// this mistake: the implementations for `&mut C` and `Box<C>` in this file deny
/// `clippy::missing_trait_methods`. A core that must handle every input, such as a recorder, uses
/// `only` and denies `clippy::missing_trait_methods`. Then a new function is an error until this
/// core handles it.
///
/// ```
/// use tidegate_world::{Core, Received, Timestamp, delegate};
///
/// struct Counting<C> {
///     core: C,
///     offered: u64,
/// }
///
/// impl<C: Core> Core for Counting<C> {
///     fn offer(&mut self, now: Timestamp, received: Received) {
///         self.offered += 1;
///         self.core.offer(now, received);
///     }
///
///     delegate!(self.core, but offer);
/// }
/// ```
#[macro_export]
macro_rules! delegate {
    ($self:ident.$core:ident, but $($own:ident),+) => {
        $crate::delegate! { @but [$($own)+] ($self: Self { $core, .. } => $core) }
    };
    ($self:ident.$core:ident, only $($name:ident),+) => {
        $($crate::delegate! { @name $name ($self: Self { $core, .. } => $core) })+
    };
    (match $self:ident { $($kind:pat => $core:ident),+ $(,)? }) => {
        $crate::delegate! { @but [] ($self: $($kind => $core),+) }
    };
    // The target of a pointer.
    (**$self:ident) => {
        $crate::delegate! { @but [] ($self: _ => **$self) }
    };

    // The functions of `Core`, except those in `$own`.
    (@but $own:tt $to:tt) => {
        $crate::delegate! { @unless $own offer $to }
        $crate::delegate! { @unless $own serve $to }
        $crate::delegate! { @unless $own handle_timeout $to }
        $crate::delegate! { @unless $own on_failed $to }
        $crate::delegate! { @unless $own on_transmit $to }
        $crate::delegate! { @unless $own on_connected $to }
        $crate::delegate! { @unless $own on_closed $to }
        $crate::delegate! { @unless $own on_writable $to }
        $crate::delegate! { @unless $own on_load $to }
        $crate::delegate! { @unless $own on_command $to }
        $crate::delegate! { @unless $own on_answer $to }
        $crate::delegate! { @unless $own on_drain $to }
        $crate::delegate! { @unless $own poll_transmit $to }
        $crate::delegate! { @unless $own poll_handoff $to }
        $crate::delegate! { @unless $own poll_query $to }
        $crate::delegate! { @unless $own poll_connect $to }
        $crate::delegate! { @unless $own poll_close $to }
        $crate::delegate! { @unless $own poll_shedding $to }
        $crate::delegate! { @unless $own last_work $to }
        $crate::delegate! { @unless $own poll_timeout $to }
        $crate::delegate! { @unless $own is_drained $to }
    };

    // A macro cannot compare two names. It can only recognise a name that its pattern contains.
    (@unless [offer $($own:ident)*] offer $to:tt) => {};
    (@unless [serve $($own:ident)*] serve $to:tt) => {};
    (@unless [handle_timeout $($own:ident)*] handle_timeout $to:tt) => {};
    (@unless [on_failed $($own:ident)*] on_failed $to:tt) => {};
    (@unless [on_transmit $($own:ident)*] on_transmit $to:tt) => {};
    (@unless [on_connected $($own:ident)*] on_connected $to:tt) => {};
    (@unless [on_closed $($own:ident)*] on_closed $to:tt) => {};
    (@unless [on_writable $($own:ident)*] on_writable $to:tt) => {};
    (@unless [on_load $($own:ident)*] on_load $to:tt) => {};
    (@unless [on_command $($own:ident)*] on_command $to:tt) => {};
    (@unless [on_answer $($own:ident)*] on_answer $to:tt) => {};
    (@unless [on_drain $($own:ident)*] on_drain $to:tt) => {};
    (@unless [poll_transmit $($own:ident)*] poll_transmit $to:tt) => {};
    (@unless [poll_handoff $($own:ident)*] poll_handoff $to:tt) => {};
    (@unless [poll_query $($own:ident)*] poll_query $to:tt) => {};
    (@unless [poll_connect $($own:ident)*] poll_connect $to:tt) => {};
    (@unless [poll_close $($own:ident)*] poll_close $to:tt) => {};
    (@unless [poll_shedding $($own:ident)*] poll_shedding $to:tt) => {};
    (@unless [last_work $($own:ident)*] last_work $to:tt) => {};
    (@unless [poll_timeout $($own:ident)*] poll_timeout $to:tt) => {};
    (@unless [is_drained $($own:ident)*] is_drained $to:tt) => {};
    (@unless [$other:ident $($own:ident)*] $name:ident $to:tt) => {
        $crate::delegate! { @unless [$($own)*] $name $to }
    };
    (@unless [] $name:ident $to:tt) => {
        $crate::delegate! { @name $name $to }
    };

    // One function: its parameters, the arguments it passes on, its result.
    (@name offer $to:tt) => {
        $crate::delegate! {
            @write $to mut offer(now: $crate::Timestamp, received: $crate::Received)
            (now, received)
        }
    };
    (@name serve $to:tt) => {
        $crate::delegate! { @write $to mut serve(now: $crate::Timestamp) (now) -> bool }
    };
    (@name handle_timeout $to:tt) => {
        $crate::delegate! { @write $to mut handle_timeout(now: $crate::Timestamp) (now) }
    };
    (@name on_failed $to:tt) => {
        $crate::delegate! {
            @write $to mut on_failed(now: $crate::Timestamp, failure: $crate::Failure)
            (now, failure)
        }
    };
    (@name on_transmit $to:tt) => {
        $crate::delegate! {
            @write $to mut on_transmit(now: $crate::Timestamp, transmit: $crate::Transmit)
            (now, transmit)
        }
    };
    (@name on_connected $to:tt) => {
        $crate::delegate! {
            @write $to mut on_connected(now: $crate::Timestamp, flow: $crate::Flow) (now, flow)
        }
    };
    (@name on_closed $to:tt) => {
        $crate::delegate! {
            @write $to mut on_closed(
                now: $crate::Timestamp, id: $crate::ConnectionId, cause: $crate::CloseCause
            ) (now, id, cause)
        }
    };
    (@name on_writable $to:tt) => {
        $crate::delegate! {
            @write $to mut on_writable(now: $crate::Timestamp, id: $crate::ConnectionId) (now, id)
        }
    };
    (@name on_load $to:tt) => {
        $crate::delegate! {
            @write $to mut on_load(now: $crate::Timestamp, load: $crate::Load) (now, load)
        }
    };
    (@name on_command $to:tt) => {
        $crate::delegate! {
            @write $to mut on_command(now: $crate::Timestamp, command: &[u8]) (now, command)
        }
    };
    (@name on_answer $to:tt) => {
        $crate::delegate! {
            @write $to mut on_answer(
                now: $crate::Timestamp, id: $crate::QueryId, answer: $crate::QueryAnswer
            ) (now, id, answer)
        }
    };
    (@name on_drain $to:tt) => {
        $crate::delegate! { @write $to mut on_drain(now: $crate::Timestamp) (now) }
    };
    (@name poll_transmit $to:tt) => {
        $crate::delegate! { @write $to mut poll_transmit() () -> Option<$crate::Transmit> }
    };
    (@name poll_handoff $to:tt) => {
        $crate::delegate! { @write $to mut poll_handoff() () -> Option<$crate::Handoff> }
    };
    (@name poll_query $to:tt) => {
        $crate::delegate! { @write $to mut poll_query() () -> Option<$crate::Query> }
    };
    (@name poll_connect $to:tt) => {
        $crate::delegate! { @write $to mut poll_connect() () -> Option<$crate::Connect> }
    };
    (@name poll_close $to:tt) => {
        $crate::delegate! { @write $to mut poll_close() () -> Option<$crate::ConnectionId> }
    };
    (@name poll_shedding $to:tt) => {
        $crate::delegate! { @write $to poll_shedding() () -> &$crate::Shedding }
    };
    (@name last_work $to:tt) => {
        $crate::delegate! { @write $to last_work() () -> $crate::Work }
    };
    (@name poll_timeout $to:tt) => {
        $crate::delegate! { @write $to poll_timeout() () -> Option<$crate::Timestamp> }
    };
    (@name is_drained $to:tt) => {
        $crate::delegate! { @write $to is_drained() () -> bool }
    };

    (@write ($self:ident: $($kind:pat => $core:expr),+) mut
     $name:ident($($given:ident: $type:ty),*) $handed:tt $(-> $result:ty)?) => {
        fn $name(&mut $self $(, $given: $type)*) $(-> $result)? {
            match $self { $($kind => $core.$name $handed),+ }
        }
    };
    (@write ($self:ident: $($kind:pat => $core:expr),+)
     $name:ident() $handed:tt $(-> $result:ty)?) => {
        fn $name(&$self) $(-> $result)? {
            match $self { $($kind => $core.$name $handed),+ }
        }
    };
}

/// A borrowed core is a core, so that a driver can work on it without owning it.
#[deny(clippy::missing_trait_methods)]
impl<C: Core + ?Sized> Core for &mut C {
    delegate!(**self);
}

/// A boxed core is a core, so that the driver need not know the type of the core.
#[deny(clippy::missing_trait_methods)]
impl<C: Core + ?Sized> Core for Box<C> {
    delegate!(**self);
}

#[cfg(test)]
#[path = "delegate_tests.rs"]
mod tests;
