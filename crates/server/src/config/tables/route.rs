//! `[[route]]`.

use tidegate_proxy::Senders;

use crate::config::keys::table;
use crate::config::shape::{List, Text};
use crate::config::word::{self, Destination};

table! {
    /// The destination of a request outside any dialog. The first route that matches the request
    /// applies. If no route matches, a request from a back end or a trusted peer may go to the
    /// address in its Request-URI. Tidegate rejects any other request that matches no route. If the
    /// file has no route, all requests that do not come from a back end go to the only pool, if
    /// their Request-URI has a name or an address of Tidegate. With several pools the file needs at
    /// least one route.
    pub static ROUTE: "[[route]]" 0..=1024, NewCalls, [] => Route, RouteDraft;

    /// The sender of the request. `any`: any address except a back end. `trusted`: a peer in the
    /// listener's `trust`, or a back end. `pool`: a back end. A network: any address in it,
    /// including those of back ends.
    from: Senders = Text {
        what: "`\"any\"`, `\"trusted\"`, `\"pool\"` or a network such as `\"192.0.2.0/24\"`",
        parse: word::source,
        write: word::source_text,
    }, Default("\"any\"");
    /// The route matches a request only if its method is in this list.
    method: Vec<String> | None = List {
        of: Text::new("a method, such as `\"INVITE\"`", word::method),
        count_max: 64,
    }, Means("every method");
    /// The route matches a request only if the host of its Request-URI is in this list.
    domain: Vec<String> | None = List {
        of: Text::new("a host name or address, such as `\"example.com\"`", word::domain),
        count_max: 1024,
    }, Means("every name, and the addresses of Tidegate itself");
    /// The name of a pool: the request goes to a back end of this pool. `users`: the request goes
    /// to the contacts of the `[[user]]` that the Request-URI names. `request-uri`: the request
    /// goes to the target in its Request-URI, which only back ends and trusted peers may use.
    to: Destination = Text::new(
        "the name of a pool, `\"users\"` or `\"request-uri\"`",
        word::destination,
    ), Required;
}
