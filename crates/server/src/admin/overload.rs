//! The pages by which a running process is steered: above all its overload control.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use serde_json::Value;
use tidegate_control::BanList;
use tidegate_io::Clock;
use tidegate_world::ORDER_MAX;
use tokio::time::{Instant, sleep, timeout};

use super::backends;
use crate::config::order::Refused;
use crate::key::Keeper;
use crate::refusals::Refusals;
use crate::steering::{NotSteered, Steering};
use crate::{bans, laws};

use super::keys;

/// How long the body of a request may take.
const BODY_WAIT: Duration = Duration::from_secs(5);
/// How long an answer waits for the shards to heed an order, and how often it looks.
const HEED_WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// What operators see and change of a running process.
pub struct Controls {
    /// For `/overload`, `/backends` and `/reload`.
    pub steering: Arc<Steering>,
    /// For `/refusals`.
    pub refusals: Refusals,
    /// For `/bans`.
    pub bans: BanList,
    /// For `/keys`, if there is a file that holds them.
    pub keeper: Option<Arc<Keeper>>,
    /// The clock of the shards.
    pub clock: Clock,
}

/// The pages.
pub(super) fn router(controls: Controls) -> Router {
    let keys = controls.keeper.clone().map(keys::router).unwrap_or_default();
    let controls = Arc::new(controls);
    let backends = backends::router(Arc::clone(&controls));
    let (shown, changed) = (Arc::clone(&controls), Arc::clone(&controls));
    let (banned, lifted) = (Arc::clone(&controls), Arc::clone(&controls));
    let show = move || async move { json(StatusCode::OK, &shown.steering.read(shown.clock.now())) };
    let change = move |body: Body| async move { change(&changed, body).await };
    let banned = move || async move {
        json(StatusCode::OK, &bans::to_json(&banned.bans, banned.clock.now()))
    };
    let lift = move |Path(address): Path<String>| async move { lift(&lifted, &address) };
    let refusals =
        move || async move { json(StatusCode::OK, &controls.refusals.read(controls.clock.now())) };
    Router::new()
        .route("/overload", get(show).put(change))
        .route("/laws", get(|| async { json(StatusCode::OK, &laws::all()) }))
        .route("/refusals", get(refusals))
        .route("/bans", get(banned))
        .route("/bans/{address}", delete(lift))
        .merge(backends)
        .merge(keys)
}

async fn change(controls: &Controls, body: Body) -> Response {
    let body = match timeout(BODY_WAIT, to_bytes(body, ORDER_MAX / 2)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => return text(StatusCode::PAYLOAD_TOO_LARGE, "too long for an order\n"),
        Err(_) => {
            return text(StatusCode::REQUEST_TIMEOUT, "the request did not come to its end\n");
        }
    };
    match heeded(&controls.steering, controls.steering.steer(&body)).await {
        Ok(status) => json(status, &controls.steering.read(controls.clock.now())),
        Err(refused) => refused,
    }
}

/// Waits for the shards to heed an order that was given, and says whether all have; or why none was
/// given.
pub(super) async fn heeded(
    steering: &Steering,
    order: Result<u64, NotSteered>,
) -> Result<StatusCode, Response> {
    let number = order.map_err(refused)?;
    let deadline = Instant::now() + HEED_WAIT;
    let mut heard = steering.was_heard(number);
    while !heard && Instant::now() < deadline {
        sleep(LOOK).await;
        heard = steering.was_heard(number);
    }
    Ok(if heard { StatusCode::OK } else { StatusCode::ACCEPTED })
}

fn refused(why: NotSteered) -> Response {
    let status = match why {
        NotSteered::Refused(Refused::Wrong(_)) | NotSteered::Unknown(_) => StatusCode::BAD_REQUEST,
        NotSteered::Refused(Refused::Restart(_)) | NotSteered::TooLong(_) => StatusCode::CONFLICT,
        NotSteered::NotGiven(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{}\n", why.to_string().trim_end()))
}

/// Ends a ban, and shows those that are left.
fn lift(controls: &Controls, address: &str) -> Response {
    let Ok(address) = address.parse() else {
        return text(StatusCode::BAD_REQUEST, format!("{address} is not an IP address\n"));
    };
    let now = controls.clock.now();
    if bans::lift(&controls.bans, now, address) {
        json(StatusCode::OK, &bans::to_json(&controls.bans, now))
    } else {
        text(StatusCode::NOT_FOUND, format!("{address} is not banned\n"))
    }
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{value:#}\n")).into_response()
}

pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}
