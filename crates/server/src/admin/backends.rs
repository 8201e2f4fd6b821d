//! The pages of back ends: their states, and the reload of the configuration.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::connection::Peer;
use super::controls::{Controls, await_applied};
use super::page::json;
use crate::audit::AuditedRequest;
use crate::runtime_control::ControlError;

/// Maximum number of reloads at the same time: one that is running, and one that waits.
const RELOADS_MAX: usize = 2;

/// Returns the HTTP routes of the pages.
pub(super) fn router(controls: Arc<Controls>) -> Router {
    let (shown, assigned) = (Arc::clone(&controls), Arc::clone(&controls));
    let show = move || async move { listed(&shown, StatusCode::OK).await };
    let assign = move |Extension(Peer(peer)): Extension<Peer>,
                       Path((backend, admin_state)): Path<(String, String)>| async move {
        let command = assigned.runtime_control.assign(&backend, &admin_state);
        let asked = AuditedRequest::by_admin(peer, format!("{admin_state} {backend}"));
        answer(&assigned, asked, command).await
    };
    let turns = Arc::new(Semaphore::new(RELOADS_MAX));
    let reload = move |Extension(Peer(peer)): Extension<Peer>| async move {
        let asked = AuditedRequest::by_admin(peer, "reload");
        let Ok(_turn) = turns.try_acquire() else {
            return answer(&controls, asked, Err(ControlError::Reloading)).await;
        };
        // Reading a large configuration takes time. A separate thread reads it, so that other pages
        // stay available.
        let runtime_control = Arc::clone(&controls.runtime_control);
        let command = spawn_blocking(move || runtime_control.reload()).await;
        let command = command.expect("a reload does not panic");
        answer(&controls, asked, command).await
    };
    Router::new()
        .route("/backends", get(show))
        .route("/backends/{name}/{admin_state}", put(assign))
        .route("/reload", post(reload))
}

async fn answer(
    controls: &Arc<Controls>,
    asked: AuditedRequest,
    command: Result<u64, ControlError>,
) -> Response {
    match await_applied(controls, asked, command).await {
        Ok(status) => listed(controls, status).await,
        Err(refused) => refused,
    }
}

/// Returns the list of back ends. Another thread writes the list, because this takes some time for
/// ten thousand back ends.
async fn listed(controls: &Arc<Controls>, status: StatusCode) -> Response {
    let controls = Arc::clone(controls);
    let list = move || json(status, &controls.runtime_control.pools(controls.clock.now()));
    spawn_blocking(list).await.expect("writing a list does not panic")
}
