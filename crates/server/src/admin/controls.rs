//! What the pages see and change of a running process, and how they wait for an order to be heeded.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use tidegate_control::BanList;
use tidegate_io::Clock;
use tokio::time::{Instant, sleep};

use super::page::text;
use crate::audit::{AuditLog, AuditedRequest, Outcome};
use crate::config::command::Refused;
use crate::key::Keeper;
use crate::rejections::Rejections;
use crate::runtime_control::{ControlError, RuntimeControl};

/// How long an answer waits for the shards to heed an order, and how often it looks.
const APPLY_WAIT: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(1);

/// What operators see and change of a running process.
pub struct Controls {
    /// For `/overload`, `/backends`, `/calls` and `/reload`.
    pub runtime_control: Arc<RuntimeControl>,
    /// For `/rejections` and `/calls`.
    pub refusals: Rejections,
    /// For `/bans`.
    pub bans: BanList,
    /// For `/keys`, if there is a file that holds them.
    pub keeper: Option<Arc<Keeper>>,
    /// Where it is told what was changed, and by whom.
    pub audit_log: AuditLog,
    /// The clock of the shards.
    pub clock: Clock,
}

/// Waits for the shards to heed an order that was given, and says whether all have; or why none was
/// given. Either is told.
pub(super) async fn await_applied(
    controls: &Controls,
    asked: AuditedRequest,
    command: Result<u64, ControlError>,
) -> Result<StatusCode, Response> {
    let number = match command {
        Ok(number) => number,
        Err(why) => {
            controls.audit_log.tell(asked, Outcome::Not(why.to_string()));
            return Err(refused(why));
        }
    };
    let (outcome, status) = match is_heard(controls, number).await {
        true => (Outcome::Done, StatusCode::OK),
        false => (Outcome::Pending, StatusCode::ACCEPTED),
    };
    controls.audit_log.tell(asked, outcome);
    Ok(status)
}

/// Waits until every shard has heard the order of this number; `false` if one has not in time.
pub(super) async fn is_heard(controls: &Controls, number: u64) -> bool {
    let deadline = Instant::now() + APPLY_WAIT;
    let mut heard = controls.runtime_control.was_heard(number);
    while !heard && Instant::now() < deadline {
        sleep(LOOK).await;
        heard = controls.runtime_control.was_heard(number);
    }
    heard
}

fn refused(why: ControlError) -> Response {
    let status = match why {
        ControlError::Refused(Refused::Wrong(_)) | ControlError::Unknown(_) => {
            StatusCode::BAD_REQUEST
        }
        ControlError::Refused(Refused::Restart(_)) | ControlError::TooLong { .. } => {
            StatusCode::CONFLICT
        }
        ControlError::CommandError(_) | ControlError::State(..) => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{}\n", why.to_string().trim_end()))
}
