//! The page of the keys.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};

use super::connection::Peer;
use super::page::{json, text};
use crate::audit::{AuditLog, AuditedRequest, Outcome};
use crate::key::{Keeper, NotKept, unix_time};

/// Returns the HTTP routes of the page and of rotation.
pub(super) fn router(keeper: Arc<Keeper>, audit_log: AuditLog) -> Router {
    let shown = Arc::clone(&keeper);
    let show = move || async move { json(StatusCode::OK, &shown.shown(unix_time())) };
    let rotate = move |Extension(Peer(peer)): Extension<Peer>| async move {
        rotate(&keeper, &audit_log, AuditedRequest::by_admin(peer, "rotate"))
    };
    Router::new().route("/keys", get(show)).route("/keys/next", post(rotate))
}

/// Makes the next key, and shows all keys. This takes some milliseconds, because the function waits
/// until the file is on disk.
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
