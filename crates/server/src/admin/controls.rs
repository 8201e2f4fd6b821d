//! The parts of a running process that the admin pages show and change, and functions that wait
//! until the shards have applied a command.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::Response;
use tidegate_control::BanList;
use tidegate_io::Clock;
use tokio::time::{Instant, sleep};

use super::page::text;
use crate::audit::{AuditLog, AuditedRequest, Outcome};
use crate::config::command::Rejected;
use crate::key::Keeper;
use crate::rejections::Rejections;
use crate::runtime_control::{APPLY_WAIT, ControlError, RuntimeControl};

/// Interval at which a response checks whether the shards have applied a command.
const LOOK: Duration = Duration::from_millis(1);

/// The parts of a running process that operators see and change.
pub struct Controls {
    /// The control of the shards, for `/overload`, `/backends`, `/calls` and `/reload`.
    pub runtime_control: Arc<RuntimeControl>,
    /// The recorded rejections, for `/rejections` and `/calls`.
    pub rejections: Rejections,
    /// The bans, for `/bans`.
    pub bans: BanList,
    /// The keeper of the keys, for `/keys`. `None` if there is no key file.
    pub keeper: Option<Arc<Keeper>>,
    /// The log of the changes that operators make.
    pub audit_log: AuditLog,
    /// The clock of the shards.
    pub clock: Clock,
}

/// Waits until every shard has applied a command, but at most [`APPLY_WAIT`]. Then
/// [reports](report) the outcome. Use this function only for commands that no shard can reject.
pub(super) async fn await_applied(
    controls: &Controls,
    asked: AuditedRequest,
    command: Result<u64, ControlError>,
) -> Result<StatusCode, Box<Response>> {
    let applied = match command {
        Ok(number) => Ok(is_heard(controls, number).await),
        Err(why) => Err(why),
    };
    report(controls, asked, applied)
}

/// Writes the outcome of a command into the audit log, and returns the status of the HTTP response:
/// 200 if every shard has applied the command (`applied`), and 202 if not. Returns an error
/// response if the command was not sent, or if a shard has rejected it.
pub(super) fn report(
    controls: &Controls,
    asked: AuditedRequest,
    applied: Result<bool, ControlError>,
) -> Result<StatusCode, Box<Response>> {
    controls.audit_log.tell(asked, Outcome::of_command(&applied));
    match applied {
        Ok(true) => Ok(StatusCode::OK),
        Ok(false) => Ok(StatusCode::ACCEPTED),
        Err(why) => Err(Box::new(rejected(why))),
    }
}

/// Waits until every shard has applied or rejected the command with this number. Returns `false` if
/// this takes longer than [`APPLY_WAIT`].
pub(super) async fn is_heard(controls: &Controls, number: u64) -> bool {
    let deadline = Instant::now() + APPLY_WAIT;
    let mut heard = controls.runtime_control.was_heard(number);
    while !heard && Instant::now() < deadline {
        sleep(LOOK).await;
        heard = controls.runtime_control.was_heard(number);
    }
    heard
}

fn rejected(why: ControlError) -> Response {
    let status = match why {
        ControlError::Rejected(Rejected::Wrong(_))
        | ControlError::Unknown(_)
        | ControlError::Ambiguous(_) => StatusCode::BAD_REQUEST,
        ControlError::Rejected(Rejected::Restart(_))
        | ControlError::TooLong { .. }
        | ControlError::TooManyServers { .. }
        | ControlError::NoRoom => StatusCode::CONFLICT,
        ControlError::Reloading
        | ControlError::Unsettled
        | ControlError::CommandError(_)
        | ControlError::State(..) => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{}\n", why.to_string().trim_end()))
}
