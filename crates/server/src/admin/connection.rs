//! Serves connections to the admin interface within limits, so that no client can use up the memory
//! or the file descriptors of the process, or keep other clients out.

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

/// Maximum number of connections at the same time. When another client connects, the connection
/// that has been idle longest is closed.
const CONNECTIONS_MAX: usize = 64;
/// Maximum size of a request's first line and headers, in bytes.
const HEAD_MAX: usize = 8192;
/// Maximum number of header fields of a request.
const FIELDS_MAX: usize = 64;
/// Maximum time in which the headers of a request must arrive, and for which a connection may be
/// idle.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// Maximum lifetime of a connection. A request that is still being answered then gets
/// [`LAST_ANSWER`] more time.
const LIFE: Duration = Duration::from_secs(60);
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// Pause after a connection could not be accepted, usually because the process has no file
/// descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The address of the client that sent a request, for the handlers of requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

struct Open {
    task: AbortHandle,
    activity: Arc<Activity>,
}

/// The activity of a connection, for finding the connection that has been idle longest.
#[derive(Default)]
struct Activity {
    /// Number of requests that are being answered.
    answering: AtomicU64,
    /// The sequence number of this connection's last event. The events of all connections are
    /// numbered together: a connection was accepted, a request came, a request was answered. The
    /// arrival of a part of a request is not an event.
    last: AtomicU64,
}

/// Accepts and serves connections forever. `refusals` counts the connections that were closed to
/// make room for new ones.
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

    /// Answers a request with `next`, and records two events: the request came, and it was
    /// answered.
    async fn watch(&self, happened: &AtomicU64, request: Request, next: Next) -> Response {
        self.note(happened);
        self.answering.fetch_add(1, Ordering::Relaxed);
        let response = next.run(request).await;
        self.answering.fetch_sub(1, Ordering::Relaxed);
        self.note(happened);
        response
    }

    /// Returns the rank of the connection. To make room, the connection with the lowest rank is
    /// closed.
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
