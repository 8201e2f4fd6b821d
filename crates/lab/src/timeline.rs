//! Records the course of a run: samples of the counts of servers and callers over time.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tidegate_agent::CallerStats;
use tidegate_world::add_fields;

/// Maximum number of rows of a timeline file. Further rows are omitted.
const ROWS_MAX: usize = 4_000_000;

/// The counts of a server at one moment, since the start of the server's process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ServerReading {
    /// Number of the server's process, which increases with each restart of the server.
    pub life: u64,
    /// New sessions offered to the server. Retransmissions are not counted.
    pub offered: u64,
    /// New sessions that the server admitted.
    pub admitted: u64,
    /// New sessions that the server rejected.
    pub rejected: u64,
    /// Retransmissions of requests that already wait in a queue, or on which the server has already
    /// decided.
    pub repeated: u64,
    /// Messages that wait in the server's queues.
    pub waiting: u64,
    /// Time in seconds for which the server's processor was busy.
    pub occupied_s: f64,
    /// Fraction of the new sessions that the overload law currently admits, 0 to 1.
    pub fraction: f64,
    /// Rate in calls/s at which new calls may leave their queue. 0 if the overload law does not
    /// limit this rate.
    pub release_cps: f64,
    /// Datagrams lost because a receive buffer was full.
    pub socket_drops: u64,
    /// Datagrams that a filter dropped before the receive buffer, to reduce the load.
    pub filtered: u64,
}

/// The counts of callers at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallersReading {
    /// Calls that had become due.
    pub offered: u64,
    /// Calls that were answered with a 2xx.
    pub set_up: u64,
    /// Calls that were answered within the deadline.
    pub in_time: u64,
    /// Calls rejected with 503.
    pub rejected: u64,
    /// Retransmissions of INVITEs.
    pub repeated: u64,
    /// Calls that have begun and not ended.
    pub open: u64,
    /// Open calls in which a person waits for an answer.
    pub unanswered: u64,
    /// People whose first call was due.
    pub came: u64,
    /// People who wait before they call again.
    pub redialing: u64,
    /// REGISTERs sent, retransmissions included.
    pub registers: u64,
    /// Devices that are registered.
    pub registered: u64,
}

/// Reads the values of one quantity of one node from `timeline.csv` in the folder of a run. Each
/// value has its time in seconds.
pub(crate) fn series(folder: &Path, node: &str, quantity: &str) -> Vec<(f64, f64)> {
    let text = fs::read_to_string(folder.join("timeline.csv")).unwrap_or_default();
    let sample = |line: &str| {
        let mut fields = line.split(',');
        let at = fields.next()?.parse().ok()?;
        let wanted = fields.next()? == node && fields.next()? == quantity;
        wanted.then_some((at, fields.next()?.parse().ok()?))
    };
    text.lines().filter_map(sample).collect()
}

impl From<&CallerStats> for CallersReading {
    fn from(stats: &CallerStats) -> Self {
        Self {
            offered: stats.offered,
            set_up: stats.set_up,
            in_time: stats.set_up_in_time,
            rejected: stats.failed.status.get(&503).copied().unwrap_or(0),
            repeated: stats.repeated.invite,
            open: stats.open,
            unanswered: stats.open - stats.talking - stats.abandoned_open,
            came: stats.persons.came,
            redialing: stats.persons.waiting,
            registers: stats.devices.attempts + stats.devices.repeated,
            registered: stats.devices.registered,
        }
    }
}

impl CallersReading {
    /// Returns the number of people who wait for an answer or for their next attempt to call.
    pub(crate) fn waiting_people(&self) -> u64 {
        self.unanswered + self.redialing
    }

    /// Returns the counts of two groups of callers together.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        add_fields! { self += other {
            offered, set_up, in_time, rejected, repeated, open, unanswered, came, redialing,
            registers, registered
        } }
        self
    }
}

/// The counts of all servers and callers during one run, in the order of time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    servers: Vec<Track<ServerReading>>,
    callers: Vec<Track<CallersReading>>,
}

/// All readings of one server, or of the callers that call one server.
#[derive(Clone, Debug)]
struct Track<R> {
    name: String,
    readings: Vec<(Duration, R)>,
}

