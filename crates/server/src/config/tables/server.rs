//! `[server]` and `[admin]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_proxy::SHARDS_MAX;

use crate::config::address;
use crate::config::keys::{Only, table};
use crate::config::shape::{As, Flag, List, Text, Whole, micros, seconds};
use crate::config::word;
use crate::key::Rotation;

static SENDS_BATCHES: Only<ServerDraft> = Only {
    by: "gso",
    when: |server| server.gso.as_ref().is_none_or(|gso| *gso.get_ref()),
    why: "with `gso = false` Tidegate sends every message separately",
    instead: "write `gso = true`",
};

table! {
    /// The process as a whole. Each limit applies to the process, not to each shard.
    pub static SERVER: "[server]" 0..=1, Restart, [] => Server, ServerDraft;

    /// The number of threads (shards) that handle messages. One thread handles all messages of a
    /// call. More threads than cores cost processor time and gain nothing. Use more shards if
    /// `tidegate_shard_time_seconds_total{state="busy"}` of a shard grows by more than 0.7 a second
    /// at your peak load.
    shards: u16 = Whole(1..=SHARDS_MAX), Default("1");
    /// The directory of the files that must survive a restart. Its file `route.key` has the keys by
    /// which requests within a dialog find their back end after a restart. Instances behind one
    /// address need the same keys. Instances on one machine may share the directory.
    state_dir: PathBuf | None = Text {
        what: "an absolute path, such as `\"/var/lib/tidegate\"`",
        parse: word::directory,
        write: |path| path.display().to_string(),
    }, Means("`$STATE_DIRECTORY` as systemd sets it, else `$XDG_STATE_HOME/tidegate`, else `/var/lib/tidegate` for root and `~/.local/state/tidegate` for others");
    /// The number of hours after which Tidegate makes a new key for the tokens in Record-Route. 0:
    /// Tidegate makes a new key only when an operator runs `tidegate ctl rotate`. Tidegate keeps at
    /// most eight keys and deletes no key within a day of its last use. So the shortest interval is
    /// 4 hours. It is longer if `key_settle_s` is several hours. If instances have copies of the
    /// key file, set `key_rotate_h` on only one of them.
    key_rotate_h: u64 = Whole(0..=8760), Default("0");
    /// Seconds from the creation of a key until Tidegate makes tokens with this key. Within this
    /// time every instance must get the new key. Instances that share the file read it within 2
    /// seconds. If you copy the file to other instances, copy it within this time. All instances
    /// need the same value.
    key_settle_s: Duration = seconds(10..=604_800), Default("60");
    /// The longest time, in seconds, for which a stopping process waits for the calls that are
    /// being set up. It serves these calls in the meantime, and `/readyz` reports 503. The default
    /// covers the 32 seconds of a transaction (RFC 3261 §17.1.1.2, 64·T1). A second signal ends the
    /// wait.
    drain("drain_seconds"): Duration = seconds(0..=3600), Default("35");
    /// The maximum number of entries in the call table. A call has an entry from its INVITE until
    /// 32 seconds after its end. For example, 1,000 new calls a second of three minutes each need
    /// 212,000 entries. A request outside any call (REGISTER, OPTIONS, MESSAGE) has an entry for 32
    /// seconds.
    calls_max: usize = Whole(1000..=10_000_000), Default("1_000_000");
    /// The largest number of requests with a transaction, in pools that keep transactions. A
    /// request counts until 32 seconds after its final response (RFC 3261 §17.2). For example,
    /// 1,000 calls a second with one BYE each need 64,000. Tidegate rejects requests beyond this
    /// number with 503. With the default, `message_memory_max_mb` is usually reached first.
    transactions_max: usize = Whole(1000..=10_000_000), Default("10_000_000");
    /// Megabytes of memory for stored messages. Three quarters are for transactions. A transaction
    /// takes about 2 KiB until its final response and about 0.7 KiB for the 32 seconds after it, or
    /// more if its messages are long. One quarter is for messages longer than 2 KiB that wait for
    /// service.
    message_memory_max("message_memory_max_mb"): usize | None = As {
        of: Whole(16..=1_048_576_usize),
        read: |mb| mb << 20,
        write: |bytes| bytes >> 20,
    }, Means("a quarter of the machine's memory, or of the limit of its control group if that is lower");
    /// The limit for responses to an address that may be forged, because it has never acknowledged
    /// a response. In response to a request from such an address, Tidegate sends at most this many
    /// times the bytes of the request (3 in RFC 9000 §8.1). Retransmissions of the request and of
    /// its responses count too. Padding (`gso_padding`) does not count. Tidegate always sends the
    /// first response of each kind and one retransmission of the final response. 0: no limit.
    amplification_max: u32 = Whole(0..=1000), Default("3");
    /// Seconds without a request after which Tidegate considers an answered call ended. A call with
    /// a session timer (RFC 4028) ends for Tidegate 32 seconds after its session has expired,
    /// whatever this key says. Later requests of the call still find their back end by the token in
    /// their Route.
    call_idle("call_idle_seconds"): Duration = seconds(60..=86_400), Default("10_800");
    /// Seconds for which requests within a dialog still reach a back end that was removed from the
    /// configuration. While the back end has calls that Tidegate counts, the requests still reach
    /// it after this time. Tidegate stores the address of the back end in `state_dir`, so that
    /// requests reach it after a restart too, for at most this time from the restart. At a restart,
    /// Tidegate forgets the addresses of removed back ends with a host name. While a host name is
    /// configured, Tidegate remembers five of its addresses: the current one and the four before
    /// it. An older address counts as a removed back end.
    removed_backend("removed_backend_seconds"): Duration =
        seconds(0..=604_800), Default("10_800");
    /// The maximum number of messages that wait for service in each queue. There is one queue each
    /// for responses, requests of calls in progress, INVITEs with priority, other new INVITEs,
    /// registrations, other new requests, and messages that claim to belong to a call but are
    /// unverified. With `[overload] queue = "fifo"` there is a single queue. Choose a value so
    /// small that no message waits for 500 ms, because its sender then retransmits it (RFC 3261
    /// §17.1.1.1, T1).
    // This number is divided among the shards, and must leave at least one for each.
    queue_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("4096");
    /// Seconds for which a back end that is down gets no new calls, in a pool without probes
    /// (`[pool.health] probe`). If the back end responds to any request, it gets new calls at once.
    backend_pause("backend_pause_seconds"): Duration = seconds(0..=3600), Default("5");
    /// Microseconds that pauses may add to the median set-up delay of a call. A shard pauses before
    /// it reads messages, so that it wakes up once for several messages. A pause is as long as 16
    /// messages take to arrive, and at most this value. The INVITE and the 200 of a call each wait
    /// half a pause on average. If fewer than four messages arrive in this number of microseconds,
    /// the shard does not pause. 0: no pauses.
    coalesce("coalesce_us"): Duration = micros(0..=2000), Default("500");
    /// Microseconds by which a SIP timer may fire late if other timers have fired just before it.
    /// Timers that fire together cost less processor time. 0: each timer fires at its time. The
    /// timers of overload control are never late.
    timer_slack("timer_slack_us"): Duration = micros(0..=50_000), Default("10_000");
    /// `true`: Tidegate passes messages of the same length to the same destination to the kernel as
    /// one packet. The kernel or the network card splits the packet (`UDP_SEGMENT`). This costs
    /// less processor time for each message. A capture on this machine may show only the one
    /// packet. `false`: Tidegate sends every message separately.
    gso: bool = Flag, Default("true");
    /// Bytes of white space that Tidegate may add to a message, if `gso` is `true`. With these
    /// bytes the message has the same length as other messages to the same destination, so that
    /// Tidegate can send them together. The spaces follow the colon of the first header field,
    /// where they have no meaning (RFC 3261 §7.3.1). Tidegate pads only messages that it sends
    /// together. 0: no padding.
    gso_padding: usize = Whole(0..=64), Default("32"), only(&SENDS_BATCHES);
    /// The value of the Server header in responses that Tidegate itself generates (RFC 3261
    /// §20.35), and of the User-Agent header in probes. `""`: Tidegate writes neither header.
    name: String | None = Text::new(
        "up to 64 printable ASCII characters, such as `\"edge\"`, or `\"\"`",
        word::server_name,
    ), Means("`Tidegate/` and the version");
    +
    /// The times of key rotations, from `key_rotate_h` and `key_settle_s`.
    rotation: Rotation;
}

