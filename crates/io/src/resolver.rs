//! Name resolution outside the shards.
//!
//! A shard never waits for the DNS. The queries of its core go to a thread that asks the servers
//! for the whole process. The answer returns to the shard through a queue and a waker, as a command
//! does. The `hosts` file takes precedence over the DNS. The thread reads this file and
//! `/etc/resolv.conf` at its start.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData};
use hickory_resolver::{Hosts, TokioResolver, proto};
use tidegate_world::{
    NAME_MAX, NaptrRecord, Query, QueryAnswer, QueryId, Question, RECORDS_MAX, RESOLVE_MAX,
    RecordType, SrvRecord,
};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Waker;
use crate::stores::Stores;

/// Maximum number of answers that wait for one shard.
const ANSWERS_MAX: usize = 512;

/// A handle of the thread that resolves names. The thread ends with the last handle and the last
/// shard.
#[derive(Clone, Debug)]
pub struct Resolver(mpsc::Sender<PendingQuery>);

/// A query, and the sender for its answer.
#[derive(Debug)]
struct PendingQuery {
    query: Query,
    answers: Sender<(QueryId, QueryAnswer)>,
    waker: Waker,
}

impl Resolver {
    /// Starts the thread that resolves names. The thread asks `servers`, or the servers of
    /// `/etc/resolv.conf` if `servers` is empty. If that file cannot be used, the thread uses only
    /// the `hosts` file.
    ///
    /// `queries_max` is the maximum number of queries that are sent and not answered yet. As many
    /// further queries wait, in the order in which they came.
    ///
    /// # Errors
    /// Returns an error when the thread cannot be started.
    pub fn start(servers: &[SocketAddr], queries_max: usize) -> io::Result<Self> {
        let resolver = resolver(servers).map_err(io::Error::other)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (questions, asked) = mpsc::channel(queries_max.max(1));
        thread::Builder::new()
            .name("resolver".to_owned())
            .spawn(move || runtime.block_on(serve(&resolver, asked, queries_max.max(1))))?;
        Ok(Self(questions))
    }

    /// Creates the handle of a shard. `waker` wakes the shard for each answer.
    fn join(&self, waker: Waker) -> ResolverHandle {
        ResolverHandle { questions: Some((self.0.clone(), waker)), ..ResolverHandle::closed() }
    }
}

/// A shard's access to the resolver and the stores: it sends queries and takes the answers to them.
#[derive(Debug)]
pub(crate) struct ResolverHandle {
    questions: Option<(mpsc::Sender<PendingQuery>, Waker)>,
    /// The stores that answer look-ups, if any.
    stores: Option<Stores>,
    give: Sender<(QueryId, QueryAnswer)>,
    answers: Receiver<(QueryId, QueryAnswer)>,
}

impl ResolverHandle {
    /// Creates the handle of a shard without a resolver.
    pub(crate) fn closed() -> Self {
        let (give, answers) = bounded(ANSWERS_MAX);
        Self { questions: None, stores: None, give, answers }
    }

    pub(crate) fn set_stores(&mut self, stores: &Stores) {
        self.stores = Some(stores.clone());
    }

    /// Returns the handle with `resolver` for queries about names.
    pub(crate) fn resolving(self, resolver: &Resolver, waker: Waker) -> Self {
        Self { stores: self.stores, ..resolver.join(waker) }
    }

    /// Sends a query. Returns `false` if the queue is full, or if there is neither a resolver nor,
    /// for a look-up, a store. Then the core gets an answer that reports the failure.
    pub(crate) fn ask(&self, query: Query) -> bool {
        let id = query.id;
        if let (Question::Lookup { kind, key }, Some(stores)) = (&query.question, &self.stores) {
            // There is always room: a core has a limited number of open queries.
            return self.give.try_send((id, stores.look_up(*kind, key))).is_ok();
        }
        let is_asked = self.questions.as_ref().is_some_and(|(questions, waker)| {
            let (answers, waker) = (self.give.clone(), waker.clone());
            questions.try_send(PendingQuery { query, answers, waker }).is_ok()
        });
        if !is_asked {
            // If there is no room for this answer, the core gives up the query after some time.
            let _ = self.give.try_send((id, QueryAnswer::NoAnswer));
        }
        is_asked
    }

    /// Takes the next answer, with the id of its query.
    pub(crate) fn take(&self) -> Option<(QueryId, QueryAnswer)> {
        self.answers.try_recv().ok()
    }