impl ServerReading {
    /// Reads the counts from `status`, the `/status` of a server. `life` is the number of its
    /// process.
    pub fn of(status: &Value, life: u64) -> Self {
        let mut reading = Self { life, ..Self::default() };
        for (index, shard) in status["shards"].as_array().into_iter().flatten().enumerate() {
            let whole = |value: &Value| value.as_u64().unwrap_or(0);
            let real = |value: &Value| value.as_f64().unwrap_or(0.0);
            let session = &shard["session"];
            reading.offered += whole(&session["offered"]);
            reading.admitted += whole(&session["admitted"]);
            reading.rejected += whole(&session["rejected"]);
            reading.repeated += whole(&session["repeated"]);
            reading.waiting += whole(&shard["queued"]);
            reading.occupied_s += real(&shard["occupied_s"]);
            reading.release_cps += real(&shard["release_cps"]);
            reading.socket_drops += whole(&shard["socket_drops"]) + whole(&shard["emulated_drops"]);
            reading.filtered += whole(&shard["filtered"]);
            // The share of the server is the mean over its shards.
            let before = index as f64;
            let fraction = real(&session["fraction"]);
            reading.fraction = (reading.fraction * before + fraction) / (before + 1.0);
        }
        reading
    }
}

impl Timeline {
    /// Creates an empty timeline. `servers` are the names of all servers, and `entries` those of
    /// the servers to which callers send.
    pub fn new<'a>(
        servers: impl IntoIterator<Item = &'a str>,
        entries: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            servers: servers.into_iter().map(|name| Track::new(name.to_owned())).collect(),
            callers: entries.into_iter().map(|to| Track::new(format!("callers-{to}"))).collect(),
        }
    }

    /// Adds the counts of the server at index `place`. `at` is the time since the start of the
    /// load.
    pub fn server(&mut self, place: usize, at: Duration, reading: ServerReading) {
        self.servers[place].readings.push((at, reading));
    }

    /// Adds the counts of the callers of one server. `index` is the index of the server among the
    /// servers to which callers send. `at` is the time since the start of the load.
    pub fn callers(&mut self, index: usize, at: Duration, reading: CallersReading) {
        self.callers[index].readings.push((at, reading));
    }

    /// Returns, for each sample, the number of calls answered within the deadline since the start.
    pub fn in_time(&self) -> Vec<(Duration, u64)> {
        self.sum(|reading| reading.in_time)
    }

    /// Returns, for each sample, the number of calls offered since the start.
    pub fn offered(&self) -> Vec<(Duration, u64)> {
        self.sum(|reading| reading.offered)
    }

    /// Returns, for each sample, the sum of a count over all groups of callers.
    pub fn sum(&self, count: impl Fn(&CallersReading) -> u64) -> Vec<(Duration, u64)> {
        let Some((first, others)) = self.callers.split_first() else { return Vec::new() };
        let sum = |(index, (at, reading)): (usize, &(Duration, CallersReading))| {
            let beside = others.iter().filter_map(|track| track.readings.get(index));
            (*at, count(reading) + beside.map(|(_, reading)| count(reading)).sum::<u64>())
        };
        first.readings.iter().enumerate().map(sum).collect()
    }

    /// Formats the timeline as CSV. Each row has a time, a server or group of callers, a quantity
    /// and its value. Rates are means since the previous sample. If a server was restarted in this
    /// time, its rates are the counts of the new process divided by the time since the previous
    /// sample.
    ///
    /// # Errors
    /// Returns an error of the CSV writer. No error occurs, because the writer writes to memory.
    pub fn csv(&self) -> io::Result<Vec<u8>> {
        let mut table = Table::new()?;
        for track in &self.servers {
            track.rows(&mut table, |elapsed, old, new| {
                // A new process counts from zero, even if its counts are already higher.
                let old = if new.life == old.life { *old } else { ServerReading::default() };
                let rate = |count: fn(&ServerReading) -> u64| {
                    count(new).saturating_sub(count(&old)) as f64 / elapsed
                };
                vec![
                    ("offered_cps", rate(|r| r.offered)),
                    ("admitted_cps", rate(|r| r.admitted)),
                    ("rejected_cps", rate(|r| r.rejected)),
                    ("repeated_cps", rate(|r| r.repeated)),
                    ("waiting", new.waiting as f64),
                    ("occupancy", (new.occupied_s - old.occupied_s) / elapsed),
                    ("fraction", new.fraction),
                    ("release_cps", new.release_cps),
                    ("socket_drops_per_s", rate(|r| r.socket_drops)),
                    ("filtered_per_s", rate(|r| r.filtered)),
                ]
            })?;
        }
        for track in &self.callers {
            track.rows(&mut table, |elapsed, old, new| {
                let rate = |count: fn(&CallersReading) -> u64| {
                    (count(new) - count(old).min(count(new))) as f64 / elapsed
                };
                vec![
                    ("offered_cps", rate(|r| r.offered)),
                    ("set_up_cps", rate(|r| r.set_up)),
                    ("in_time_cps", rate(|r| r.in_time)),
                    ("rejected_cps", rate(|r| r.rejected)),
                    ("repeated_cps", rate(|r| r.repeated)),
                    ("open", new.open as f64),
                    ("came_cps", rate(|r| r.came)),
                    ("redialing", new.redialing as f64),
                    ("register_cps", rate(|r| r.registers)),
                    ("registered", new.registered as f64),
                ]
            })?;
        }
        table.finish()
    }
}

