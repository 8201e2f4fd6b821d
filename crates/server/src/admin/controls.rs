//! What the pages see and change of a running process, and how they wait for an order to be heeded.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use tidegate_control::BanList;
use tidegate_io::Clock;
use tokio::time::{Instant, sleep};

use super::page::text;
use crate::acts::{Acts, Asked, Outcome};
use crate::config::order::Refused;
use crate::key::Keeper;
use crate::refusals::Refusals;
use crate::steering::{NotSteered, Steering};

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
        NotSteered::Refused(Refused::Restart(_)) | NotSteered::TooLong { .. } => {
            StatusCode::CONFLICT
        }
        NotSteered::NotGiven(_) | NotSteered::State(..) => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{}\n", why.to_string().trim_end()))
}
