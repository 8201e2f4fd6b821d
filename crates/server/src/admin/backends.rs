//! The pages of back ends: what they are there for, and the configuration that names them.

use std::sync::Arc;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post, put};
use axum::{Extension, Router};

use super::connection::Peer;
use super::controls::{Controls, heeded};
use super::page::json;
use crate::acts::Asked;
use crate::steering::NotSteered;

/// The pages.
pub(super) fn router(controls: Arc<Controls>) -> Router {
    let (shown, assigned) = (Arc::clone(&controls), Arc::clone(&controls));
    let show =
        move || async move { json(StatusCode::OK, &shown.steering.pools(shown.clock.now())) };
    let assign = move |Extension(Peer(peer)): Extension<Peer>,
                       Path((backend, duty)): Path<(String, String)>| async move {
        let order = assigned.steering.assign(&backend, &duty);
        let asked = Asked::by_admin(peer, format!("{duty} {backend}"));
        answer(&assigned, asked, order).await
    };
    let reload = move |Extension(Peer(peer)): Extension<Peer>| async move {
        let order = controls.steering.reload();
        answer(&controls, Asked::by_admin(peer, "reload"), order).await
    };
    Router::new()
        .route("/backends", get(show))
        .route("/backends/{name}/{duty}", put(assign))
        .route("/reload", post(reload))
}

async fn answer(controls: &Controls, asked: Asked, order: Result<u64, NotSteered>) -> Response {
    match heeded(controls, asked, order).await {
        Ok(status) => json(status, &controls.steering.pools(controls.clock.now())),
        Err(refused) => refused,
    }
}