    /// Returns whether no answer waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

fn resolver(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = if servers.is_empty() {
        TokioResolver::builder_tokio().unwrap_or_else(|_| {
            let no_servers = ResolverConfig::from_parts(None, Vec::new(), Vec::new());
            TokioResolver::builder_with_config(no_servers, provider)
        })
    } else {
        let servers = servers.iter().map(name_server).collect();
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        TokioResolver::builder_with_config(config, provider)
    };
    let options: &mut ResolverOpts = builder.options_mut();
    // The core decides how long an answer is valid.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Always;
    builder.build()
}

/// Returns the configuration of a server that is queried over UDP, and over TCP for long answers.
fn name_server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Answers queries until all handles are dropped, at most `queries_max` at the same time.
async fn serve(
    resolver: &TokioResolver,
    mut asked: mpsc::Receiver<PendingQuery>,
    queries_max: usize,
) {
    // A `hosts` file that cannot be read has no hosts.
    let hosts = Arc::new(Hosts::from_system().unwrap_or_default());
    let mut tasks = JoinSet::new();
    while let Some(PendingQuery { query, answers, waker }) = asked.recv().await {
        while tasks.len() >= queries_max {
            tasks.join_next().await;
        }
        while tasks.try_join_next().is_some() {}
        let (resolver, hosts) = (resolver.clone(), Arc::clone(&hosts));
        tasks.spawn(async move {
            let answer = answer(&resolver, &hosts, query.question);
            // If the core has not given up the query, it gets `NoAnswer`.
            let answer = tokio::time::timeout(RESOLVE_MAX, answer).await;
            // A shard that has ended, or that has no room, gets no answer.
            let _ = answers.try_send((query.id, answer.unwrap_or(QueryAnswer::NoAnswer)));
            waker.wake();
        });
    }
}

async fn answer(resolver: &TokioResolver, hosts: &Hosts, question: Question) -> QueryAnswer {
    match question {
        Question::Resolve { name, record } if is_host(hosts, &name, record) => {
            QueryAnswer::NotFound(None)
        }
        Question::Resolve { name, record } => match resolver.lookup(&*name, wire(record)).await {
            Ok(found) => records(&found, record),
            Err(error) => negative_answer(error),
        },
        // The DNS does not answer look-ups.
        Question::Lookup { .. } => QueryAnswer::NoAnswer,
    }
}

/// Returns whether the query asks for the SRV or NAPTR records of a host in the `hosts` file. That
/// file has only addresses and takes precedence over the DNS, so the host has no such records.
fn is_host(hosts: &Hosts, name: &str, record: RecordType) -> bool {
    let host = match record {
        RecordType::A | RecordType::Aaaa => return false,
        // RFC 2782: `_Service._Proto.Name`.
        RecordType::Srv => match name.splitn(3, '.').collect::<Vec<_>>()[..] {
            [service, proto, host] if service.starts_with('_') && proto.starts_with('_') => host,
            _ => name,
        },
        RecordType::Naptr => name,
    };
    let Ok(mut host) = Name::from_utf8(host) else { return false };
    host.set_fqdn(true);
    [RecordType::A, RecordType::Aaaa].into_iter().any(|record| {
        let address = proto::op::Query::query(host.clone(), wire(record));
        hosts.lookup_static_host(&address).is_some()
    })
}

/// Returns the record type in the form of the resolver library.
fn wire(record: RecordType) -> hickory_resolver::proto::rr::RecordType {
    use hickory_resolver::proto::rr::RecordType as Wire;
    match record {
        RecordType::A => Wire::A,
        RecordType::Aaaa => Wire::AAAA,
        RecordType::Srv => Wire::SRV,
        RecordType::Naptr => Wire::NAPTR,
    }
}

/// Returns the records of this type in an answer of the resolver. The answer also contains CNAME
/// records if the name is an alias. They are left out.
fn records(found: &Lookup, record: RecordType) -> QueryAnswer {
    let ttl = found.valid_until().saturating_duration_since(Instant::now());
    let data = || found.answers().iter().map(|record| &record.data);
    match record {
        RecordType::A | RecordType::Aaaa => {
            some(data().filter_map(RData::ip_addr), |ips| QueryAnswer::Addresses(ips, ttl))
        }
        RecordType::Srv => some(data().filter_map(srv), |all| QueryAnswer::Srv(all, ttl)),
        RecordType::Naptr => some(data().filter_map(naptr), |all| QueryAnswer::Naptr(all, ttl)),
    }
}

/// Returns an answer with the first [`RECORDS_MAX`] records, or a negative answer if there are
/// none.
fn some<R>(
    records: impl Iterator<Item = R>,
    answer: impl FnOnce(Arc<[R]>) -> QueryAnswer,
) -> QueryAnswer {
    let records: Arc<[R]> = records.take(RECORDS_MAX).collect();
    if records.is_empty() { QueryAnswer::NotFound(None) } else { answer(records) }
}

fn srv(data: &RData) -> Option<SrvRecord> {
    let RData::SRV(srv) = data else { return None };
    let target = name(&srv.target)?;
    Some(SrvRecord { priority: srv.priority, weight: srv.weight, port: srv.port, target })
}

fn naptr(data: &RData) -> Option<NaptrRecord> {
    let RData::NAPTR(naptr) = data else { return None };
    let text = |bytes: &[u8]| {
        let text = str::from_utf8(bytes).ok().filter(|text| text.len() <= NAME_MAX);
        text.map(Arc::from)
    };
    Some(NaptrRecord {
        order: naptr.order,
        preference: naptr.preference,
        flags: text(&naptr.flags)?,
        service: text(&naptr.services)?,
        replacement: name(&naptr.replacement)?,
    })
}

/// Returns a name as text with a final dot, or `None` if escapes make it too long.
fn name(name: &Name) -> Option<Arc<str>> {
    let mut text = name.to_ascii();
    if !text.ends_with('.') {
        text.push('.');
    }
    (text.len() <= NAME_MAX).then(|| text.into())
}

/// Returns the answer for a query that found no records.
fn negative_answer(error: NetError) -> QueryAnswer {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
        {
            // RFC 2308 §5: the lesser of the SOA record's own time to live and its MINIMUM.
            QueryAnswer::NotFound(none.negative_ttl.map(|s| Duration::from_secs(s.into())))
        }
        _ => QueryAnswer::NoAnswer,
    }
}

#[cfg(test)]
#[path = "resolver_tests.rs"]
mod tests;
