//! The pages by which a running process is steered: above all its overload control.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get};
use axum::{Extension, Router};
use serde_json::Value;
use tidegate_control::{BanList, Values};
use tidegate_io::Clock;
use tidegate_proxy::Overload;
use tokio::time::{Instant, sleep, timeout};

use super::connection::Peer;
use super::{backends, calls};
use crate::acts::{Acts, Asked, Outcome};
use crate::config::order::Refused;
use crate::key::Keeper;
use crate::refusals::Refusals;
use crate::steering::{NotSteered, Steering};
use crate::{bans, laws};

use super::keys;

/// How long the body of a request may take.
/// Bytes of a body that asks for other laws.
const BODY_MAX: usize = 16 * 1024;
const BODY_WAIT: Duration = Duration::from_secs(5);
/// How long an answer waits for the shards to heed an order, and how often it looks.
const HEED_WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// What operators see and change of a running process.
pub struct Controls {
    /// For `/overload`, `/backends`, `/calls` and `/reload`.
    pub steering: Arc<Steering>,
    /// For `/rejections` and `/calls`.
    pub refusals: Refusals,
    /// For `/bans`.
    pub bans: BanList,
    /// For `/keys`, if there is a file that holds them.
    pub keeper: Option<Arc<Keeper>>,
    /// Where it is told what was changed, and by whom.
    pub acts: Acts,
    /// The clock of the shards.
    pub clock: Clock,
}

/// The pages.
pub(super) fn router(controls: Controls) -> Router {
    let keys = |keeper| keys::router(keeper, controls.acts.clone());
    let keys = controls.keeper.clone().map(keys).unwrap_or_default();
    let controls = Arc::new(controls);
    let backends = backends::router(Arc::clone(&controls));
    let (shown, changed) = (Arc::clone(&controls), Arc::clone(&controls));
    let (banned, lifted) = (Arc::clone(&controls), Arc::clone(&controls));
    let show = move || async move { json(StatusCode::OK, &shown.steering.read(shown.clock.now())) };
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
        .route("/laws", get(|| async { json(StatusCode::OK, &laws::all()) }))
        .route("/rejections", get(rejections.clone()))
        // Its name before version 1.
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
        Ok(Err(_)) => return text(StatusCode::PAYLOAD_TOO_LARGE, "too long for an order\n"),
        Err(_) => {
            return text(StatusCode::REQUEST_TIMEOUT, "the request did not come to its end\n");
        }
    };
    let order = controls.steering.steer(&body);
    let what = match &order {
        Ok((_, overload)) => in_words(overload),
        Err(_) => "another law".to_owned(),
    };
    let order = order.map(|(number, _)| number);
    match heeded(controls, Asked::by_admin(peer, what), order).await {
        Ok(status) => json(status, &controls.steering.read(controls.clock.now())),
        Err(refused) => refused,
    }
}

/// The laws of `overload`, with the parameters that have not their defaults.
fn in_words(overload: &Overload) -> String {
    let law = |role: &str, law: &Values| {
        let given = law.each().filter(|(param, value)| *value != param.default);
        let given: String = given.map(|(p, value)| format!(" {}={value}", p.name)).collect();
        format!("{role} {}{given}", law.entry().name)
    };
    let shadow = overload.gate.shadow.as_ref().map(|shadow| law(", shadow", shadow));
    law("law", &overload.gate.law) + &shadow.unwrap_or_default()
}

/// Waits for the shards to heed an order that was given, and says whether all have; or why none was
/// given. Either is told.
pub(super) async fn heeded(
    controls: &Controls,
    asked: Asked,
    order: Result<u64, NotSteered>,
) -> Result<StatusCode, Response> {
    let number = match order {
        Ok(number) => number,
        Err(why) => {
            controls.acts.tell(asked, Outcome::Not(why.to_string()));
            return Err(refused(why));
        }
    };
    let (outcome, status) = match is_heard(controls, number).await {
        true => (Outcome::Done, StatusCode::OK),
        false => (Outcome::Ordered, StatusCode::ACCEPTED),
    };
    controls.acts.tell(asked, outcome);
    Ok(status)
}

/// Waits until every shard has heard the order of this number; `false` if one has not in time.
pub(super) async fn is_heard(controls: &Controls, number: u64) -> bool {
    let deadline = Instant::now() + HEED_WAIT;
    let mut heard = controls.steering.was_heard(number);
    while !heard && Instant::now() < deadline {
        sleep(LOOK).await;
        heard = controls.steering.was_heard(number);
    }
    heard
}

fn refused(why: NotSteered) -> Response {
    let status = match why {
        NotSteered::Refused(Refused::Wrong(_)) | NotSteered::Unknown(_) => StatusCode::BAD_REQUEST,
        NotSteered::Refused(Refused::Restart(_)) | NotSteered::TooLong(_) => StatusCode::CONFLICT,
        NotSteered::NotGiven(_) | NotSteered::State(..) => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{}\n", why.to_string().trim_end()))
}

/// Ends a ban, and shows those that are left.
fn lift(controls: &Controls, peer: SocketAddr, address: &str) -> Response {
    let now = controls.clock.now();
    let lifted = match address.parse() {
        Err(_) => Err((StatusCode::BAD_REQUEST, format!("{address} is not an IP address"))),
        Ok(source) if bans::lift(&controls.bans, now, source) => Ok(()),
        Ok(_) => Err((StatusCode::NOT_FOUND, format!("{address} is not banned"))),
    };
    let why = lifted.as_ref().map_err(|(_, why)| why);
    controls.acts.tell(Asked::by_admin(peer, format!("unban {address}")), Outcome::of(&why));
    match lifted {
        Ok(()) => json(StatusCode::OK, &bans::to_json(&controls.bans, now)),
        Err((status, why)) => text(status, format!("{why}\n")),
    }
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, format!("{value:#}\n")).into_response()
}

pub(super) fn text(status: StatusCode, text: impl Into<String>) -> Response {
    (status, text.into()).into_response()
}
