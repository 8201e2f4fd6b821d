//! The admin pages that show back ends, change their administrative states, and reload the
//! configuration.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::connection::Peer;
use super::controls::{Controls, await_applied, report};
use super::page::json;
use crate::audit::AuditedRequest;
use crate::runtime_control::ControlError;

/// Maximum number of reloads at the same time: one that is running, and three that wait for it to
/// end. A reload waits up to two seconds for the shards, and `tidegate ctl` waits ten seconds for
/// the response.
const RELOADS_MAX: usize = 4;

pub(super) fn router(controls: Arc<Controls>) -> Router {
    let (shown, assigned) = (Arc::clone(&controls), Arc::clone(&controls));
    let show = move || async move { listed(&shown, StatusCode::OK).await };
    let assign = move |Extension(Peer(peer)): Extension<Peer>,
                       Path((backend, admin_state)): Path<(String, String)>| async move {
        let command = assigned.runtime_control.assign(&backend, &admin_state);
        let asked = AuditedRequest::by_admin(peer, format!("{admin_state} {backend}"));
        answer(&assigned, await_applied(&assigned, asked, command).await).await
    };
    let turns = Arc::new(Semaphore::new(RELOADS_MAX));
    let reload = move |Extension(Peer(peer)): Extension<Peer>| async move {
        let asked = AuditedRequest::by_admin(peer, "reload");
        let applied = reload(&controls, &turns).await;
        answer(&controls, report(&controls, asked, applied)).await
    };
    Router::new()
        .route("/backends", get(show))
        .route("/backends/{name}/{admin_state}", put(assign))
        .route("/reload", post(reload))
}

/// Reloads the configuration, or returns an error if [`RELOADS_MAX`] reloads are running or
/// waiting. Returns whether every shard has applied the new configuration.
async fn reload(controls: &Controls, turns: &Semaphore) -> Result<bool, ControlError> {
    let Ok(_turn) = turns.try_acquire() else { return Err(ControlError::Reloading) };
    // Reading a large configuration takes time. A separate thread reads it, so that other pages
    // stay available.
    let runtime_control = Arc::clone(&controls.runtime_control);
    spawn_blocking(move || runtime_control.reload()).await.expect("a reload does not panic")
}

async fn answer(controls: &Arc<Controls>, applied: Result<StatusCode, Box<Response>>) -> Response {
    match applied {
        Ok(status) => listed(controls, status).await,
        Err(rejected) => *rejected,
    }
}

/// Returns a response with the list of back ends. Another thread generates the list, because this
/// takes some time for ten thousand back ends.
async fn listed(controls: &Arc<Controls>, status: StatusCode) -> Response {
    let controls = Arc::clone(controls);
    let list = move || json(status, &controls.runtime_control.pools(controls.clock.now()));
    spawn_blocking(list).await.expect("writing a list does not panic")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use tidegate_io::{Clock, CommandSender};
    use tokio::runtime;
    use tokio::time::sleep;

    use super::*;
    use crate::audit::AuditLog;
    use crate::testing::{SMALL, assemble, load};

    /// A regression: the third of three reloads at the same time was rejected.
    #[test]
    fn reloads_wait_for_their_turn_and_are_rejected_only_if_many_wait() {
        let dir = tempfile::tempdir().unwrap();
        let config = load(dir.path(), SMALL);
        let assembly = assemble(&config);
        let control = Arc::new(assembly.runtime_control(CommandSender::to(0)));
        // With this count, the shard seems to have applied all commands at once.
        assembly.counters()[0].proxy.in_force.commands.set(RELOADS_MAX as u64);
        let (audit_log, told) = AuditLog::channel();
        let controls = Controls {
            runtime_control: Arc::clone(&control),
            rejections: assembly.rejections(),
            bans: assembly.bans().clone(),
            keeper: None,
            audit_log,
            clock: Clock::start(),
        };
        let service = TowerToHyperService::new(router(Arc::new(controls)));
        let reload = || {
            let peer = Peer(SocketAddr::from(([127, 0, 0, 1], 1)));
            let request = Request::post("/reload").extension(peer).body(Body::empty());
            service.call(request.unwrap())
        };
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let hanging = control.hang();
        let (waiting, further) = runtime.block_on(async {
            let waiting: Vec<_> = (0..RELOADS_MAX).map(|_| tokio::spawn(reload())).collect();
            // Gives every task time to begin its reload.
            sleep(Duration::from_millis(20)).await;
            (waiting, reload().await.unwrap().status())
        });
        drop(hanging);
        assert_eq!(further, StatusCode::SERVICE_UNAVAILABLE);
        let why = told.try_recv().unwrap().to_string();
        assert!(why.ends_with(
            "failed: a reload is running, and too many other reloads wait; try again later"
        ));
        for reload in waiting {
            let answer = runtime.block_on(reload).unwrap().unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
        }
        assert_eq!(told.try_iter().count(), RELOADS_MAX);
    }
}
