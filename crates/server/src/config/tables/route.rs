//! `[[route]]`.

use tidegate_proxy::Senders;

use crate::config::keys::table;
use crate::config::shape::{List, Text};
use crate::config::word::{self, Destination};

table! {
    /// Where a request outside any dialog goes: the first route that matches decides. A request
    /// that matches no route may go to the address in its Request-URI if it comes from a back end
    /// or a trusted peer; any other is rejected. Without any route, all requests that are not from
    /// a back end go to the only pool; with several pools at least one route is needed.
    pub static ROUTE: "[[route]]" 0..=1024, NewCalls, [] => Route, RouteDraft;

    /// The sender of the request. `any`: anyone but a back end. `trusted`: a peer in the listener's
    /// `trust`, or a back end. `pool`: a back end.
    from: Senders = Text {
        what: "`\"any\"`, `\"trusted\"`, `\"pool\"` or a network such as `\"192.0.2.0/24\"`",
        parse: word::source,
        write: word::source_text,
    }, Default("\"any\"");
    /// The method of the request is one of these.
    method: Vec<String> | None = List {
        of: Text::new("a method, such as `\"INVITE\"`", word::method),
        count_max: 64,
    }, Means("every method");
    /// The host of the Request-URI is one of these.
    domain: Vec<String> | None = List {
        of: Text::new("a host name or address, such as `\"example.com\"`", word::domain),
        count_max: 1024,
    }, Means("every name, and the addresses of Tidegate itself");
    /// The name of a pool: a back end of it. `users`: the contacts of the `[[user]]` that the
    /// Request-URI names. `request-uri`: the target that the request itself names, which is allowed
    /// only to back ends and trusted peers.
    to: Destination = Text::new(
        "the name of a pool, `\"users\"` or `\"request-uri\"`",
        word::destination,
    ), Required;
}
