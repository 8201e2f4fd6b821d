//! `tidegate run`: runs the proxy until a signal stops it.

mod log_writer;

use std::io::{IsTerminal, Write, stderr};
use std::path::PathBuf;
use std::process::ExitCode;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tidegate_server::config::{Config, TlsFiles};
use tidegate_server::key;
use tidegate_server::recording::{Recorded, RecordingTarget, SIZE_MIN};
use tidegate_server::signal::Signals;
use tidegate_server::{
    Ending, Event, Finish, RAISE_LIMITS, RunError, StartError, Started, run as serve,
};

use self::log_writer::LogWriter;
use crate::check::warn_of_certificates;
use crate::configuration_file::ConfigurationFile;
use tidegate::WRONG_USE;
use tidegate::trouble::Trouble;

/// Run the proxy
///
/// SIGTERM, SIGINT or SIGQUIT drains and then stops the proxy: it takes no new calls, and waits
/// until no transaction is open, for at most `drain_seconds`. So it still sets up the calls that
/// have begun. A second signal stops the proxy at once. SIGHUP reloads the configuration.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    file: ConfigurationFile,

    /// Write everything that the proxy receives to FILE, for `tidegate replay`. FILE then also
    /// contains the secret keys from `route.key`. An earlier recording at this path is renamed to
    /// FILE.old
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Maximum size of the recording in MiB. When the file is full, Tidegate overwrites the oldest
    /// part
    #[arg(
        long,
        value_name = "MIB",
        requires = "record",
        default_value_t = 256,
        value_parser = clap::value_parser!(u64).range(SIZE_MIN >> 20..1 << 20)
    )]
    record_max: u64,

    /// Stop at once when the process PID, which must be the parent process, ends
    #[arg(long, value_name = "PID", hide = true)]
    end_with: Option<u32>,
}

/// Runs the proxy. Logs its addresses and the reason for its end.
pub fn run(args: &Args) -> ExitCode {
    let file = args.file.path();
    let (config, tls, source) = match Config::load(file) {
        Ok(read) => read,
        Err(diagnostics) => {
            let colour = stderr().is_terminal();
            let _ = write!(anstream::stderr(), "{}", diagnostics.render(colour));
            return ExitCode::from(WRONG_USE);
        }
    };
    // On each return below, this value is dropped, and the drop waits until the log is written.
    let mut log = match LogWriter::start(stderr()) {
        Ok(log) => log,
        Err(error) => {
            let what = format!("cannot start the log: {error}; {RAISE_LIMITS}");
            return Trouble::failure(what).exit("tidegate");
        }
    };
    if let Some(parent) = args.end_with
        && let Err(error) = end_with(parent)
    {
        log.say_last(&error);
        return ExitCode::from(WRONG_USE);
    }
    let record = args.record.as_ref().map(|path| RecordingTarget {
        path: path.clone(),
        size: args.record_max << 20,
        // The configuration is valid, so it is UTF-8, and the conversion changes nothing.
        configuration: String::from_utf8_lossy(&source).into_owned(),
    });
    let warnings = warn_of_certificates(&tls).into_iter().chain(config.warnings());
    for warning in warnings {
        log.say(&warning);
    }
    let ended = start(&config, tls, record.as_ref(), &mut log);
    if let (Ok(Ending { recorded: Some(recorded), .. }), Some(to)) = (&ended, &record) {
        tell_recorded(recorded, to, &mut log);
    }
    match ended.map(|ending| ending.finish) {
        Ok(Finish::Drained(after)) => {
            let after = after.as_secs_f64();
            log.say_last(&format!("stopped after {after:.1} s; no transaction was open"));
            ExitCode::SUCCESS
        }
        Ok(Finish::Late(after)) => {
            let after = after.as_secs_f64();
            log.say_last(&format!("stopped after {after:.1} s, with open transactions"));
            ExitCode::SUCCESS
        }
        Ok(Finish::Forced) => {
            log.say_last("stopped at once after a second signal");
            ExitCode::FAILURE
        }
        Err(RunError::Start(error)) => {
            log.say_last(&error.to_string());
            // After any other error, systemd starts Tidegate again, because the error may go away.
            if error.is_lasting { ExitCode::from(WRONG_USE) } else { ExitCode::FAILURE }
        }
        Err(error @ RunError::Shard(_)) => {
            log.say_last(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

/// Asks the kernel to kill this process when the thread that started it ends.
fn end_with(parent: u32) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("--end-with {parent}: {error}"))?;
    // If the parent ended before the request above, the kernel never kills this process.
    let is_parent = getppid().is_some_and(|pid| pid.as_raw_pid().unsigned_abs() == parent);
    if is_parent {
        Ok(())
    } else {
        Err(format!("--end-with {parent}: this is not the process that started Tidegate"))
    }
}

fn tell_recorded(recorded: &Recorded, to: &RecordingTarget, log: &mut LogWriter) {
    let (Recorded { inputs, lost, error }, path) = (recorded, to.path.display());
    log.say_last(&format!("recorded {inputs} inputs in {path}"));
    if let Some(error) = error {
        log.say_last(&format!("the recording ended early: {error}"));
    }
    if *lost > 0 {
        log.say_last(&format!(
            "{lost} inputs are missing in the recording: the replay will not be exact"
        ));
    }
}

fn start(
    config: &Config,
    tls: TlsFiles,
    record: Option<&RecordingTarget>,
    log: &mut LogWriter,
) -> Result<Ending, RunError> {
    let state_dir = key::state_dir(config.server.state_dir.as_deref())?;
    let signals = Signals::catch().map_err(|error| {
        RunError::Start(StartError {
            place: "signals".to_owned(),
            what: error.to_string(),
            remedy: RAISE_LIMITS.to_owned(),
            is_lasting: false,
        })
    })?;
    serve(config, tls, &state_dir, record, &signals, |event| match event {
        Event::Started(started) => tell_started(&started, log),
        Event::Acted(act) => log.say(&act.to_string()),
        Event::Ignored(name) => {
            log.say(&format!("ignored {name}: Tidegate does not use this signal"))
        }
        Event::Observed(observation) => log.say(&observation.to_string()),
    })
}

/// Reports the start in the log and to systemd. Returns whether the log takes all lines.
fn tell_started(Started { listeners, admin }: &Started, log: &mut LogWriter) -> bool {
    let mut is_said = true;
    for (transport, listener) in listeners {
        let transport = transport.name().to_ascii_lowercase();
        is_said &= log.say(&format!("listening on {transport} {listener}"));
    }
    if let Some(admin) = admin {
        is_said &= log.say(&format!("admin on http://{admin}"));
    }
    is_said &= log.say("ready");
    // Under systemd with Type=notify, this reports that Tidegate is ready. Without a NOTIFY_SOCKET,
    // it does nothing.
    if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        is_said &= log.say(&format!("cannot report to systemd that Tidegate is ready: {error}"));
    }
    is_said
}