table! {
    /// The HTTP interface for operators: `/healthz`, `/readyz`, `/metrics` (OpenMetrics text), and
    /// as JSON `/status`, `/backends`, `/overload` (the law in force and its limits), `/laws`,
    /// `/policies`, `/rejections`, `/calls`, `/bans` and `/keys`. PUT to `/overload` changes the
    /// law. POST to `/reload` reloads the configuration. The interface has no password. Every
    /// machine that can reach its address can change everything.
    pub static ADMIN: "[admin]" 0..=1, Restart, [] => Admin, AdminDraft;

    /// The address to listen on. Port 0 takes a free port. At an address other than loopback,
    /// `tidegate check` and `tidegate run` print a warning.
    address: Option<SocketAddr> = Text {
        what: "an IP address and port, such as `\"127.0.0.1:8060\"`, or `\"off\"`",
        parse: address::listening_or_off,
        write: |address| address.map_or("off".to_owned(), |address| address.to_string()),
    }, Default("\"127.0.0.1:8060\"");
    /// Host names by which clients may address this interface, besides `localhost` and any IP
    /// address. Tidegate rejects a request with another name in its Host header. Without this
    /// check, a web page could point its own host name at this address. The page could then read
    /// and change everything through the browser of an operator (DNS rebinding).
    hosts: Vec<String> = List {
        of: Text::new("a host name, such as `\"sip1.example.com\"`", word::host),
        count_max: 16,
    }, Default("[]");
    /// The maximum number of rejections with the same reason that each shard records in a second
    /// for `/rejections`.
    rejections_per_second: u32 = Whole(0..=1000), Default("5");
    /// The number of rejections that all shards together store for `/rejections`. A new rejection
    /// replaces the oldest one.
    rejections_kept: usize = Whole(1..=100_000), Default("256");
}
