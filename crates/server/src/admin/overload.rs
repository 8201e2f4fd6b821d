//! The pages that control a running process, mainly its overload control.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{delete, get};
use axum::{Extension, Router};
use tidegate_control::Values;
use tidegate_control::registry::LAWS;
use tidegate_proxy::Overload;
use tokio::time::timeout;

use super::connection::Peer;
use super::controls::{Controls, await_applied};
use super::page::{json, text};
use super::{backends, calls, keys};
use crate::audit::{AuditedRequest, Outcome};
use crate::{bans, laws};

/// The longest body of a request that changes the laws, in bytes.
const BODY_MAX: usize = 16 * 1024;
/// Maximum time in which the body of a request must arrive.
const BODY_WAIT: Duration = Duration::from_secs(5);

/// Returns the HTTP routes of the pages.
pub(super) fn router(controls: Controls) -> Router {
    let keys = |keeper| keys::router(keeper, controls.audit_log.clone());
    let keys = controls.keeper.clone().map(keys).unwrap_or_default();
    let controls = Arc::new(controls);
    let backends = backends::router(Arc::clone(&controls));
    let (shown, changed) = (Arc::clone(&controls), Arc::clone(&controls));
    let (banned, lifted) = (Arc::clone(&controls), Arc::clone(&controls));
    let show =
        move || async move { json(StatusCode::OK, &shown.runtime_control.read(shown.clock.now())) };
    let change = move |Extension(Peer(peer)): Extension<Peer>, body: Body| async move {
        change(&changed, peer, body).await
    };
    let banned = move || async move {
        json(StatusCode::OK, &bans::to_json(&banned.bans, banned.clock.now()))
    };
    let lift = move |Extension(Peer(peer)): Extension<Peer>, Path(address): Path<String>| async move {
        lift(&lifted, peer, &address)
    };
    let (kept, calls) = (Arc::clone(&controls), calls::router(controls));
    let rejections =
        move || async move { json(StatusCode::OK, &kept.refusals.read(kept.clock.now())) };
    Router::new()
        .route("/overload", get(show).put(change))
        .route("/laws", get(|| async { json(StatusCode::OK, &laws::all(&LAWS)) }))
        .route("/rejections", get(rejections.clone()))
        // The name of `/rejections` before version 1.
        .route("/refusals", get(rejections))
        .route("/bans", get(banned))
        .route("/bans/{address}", delete(lift))
        .merge(backends)
        .merge(calls)
        .merge(keys)
}

async fn change(controls: &Controls, peer: SocketAddr, body: Body) -> Response {
    let body = match timeout(BODY_WAIT, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let why = format!("the request is longer than {} KiB\n", BODY_MAX / 1024);
            return text(StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        Err(_) => {
            let why = format!("the request did not arrive within {} s\n", BODY_WAIT.as_secs());
            return text(StatusCode::REQUEST_TIMEOUT, why);
        }
    };
    let command = controls.runtime_control.steer(&body);
    let what = match &command {
        Ok((_, overload)) => in_words(overload),
        Err(_) => "law".to_owned(),
    };
    let command = command.map(|(number, _)| number);
    match await_applied(controls, AuditedRequest::by_admin(peer, what), command).await {
        Ok(status) => json(status, &controls.runtime_control.read(controls.clock.now())),
        Err(refused) => refused,
    }
}

/// Formats the law and the shadow law of `overload` for the audit log. Only parameters that differ
/// from their defaults are included.
fn in_words(overload: &Overload) -> String {
    let law = |role: &str, law: &Values| {
        let given = law.each().filter(|(param, value)| *value != param.default);
        let given: String = given.map(|(p, value)| format!(" {}={value}", p.name)).collect();
        format!("{role} {}{given}", law.entry().name)
    };
    let shadow = overload.gate.shadow.as_ref().map(|shadow| law(", shadow", shadow));
    law("law", &overload.gate.law) + &shadow.unwrap_or_default()
}

/// Ends the bans of the source with this address. Responds with the remaining bans.
fn lift(controls: &Controls, peer: SocketAddr, address: &str) -> Response {
    let now = controls.clock.now();
    let lifted = match address.parse() {
        Err(_) => Err((StatusCode::BAD_REQUEST, format!("{address} is not an IP address"))),
        Ok(source) if bans::lift(&controls.bans, now, source) => Ok(()),
        Ok(_) => Err((StatusCode::NOT_FOUND, format!("{address} is not banned"))),
    };
    let why = lifted.as_ref().map_err(|(_, why)| why);
    controls
        .audit_log
        .tell(AuditedRequest::by_admin(peer, format!("unban {address}")), Outcome::of(&why));
    match lifted {
        Ok(()) => json(StatusCode::OK, &bans::to_json(&controls.bans, now)),
        Err((status, why)) => text(status, format!("{why}\n")),
    }
}