impl<R: Copy + Default> Track<R> {
    fn new(name: String) -> Self {
        Self { name, readings: Vec::new() }
    }

    fn rows(
        &self,
        table: &mut Table,
        quantities: impl Fn(f64, &R, &R) -> Vec<(&'static str, f64)>,
    ) -> io::Result<()> {
        let mut last = (Duration::ZERO, R::default());
        for &(at, reading) in &self.readings {
            let elapsed = at.saturating_sub(last.0).as_secs_f64();
            if elapsed <= 0.0 {
                continue;
            }
            for (quantity, value) in quantities(elapsed, &last.1, &reading) {
                table.row(at, &self.name, quantity, value)?;
            }
            last = (at, reading);
        }
        Ok(())
    }
}

struct Table {
    writer: csv::Writer<Vec<u8>>,
    left: usize,
}

impl Table {
    fn new() -> io::Result<Self> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(["t_s", "node", "quantity", "value"])?;
        Ok(Self { writer, left: ROWS_MAX })
    }

    fn row(&mut self, at: Duration, node: &str, quantity: &str, value: f64) -> io::Result<()> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(()) };
        self.left = left;
        let (at, value) = (format!("{:.3}", at.as_secs_f64()), shown(value));
        self.writer.write_record([&*at, node, quantity, &*value])?;
        Ok(())
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        self.writer.into_inner().map_err(|error| error.into_error())
    }
}

/// Formats a value with at most three decimal places.
fn shown(value: f64) -> String {
    ((value * 1e3).round() / 1e3).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn rates_are_differences_and_a_new_life_counts_from_its_start() {
        let mut timeline = Timeline::new(["a"], []);
        let reading = |life, offered, occupied_s| ServerReading {
            life,
            offered,
            occupied_s,
            waiting: 7,
            ..ServerReading::default()
        };
        timeline.server(0, ms(500), reading(1, 100, 0.25));
        timeline.server(0, ms(1000), reading(1, 110, 0.5));
        timeline.server(0, ms(2000), reading(2, 50, 0.1));
        // The next process has already counted more than the previous one.
        timeline.server(0, ms(3000), reading(3, 60, 0.2));
        let csv = String::from_utf8(timeline.csv().unwrap()).unwrap();
        let of = |quantity: &str| -> Vec<&str> {
            let of = |line: &&str| line.split(',').nth(2) == Some(quantity);
            csv.lines().filter(of).map(|line| line.rsplit(',').next().unwrap()).collect()
        };
        assert_eq!(csv.lines().next(), Some("t_s,node,quantity,value"));
        assert_eq!(csv.lines().nth(1), Some("0.500,a,offered_cps,200"));
        assert_eq!(of("offered_cps"), ["200", "20", "50", "60"]);
        assert_eq!(of("occupancy"), ["0.5", "0.5", "0.1", "0.2"]);
        assert_eq!(of("waiting"), ["7"; 4]);
    }

    /// A person who hung up without an answer may wait to call again while the INVITE of the last
    /// call is still retransmitted.
    #[test]
    fn a_person_who_waits_to_call_again_is_counted_once() {
        let mut stats =
            CallerStats { open: 7, talking: 2, abandoned_open: 3, ..Default::default() };
        stats.persons.waiting = 3;
        assert_eq!(CallersReading::from(&stats).waiting_people(), 5);
    }

    #[test]
    fn callers_of_all_servers_are_summed() {
        let mut timeline = Timeline::new([], ["a", "b"]);
        let reading = |in_time| CallersReading { in_time, ..CallersReading::default() };
        for (at, counts) in [(100, [1, 10]), (200, [2, 20])] {
            timeline.callers(0, ms(at), reading(counts[0]));
            timeline.callers(1, ms(at), reading(counts[1]));
        }
        assert_eq!(timeline.in_time(), [(ms(100), 11), (ms(200), 22)]);
        let csv = String::from_utf8(timeline.csv().unwrap()).unwrap();
        assert!(csv.contains("0.200,callers-b,in_time_cps,100\n"), "{csv}");
    }

    #[test]
    fn shards_are_added_and_their_fractions_have_a_mean() {
        let shard = |offered: u64, fraction: f64| {
            json!({ "session": { "offered": offered, "fraction": fraction },
                    "queued": 3, "socket_drops": 1, "emulated_drops": 2, "filtered": 5 })
        };
        let status = json!({ "shards": [shard(5, 1.0), shard(7, 0.5)] });
        let reading = ServerReading::of(&status, 2);
        assert_eq!((reading.life, reading.offered, reading.waiting), (2, 12, 6));
        assert_eq!((reading.socket_drops, reading.filtered), (6, 10));
        assert_eq!(reading.fraction, 0.75);
    }
}
