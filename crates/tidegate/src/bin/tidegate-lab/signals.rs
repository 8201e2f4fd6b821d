//! Ctrl-C and SIGTERM, for commands that keep what they did by then.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidegate::trouble::Trouble;
use tidegate_server::signal::Signals;

/// Returns a flag that SIGINT or SIGTERM sets.
///
/// # Errors
/// When signals cannot be caught.
pub fn cancelled_by_signal() -> Result<Arc<AtomicBool>, Trouble> {
    let uncaught = |error| Trouble::failure(format!("signals cannot be caught: {error}"));
    let signals = Signals::catch_stops().map_err(uncaught)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&cancelled);
    let watch = move || {
        while signals.stops().recv().is_ok() {
            told.store(true, Ordering::SeqCst);
        }
    };
    thread::Builder::new().name("watch".to_owned()).spawn(watch).map_err(uncaught)?;
    Ok(cancelled)
}
