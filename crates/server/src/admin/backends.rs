//! The pages of back ends: what they are there for, and the configuration that names them.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post, put};

use super::overload::{Controls, heeded, json};
use crate::steering::NotSteered;

/// The pages.
pub(super) fn router(controls: Arc<Controls>) -> Router {
    let (shown, assigned) = (Arc::clone(&controls), Arc::clone(&controls));
    let show =
        move || async move { json(StatusCode::OK, &shown.steering.pools(shown.clock.now())) };
    let assign = move |Path((backend, duty)): Path<(String, String)>| async move {
        let order = assigned.steering.assign(&backend, &duty);
        answer(&assigned, order).await
    };
    let reload = move || async move {
        let order = controls.steering.reload();
        answer(&controls, order).await
    };
    Router::new()
        .route("/backends", get(show))
        .route("/backends/{name}/{duty}", put(assign))
        .route("/reload", post(reload))
}

async fn answer(controls: &Controls, order: Result<u64, NotSteered>) -> Response {
    match heeded(&controls.steering, order).await {
        Ok(status) => json(status, &controls.steering.pools(controls.clock.now())),
        Err(refused) => refused,
    }
}
