//! Connections to the admin interface, each within limits: whoever can reach it
//! can hold neither memory nor descriptors of the process.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// Connections at a time; one more is closed at once.
const CONNECTIONS_MAX: usize = 64;
/// Bytes of a request's head.
const HEAD_MAX: usize = 8192;
/// Fields of a request's head.
const FIELDS_MAX: usize = 64;
/// How long a request's head may take, and an idle connection stay open.
const HEAD_WAIT: Duration = Duration::from_secs(5);
/// How long a connection may live, and how much longer its last answer may take.
const LIFE: Duration = Duration::from_secs(60);
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// How long to let go by when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Who is at the other end of a connection, for whoever answers its requests.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

/// Serves connections for ever, and counts those refused for want of a slot.
pub(super) async fn serve(listener: TcpListener, router: Router, refusals: &AtomicU64) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            refusals.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let router = router.clone().layer(Extension(Peer(peer)));
        tokio::spawn(async move {
            answer(stream, router).await;
            drop(slot);
        });
    }
}

/// Answers the requests of one connection; a peer that breaks off is no event.
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
