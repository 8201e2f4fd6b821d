//! The admin interface: an HTTP server for operators. It has its own thread and runtime, so the
//! server answers even if the shards are busy, and does not slow the shards. The shards only
//! execute the commands and the call look-ups that operators send.

mod backends;
mod calls;
mod connection;
mod controls;
mod keys;
mod origin;
mod overload;
mod page;

use std::fmt;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tidegate_balance::registry::POLICIES;
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::spawn_blocking;

use crate::StartError;
use crate::laws;
use crate::metrics::{Family, Metrics};
use crate::phase::{Life, Phase};
pub use crate::status::Status;
use crate::worker::END_WAIT;
pub use controls::Controls;

/// Maximum number of `/metrics` and `/status` pages that are written at the same time.
const WRITERS_MAX: usize = 2;

/// Maximum number of commands that are executed at the same time. A command continues even if its
/// client closes the connection, so the limit on connections does not limit commands.
const COMMANDS_MAX: usize = 64;

/// The content of the pages of the admin interface.
pub struct Pages {
    /// The phase of the process, for `/readyz`.
    pub life: Arc<Life>,
    /// The metrics, for `/metrics`.
    pub metrics: Metrics,
    /// The content of `/status`, except the version and the phase. It is computed for each request.
    pub status: Box<dyn Fn() -> Status + Send + Sync>,
    /// The controls, for `/backends`, `/reload`, `/overload`, `/laws`, `/rejections`, `/calls`,
    /// `/bans` and `/keys`. `None` if there are no shards to control.
    pub controls: Option<Controls>,
    /// Host names, in lower case, that the `Host` header of a request may contain. `localhost` and
    /// IP addresses are always accepted.
    pub hosts: Vec<String>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").field("life", &self.life).finish_non_exhaustive()
    }
}

/// The running admin interface, which stops when dropped. The drop waits about a second at most for
/// unfinished requests, because a file system that does not respond may block them.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Listens at `address` and serves `pages` from a thread of its own.
    ///
    /// # Errors
    /// Returns an error when the address cannot be bound or the thread cannot be started.
    pub fn start(address: SocketAddr, pages: Pages) -> Result<Self, StartError> {
        Self::serve(address, Self::bind(address)?, pages)
    }

    /// Listens at `address`. The kernel queues connections until [`serve`](Self::serve) is called.
    ///
    /// # Errors
    /// Returns an error when the address cannot be bound.
    pub fn bind(address: SocketAddr) -> Result<TcpListener, StartError> {
        TcpListener::bind(address).map_err(|error| rejected(address, &error))
    }

    /// Serves `pages` at `listener`, which is bound to `address`, from a thread of its own.
    ///
    /// # Errors
    /// Returns an error when the thread cannot be started.
    pub fn serve(
        address: SocketAddr,
        listener: TcpListener,
        pages: Pages,
    ) -> Result<Self, StartError> {
        let rejected = |error: std::io::Error| rejected(address, &error);
        listener.set_nonblocking(true).map_err(rejected)?;
        let address = listener.local_addr().map_err(rejected)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(rejected)?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener).map_err(rejected)?
        };
        let (stop, stopped) = oneshot::channel();
        let rejections = Arc::new(AtomicU64::new(0));
        let router = router(pages, Arc::clone(&rejections));
        let serve = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = connection::serve(listener, router, &rejections) => {}
                    // A dropped sender ends the wait too.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(END_WAIT);
        };
        let thread = Builder::new().name("admin".to_owned()).spawn(serve).map_err(rejected)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the address of the interface. If port 0 was configured, the address contains the
    /// port that the kernel chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn rejected(address: SocketAddr, error: &std::io::Error) -> StartError {
    let remedy = "set `[admin] address` to another address, or to \"off\"";
    let place = format!("admin interface at {address}");
    StartError::new(place, format!("cannot listen: {error}"), remedy)
}

static REJECTIONS: Family = Family::counter(
    "admin_connections_refused",
    "Admin connections closed to make room for others",
);

