//! Handling of Ctrl-C and SIGTERM for commands that end early and keep the finished results.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidegate::trouble::Trouble;
use tidegate_server::signal::Signals;

/// Returns a flag that SIGINT or SIGTERM sets.
///
/// # Errors
/// Returns an error if the signal handlers cannot be installed.
pub fn cancelled_by_signal() -> Result<Arc<AtomicBool>, Trouble> {
    let signals = Signals::catch_stops().map_err(Trouble::uncaught_signals)?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&cancelled);
    let watch = move || {
        while signals.stops().recv().is_ok() {
            told.store(true, Ordering::SeqCst);
        }
    };
    thread::Builder::new()
        .name("watch".to_owned())
        .spawn(watch)
        .map_err(Trouble::uncaught_signals)?;
    Ok(cancelled)
}
