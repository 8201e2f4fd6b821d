//! The pages of back ends: their states and duties, and the configuration that names them.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Extension, Router};
use tokio::task::spawn_blocking;

use super::connection::Peer;
use super::controls::{Controls, heeded};
use super::page::json;
use crate::acts::Asked;
use crate::steering::NotSteered;

/// The pages.
pub(super) fn router(controls: Arc<Controls>) -> Router {
    let (shown, assigned) = (Arc::clone(&controls), Arc::clone(&controls));
    let show = move || async move { listed(&shown, StatusCode::OK).await };
    let assign = move |Extension(Peer(peer)): Extension<Peer>,
                       Path((backend, duty)): Path<(String, String)>| async move {
        let order = assigned.steering.assign(&backend, &duty);
        let asked = Asked::by_admin(peer, format!("{duty} {backend}"));
        answer(&assigned, asked, order).await
    };
    let reload = move |Extension(Peer(peer)): Extension<Peer>| async move {
        // A large configuration takes a while to read, and other pages are asked for meanwhile.
        let steering = Arc::clone(&controls.steering);
        let order = spawn_blocking(move || steering.reload()).await;
        let order = order.expect("a reload does not panic");
        answer(&controls, Asked::by_admin(peer, "reload"), order).await
    };
    Router::new()
        .route("/backends", get(show))
        .route("/backends/{name}/{duty}", put(assign))
        .route("/reload", post(reload))
}

async fn answer(
    controls: &Arc<Controls>,
    asked: Asked,
    order: Result<u64, NotSteered>,
) -> Response {
    match heeded(controls, asked, order).await {
        Ok(status) => listed(controls, status).await,
        Err(refused) => refused,
    }
}

/// Returns the list of back ends. It is written beside the thread of the pages: ten thousand take a
/// while.
async fn listed(controls: &Arc<Controls>, status: StatusCode) -> Response {
    let controls = Arc::clone(controls);
    let list = move || json(status, &controls.steering.pools(controls.clock.now()));
    spawn_blocking(list).await.expect("writing a list does not panic")
}
