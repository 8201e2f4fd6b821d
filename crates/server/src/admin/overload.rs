//! The admin pages that show and change a running process, mainly its overload control.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request};
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

pub(super) fn router(controls: Controls) -> Router {
    let keys = |keeper| keys::router(keeper, controls.audit_log.clone());
    let keys = controls.keeper.clone().map(keys).unwrap_or_default();
    let controls = Arc::new(controls);
    let backends = backends::router(Arc::clone(&controls));
    let (shown, changed) = (Arc::clone(&controls), Arc::clone(&controls));
    let (banned, lifted) = (Arc::clone(&controls), Arc::clone(&controls));
    let show =
        move || async move { json(StatusCode::OK, &shown.runtime_control.read(shown.clock.now())) };
    let change = move |Extension(Peer(peer)): Extension<Peer>, request: Request| async move {
        change(&changed, peer, request).await
    };
    let banned = move || async move {
        json(StatusCode::OK, &bans::to_json(&banned.bans, banned.clock.now()))
    };
    let lift = move |Extension(Peer(peer)): Extension<Peer>, Path(address): Path<String>| async move {
        lift(&lifted, peer, &address).await
    };
    let (kept, calls) = (Arc::clone(&controls), calls::router(controls));
    let rejections =
        move || async move { json(StatusCode::OK, &kept.rejections.read(kept.clock.now())) };
    Router::new()
        .route("/overload", get(show).put(change))
        .route("/laws", get(|| async { json(StatusCode::OK, &laws::all(&LAWS)) }))
        .route("/rejections", get(rejections))
        .route("/bans", get(banned))
        .route("/bans/{address}", delete(lift))
        .merge(backends)
        .merge(calls)
        .merge(keys)
}

async fn change(controls: &Controls, peer: SocketAddr, request: Request) -> Response {
    let body = match read_body(request).await {
        Ok(body) => body,
        Err(rejected) => return rejected,
    };
    let command = controls.runtime_control.steer(&body);
    let what = match &command {
        Ok((_, overload)) => in_words(overload),
        Err(_) => "law".to_owned(),
    };
    let command = command.map(|(number, _)| number);
    match await_applied(controls, AuditedRequest::by_admin(peer, what), command).await {
        Ok(status) => json(status, &controls.runtime_control.read(controls.clock.now())),
        Err(rejected) => *rejected,
    }
}

/// Reads the body of a request. Returns an error response if the body is too long, comes too slowly
/// or cannot be read.
async fn read_body(mut request: Request) -> Result<Bytes, Response> {
    DefaultBodyLimit::max(BODY_MAX).apply(&mut request);
    let (status, why) = match timeout(BODY_WAIT, Bytes::from_request(request, &())).await {
        Ok(Ok(body)) => return Ok(body),
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            (error.status(), format!("the request is longer than {} KiB\n", BODY_MAX / 1024))
        }
        Ok(Err(_)) => {
            let why = "the body of the request is malformed or incomplete; send it again\n";
            (StatusCode::BAD_REQUEST, why.to_owned())
        }
        Err(_) => {
            let why = format!(
                "the body of the request did not arrive within {} s; send it again\n",
                BODY_WAIT.as_secs()
            );
            (StatusCode::REQUEST_TIMEOUT, why)
        }
    };
    Err(text(status, why))
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
async fn lift(controls: &Controls, peer: SocketAddr, address: &str) -> Response {
    let asked = AuditedRequest::by_admin(peer, format!("unban {address}"));
    let (status, why) = match address.parse() {
        Err(_) => (StatusCode::BAD_REQUEST, format!("{address} is not an IP address")),
        Ok(source) if bans::is_banned(&controls.bans, controls.clock.now(), source) => {
            let command = controls.runtime_control.unban(source);
            return match await_applied(controls, asked, command).await {
                Ok(status) => json(status, &bans::to_json(&controls.bans, controls.clock.now())),
                Err(rejected) => *rejected,
            };
        }
        Ok(_) => (StatusCode::NOT_FOUND, format!("{address} is not banned")),
    };
    controls.audit_log.tell(asked, Outcome::Not(why.clone()));
    text(status, format!("{why}\n"))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use axum::body::{Body, HttpBody};
    use hyper::body::Frame;
    use tokio::runtime;

    use super::*;

    /// A body that cannot be read, such as one whose chunks are malformed.
    struct Malformed;

    impl HttpBody for Malformed {
        type Data = Bytes;
        type Error = io::Error;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Ready(Some(Err(io::ErrorKind::InvalidData.into())))
        }
    }

    /// A regression: every body that could not be read was called too long.
    #[test]
    fn only_a_body_above_the_limit_is_too_long() {
        let runtime = runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let status = |body: Body| match runtime.block_on(read_body(Request::new(body))) {
            Ok(_) => StatusCode::OK,
            Err(response) => response.status(),
        };
        assert_eq!(status(Body::from(vec![b'#'; BODY_MAX])), StatusCode::OK);
        let long = Body::from(vec![b'#'; BODY_MAX + 1]);
        assert_eq!(status(long), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(status(Body::new(Malformed)), StatusCode::BAD_REQUEST);
    }
}
