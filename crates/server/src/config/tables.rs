//! Every table and every key of the configuration file.

pub(in crate::config) mod connections;
pub(in crate::config) mod emulate;
pub(in crate::config) mod feedback;
pub(in crate::config) mod health;
pub(in crate::config) mod limit;
pub(in crate::config) mod listen;
pub(in crate::config) mod overload;
pub(in crate::config) mod pool;
pub(in crate::config) mod resolver;
pub(in crate::config) mod route;
pub(in crate::config) mod server;
pub(in crate::config) mod sources;
pub(in crate::config) mod tls;
pub(in crate::config) mod user;

use super::knob::Table;

/// The configuration file as a whole.
pub(super) static ROOT: Table = Table {
    tables: &[
        &server::SERVER,
        &server::ADMIN,
        &resolver::RESOLVER,
        &listen::LISTEN,
        &connections::CONNECTIONS,
        &pool::POOL,
        &route::ROUTE,
        &user::USER,
        &overload::OVERLOAD,
        &emulate::EMULATE,
    ],
    ..Table::EMPTY
};

#[cfg(test)]
mod tests;
