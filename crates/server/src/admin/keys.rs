//! The page of the keys.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};

use super::overload::{json, text};
use crate::key::{Keeper, NotKept, unix_time};

/// The page, and how keys are rotated.
pub(super) fn router(keeper: Arc<Keeper>) -> Router {
    let shown = Arc::clone(&keeper);
    let show = move || async move { json(StatusCode::OK, &shown.shown(unix_time())) };
    let rotate = move || async move { rotate(&keeper) };
    Router::new().route("/keys", get(show)).route("/keys/next", post(rotate))
}

/// Makes the next key, and shows all. It takes some milliseconds, until the file is on disk.
fn rotate(keeper: &Keeper) -> Response {
    let now = unix_time();
    match keeper.rotate(now) {
        Ok(()) => json(StatusCode::OK, &keeper.shown(now)),
        Err(why @ (NotKept::NotRotated(_) | NotKept::Busy)) => {
            text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
        }
        Err(why) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")),
    }
}
