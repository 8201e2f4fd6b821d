//! The admin page of one call. It shows the entries of the call in the call tables of the shards,
//! and the reason if Tidegate rejected the call.

use std::sync::Arc;

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use tokio::sync::Mutex;

use super::controls::{Controls, is_heard};
use super::page::json;

pub(super) fn router(controls: Arc<Controls>) -> Router {
    // A shard keeps only its answer to the last query, so there is one query at a time.
    let turn = Arc::new(Mutex::new(()));
    let show = move |Path(call_id): Path<String>| async move {
        let _turn = turn.lock().await;
        call(&controls, &call_id).await
    };
    Router::new().route("/calls/{call_id}", get(show))
}

async fn call(controls: &Controls, call_id: &str) -> Response {
    let is_heard = match controls.runtime_control.look_up(call_id) {
        Ok(number) => is_heard(controls, number).await,
        Err(_) => false,
    };
    let (calls, is_complete) = controls.runtime_control.calls(call_id);
    let mut page = controls.rejections.of_call(controls.clock.now(), call_id);
    page["calls"] = calls;
    // If a shard has not received the query yet, its answer belongs to an earlier one.
    page["complete"] = (is_heard && is_complete).into();
    json(StatusCode::OK, &page)
}
