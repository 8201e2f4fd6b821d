//! Serves connections to the admin interface within limits. So no peer can use up the memory or the
//! descriptors of the process, or keep other peers out.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// Maximum number of connections at the same time. A further connection closes the one that has
/// been idle longest.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of bytes of a request's head.
const HEAD_MAX: usize = 8192;
/// Maximum number of fields of a request's head.
const FIELDS_MAX: usize = 64;
/// Maximum time for a request's head, and for an idle connection.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// Maximum lifetime of a connection. [`LAST_ANSWER`] is the additional time for its last answer.
const LIFE: Duration = Duration::from_secs(60);
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// Pause when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The peer of a connection, for the handlers of its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// A connection that is served.
struct Open {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// The activity of a connection. It shows which connection has been idle longest.
#[derive(Default)]
struct Activity {
    /// Number of requests that are being answered.
    answering: AtomicU64,
    /// The position of the connection's last event among the events of all connections. Events are:
    /// the connection was accepted, a request came, a request was answered. A part of a request is
    /// not an event.
    last: AtomicU64,
}

/// Serves connections forever. Counts in `refusals` the connections that were closed to make room
/// for others.
pub(super) async fn serve(listener: TcpListener, router: Router, refusals: &AtomicU64) {
    let mut open: Vec<Open> = Vec::with_capacity(CONNECTIONS_MAX);
    let happened = Arc::new(AtomicU64::new(0));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|open| !open.task.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            refusals.fetch_add(1, Ordering::Relaxed);
            let idlest = open.iter().enumerate().min_by_key(|(_, open)| open.activity.rank());
            let (index, _) = idlest.expect("there are several");
            open.swap_remove(index).task.abort();
        }
        let activity = Arc::new(Activity::default());
        activity.note(&happened);
        let noted = (Arc::clone(&activity), Arc::clone(&happened));
        let watched = from_fn(move |request: Request, next: Next| {
            let (activity, happened) = noted.clone();
            async move { activity.watch(&happened, request, next).await }
        });
        let router = router.clone().layer(Extension(Peer(peer))).layer(watched);
        let task = tokio::spawn(answer(stream, router)).abort_handle();
        open.push(Open { task, activity });
    }
}

impl Activity {
    /// Records an event of this connection. `happened` counts the events of all connections.
    fn note(&self, happened: &AtomicU64) {
        self.last.store(happened.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Answers a request. Its arrival and the end of its answer are events.
    async fn watch(&self, happened: &AtomicU64, request: Request, next: Next) -> Response {
        self.note(happened);
        self.answering.fetch_add(1, Ordering::Relaxed);
        let response = next.run(request).await;
        self.answering.fetch_sub(1, Ordering::Relaxed);
        self.note(happened);
        response
    }

    /// Returns the rank of the connection. The connection with the lowest rank is closed first.
    fn rank(&self) -> (bool, u64) {
        (self.answering.load(Ordering::Relaxed) > 0, self.last.load(Ordering::Relaxed))
    }
}

/// Answers the requests of one connection.
async fn answer(stream: TcpStream, router: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WAIT)
        .max_buf_size(HEAD_MAX)
        .max_headers(FIELDS_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    if timeout(LIFE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_ANSWER, connection).await;
    }
}
