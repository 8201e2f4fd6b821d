//! The admin pages that show and rotate the keys for route tokens.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use tokio::sync::Semaphore;

use super::connection::Peer;
use super::page::{json, text};
use super::written;
use crate::audit::{AuditLog, AuditedRequest, Outcome};
use crate::key::{Keeper, NotKept, unix_time};

/// Maximum number of key rotations at the same time: one that is running, and one that waits for it
/// to end. The number of running commands is limited. While a file system does not respond, more
/// rotations would use up that limit and block all other commands.
const ROTATIONS_MAX: usize = 2;

/// The response to a rotation beyond [`ROTATIONS_MAX`].
const TOO_MANY: &str = "a key rotation is running, and another one waits; try again later";

/// Returns the HTTP routes that show and rotate the keys. Their handlers run on another thread,
/// because they may wait for the key file. Only one handler runs at a time, so that requests that
/// wait for a slow file system do not take up the threads that other pages need.
pub(super) fn router(keeper: Arc<Keeper>, audit_log: AuditLog) -> Router {
    let (turns, rotations) = (Arc::new(Semaphore::new(1)), Arc::new(Semaphore::new(ROTATIONS_MAX)));
    let (shown, show_turns) = (Arc::clone(&keeper), Arc::clone(&turns));
    let show = move || async move {
        written(show_turns, move || json(StatusCode::OK, &shown.shown(unix_time()))).await
    };
    let rotate = move |Extension(Peer(peer)): Extension<Peer>| async move {
        let asked = AuditedRequest::by_admin(peer, "rotate");
        let Ok(_rotation) = rotations.try_acquire() else {
            audit_log.tell(asked, Outcome::Not(TOO_MANY.to_owned()));
            return text(StatusCode::SERVICE_UNAVAILABLE, format!("{TOO_MANY}\n"));
        };
        written(turns, move || rotate(&keeper, &audit_log, asked)).await
    };
    Router::new().route("/keys", get(show)).route("/keys/next", post(rotate))
}

/// Makes a new key. Returns a response with all keys, or with the error. This takes some
/// milliseconds, because the function waits until the key file is on disk.
fn rotate(keeper: &Keeper, audit_log: &AuditLog, asked: AuditedRequest) -> Response {
    let now = unix_time();
    let rotated = keeper.rotate(now);
    audit_log.tell(asked, Outcome::of(&rotated));
    match rotated {
        Ok(()) => json(StatusCode::OK, &keeper.shown(now)),
        Err(why @ (NotKept::NotRotated(_) | NotKept::Busy)) => {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
        }
        Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::path::Path;
    use std::thread;
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use axum::routing::put;
    use crossbeam_channel::bounded;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tidegate_io::CommandSender;
    use tokio::runtime;
    use tokio::time::timeout;

    use super::*;
    use crate::admin::{COMMANDS_MAX, guard};
    use crate::key::{Rotation, load_or_create};

    fn keeper(dir: &Path) -> Arc<Keeper> {
        let ring = load_or_create(dir).unwrap();
        let rotation = Rotation { every: None, settle: Duration::from_secs(60) };
        let (path, commands) = (dir.to_owned(), CommandSender::to(0));
        Arc::new(Keeper::new(path, ring, rotation, unix_time(), commands))
    }

    fn request(method: &str, path: &str) -> Request<Body> {
        let peer = Peer(SocketAddr::from(([127, 0, 0, 1], 1)));
        let request = Request::builder().method(method).uri(path).extension(peer);
        request.body(Body::empty()).unwrap()
    }

    /// A regression: while the file system of the state directory hung, one `GET /keys` blocked all
    /// pages.
    #[test]
    fn pages_are_served_while_the_keys_wait_for_their_file() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(dir.path());
        let (audit_log, _told) = AuditLog::channel();
        for (method, path) in [("GET", "/keys"), ("POST", "/keys/next")] {
            let keys = router(Arc::clone(&keeper), audit_log.clone());
            let service = TowerToHyperService::new(keys);
            let request = request(method, path);
            let (result, results) = bounded(1);
            let hanging = keeper.hang();
            // The interface has only one thread, which a waiting request would block.
            let interface = move || {
                let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let wait = Duration::from_millis(10);
                let answer = runtime.block_on(async { timeout(wait, service.call(request)).await });
                result.send(answer.is_err()).unwrap();
            };
            let interface = thread::spawn(interface);
            let is_free = results.recv_timeout(Duration::from_secs(10));
            drop(hanging);
            assert_eq!(is_free, Ok(true), "{method} {path}");
            interface.join().unwrap();
        }
    }

    /// A regression: while the file system hung, waiting rotations used up the limit on commands,
    /// so that no back end could be drained.
    #[test]
    fn rotations_that_wait_for_the_file_leave_turns_for_other_commands() {
        let dir = tempfile::tempdir().unwrap();
        let keeper = keeper(dir.path());
        let (audit_log, _told) = AuditLog::channel();
        let other = Router::new().route("/other", put(|| async {}));
        let keys = router(Arc::clone(&keeper), audit_log);
        let service = TowerToHyperService::new(guard(keys.merge(other), Vec::new()));
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let hanging = keeper.hang();
        let (answers, other) = runtime.block_on(async {
            let mut answers = Vec::new();
            for _ in 0..COMMANDS_MAX {
                let rotation = service.call(request("POST", "/keys/next"));
                answers.push(timeout(Duration::from_millis(1), rotation).await);
            }
            let other = service.call(request("PUT", "/other"));
            (answers, timeout(Duration::from_secs(10), other).await)
        });
        drop(hanging);
        assert_eq!(other.expect("it has a turn").unwrap().status(), StatusCode::OK);
        let statuses = answers.into_iter().flatten().map(|answer| answer.unwrap().status());
        let statuses: Vec<_> = statuses.collect();
        assert!(statuses.iter().all(|status| *status == StatusCode::SERVICE_UNAVAILABLE));
        assert!(!statuses.is_empty() && statuses.len() <= COMMANDS_MAX - ROTATIONS_MAX);
    }
}