fn router(pages: Pages, rejections: Arc<AtomicU64>) -> Router {
    let Pages { life, mut metrics, status, controls, hosts } = pages;
    metrics.add(move |samples| samples.push(&REJECTIONS, &[], rejections.load(Ordering::Relaxed)));
    let phase = Arc::clone(&life);
    let ready = move || async move {
        let phase = phase.phase();
        let code = match phase {
            Phase::Admitting => StatusCode::OK,
            Phase::Starting | Phase::Draining => StatusCode::SERVICE_UNAVAILABLE,
        };
        (code, format!("{}\n", phase.name()))
    };
    let metrics = Arc::new(metrics);
    let turns = Arc::new(Semaphore::new(WRITERS_MAX));
    let status_turns = Arc::clone(&turns);
    let scrape = move |headers: HeaderMap| async move {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let accept = accept.unwrap_or_default().to_owned();
        let (media_type, text) = written(turns, move || metrics.render_for(&accept)).await;
        ([(header::CONTENT_TYPE, media_type)], text)
    };
    let status: Arc<dyn Fn() -> Status + Send + Sync> = status.into();
    let state = move || async move {
        let write = move || {
            let mut whole = status();
            whole.insert("version".to_owned(), env!("CARGO_PKG_VERSION").into());
            whole.insert("phase".to_owned(), life.phase().name().into());
            format!("{:#}\n", serde_json::Value::Object(whole))
        };
        ([(header::CONTENT_TYPE, "application/json")], written(status_turns, write).await)
    };
    let pages = Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .route("/status", get(state))
        .route("/policies", get(|| async { policies() }))
        .merge(controls.map(overload::router).unwrap_or_default())
        .fallback(|| async { no_such_page() });
    guard(pages, hosts)
}

/// Wraps all `pages` with the checks of [`guarded`]. `hosts` are the accepted host names.
fn guard(pages: Router, hosts: Vec<String>) -> Router {
    let hosts: Arc<[String]> = hosts.into();
    let turns = Arc::new(Semaphore::new(COMMANDS_MAX));
    pages.layer(from_fn(move |request: Request, next: Next| {
        let (hosts, turns) = (Arc::clone(&hosts), Arc::clone(&turns));
        async move { guarded(&hosts, turns, request, next).await }
    }))
}

/// Runs `write`, which generates a page, on another thread, because a page with thousands of back
/// ends takes time. Waits for a permit of `turns` first, which limits the number of such threads.
async fn written<T: Send + 'static>(
    turns: Arc<Semaphore>,
    write: impl FnOnce() -> T + Send + 'static,
) -> T {
    let turn = turns.acquire_owned().await.expect("it is never closed");
    let write = move || {
        let _turn = turn;
        write()
    };
    spawn_blocking(write).await.expect("writing a page does not panic")
}

/// Answers a request with `next`, or rejects it with 403 if a web page of another origin may have
/// sent it. A request that changes something waits until fewer than [`COMMANDS_MAX`] others are
/// executed.
async fn guarded(
    hosts: &[String],
    turns: Arc<Semaphore>,
    request: Request,
    next: Next,
) -> Response {
    match origin::rejection(request.uri(), request.headers(), hosts) {
        Some(why) => (StatusCode::FORBIDDEN, why).into_response(),
        None if request.method().is_safe() => next.run(request).await,
        None => {
            let turn = turns.acquire_owned().await.expect("it is never closed");
            let command = async move {
                let _turn = turn;
                next.run(request).await
            };
            // If the client closes its connection, only this future is dropped. The task goes on,
            // so the audit log gets the result of the command.
            tokio::spawn(command).await.expect("no page panics")
        }
    }
}

/// Returns a page with every load-balancing policy and its parameters.
fn policies() -> impl IntoResponse {
    let text = format!("{:#}\n", laws::all(&POLICIES));
    ([(header::CONTENT_TYPE, "application/json")], text)
}

fn no_such_page() -> impl IntoResponse {
    let pages = "Pages: /healthz /readyz /metrics /status /policies /backends /reload /overload \
                 /laws /rejections /calls/CALL-ID /bans /keys\n";
    (StatusCode::NOT_FOUND, pages)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use axum::body::Body;
    use axum::routing::put;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tokio::time::timeout;

    use super::*;

    /// Without a limit, a client could start any number of commands by closing its connection after
    /// each command.
    #[test]
    fn commands_whose_clients_are_gone_are_limited() {
        let started = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&started);
        let endless = move || async move {
            counted.fetch_add(1, Ordering::Relaxed);
            pending::<()>().await;
        };
        let pages = Router::new().route("/command", put(endless));
        let service = TowerToHyperService::new(guard(pages, Vec::new()));
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            for _ in 0..COMMANDS_MAX + 9 {
                let request = axum::http::Request::put("/command").body(Body::empty()).unwrap();
                let answer = timeout(Duration::from_millis(1), service.call(request)).await;
                assert!(answer.is_err());
            }
        });
        assert_eq!(started.load(Ordering::Relaxed), COMMANDS_MAX as u64);
    }
}
