//! `[server]` and `[admin]`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tidegate_proxy::SHARDS_MAX;

use crate::config::address;
use crate::config::keys::table;
use crate::config::shape::{As, Flag, List, Text, Whole, micros, seconds};
use crate::config::word;
use crate::key::Rotation;

table! {
    /// The process as a whole. Each limit is for the whole process, whatever the number of shards.
    pub static SERVER: "[server]" 0..=1, Restart, [] => Server, ServerDraft;

    /// Threads that handle messages. One thread handles all messages of a call. More threads than
    /// cores cost processor time and gain nothing.
    shards: u16 = Whole(1..=SHARDS_MAX), Default("1");
    /// Directory of the files that must survive a restart. The keys in `route.key` let requests
    /// within a dialog find their back end after a restart. Instances behind one address need the
    /// same keys; instances on one machine may share the directory.
    state_dir: PathBuf | None = Text {
        what: "an absolute path, such as `\"/var/lib/tidegate\"`",
        parse: word::directory,
        write: |path| path.display().to_string(),
    }, Means("`$STATE_DIRECTORY` as systemd sets it, else `$XDG_STATE_HOME/tidegate`, else `/var/lib/tidegate` for root and `~/.local/state/tidegate` for others");
    /// Hours from one key for the tokens in Record-Route to the next. 0: a new key is made only
    /// when an operator asks for it (`tidegate ctl rotate`). Tidegate keeps at most eight keys and
    /// drops none within a day of its last use, so the shortest interval is 4 hours, or longer if
    /// `key_settle_s` is several hours. Where instances have copies of the file, let only one of
    /// them rotate.
    key_rotate_h: u64 = Whole(0..=8760), Default("0");
    /// Seconds from the creation of a key until tokens are made with it. By then every instance
    /// must have the key. Instances that share the file read it within 2 seconds; if you copy the
    /// file, copy it within this time. All instances need the same value.
    key_settle_s: Duration = seconds(10..=604_800), Default("60");
    /// Seconds for which a stopping process continues to serve the calls that are being set up,
    /// while `/readyz` reports 503. The default covers the 32 seconds of a transaction (RFC 3261
    /// §17.1.1.2, 64·T1). A second signal ends the wait.
    drain("drain_seconds"): Duration = seconds(0..=3600), Default("35");
    /// Entries in the call table. A call has an entry from its INVITE until 32 seconds after its
    /// end, so 1,000 new calls a second of three minutes each need 212,000. A request outside any
    /// call (REGISTER, OPTIONS, MESSAGE) has an entry for 32 seconds.
    calls_max: usize = Whole(1000..=10_000_000), Default("1_000_000");
    /// Requests with a transaction, in pools that keep transactions. Each counts until 32 seconds
    /// after its final response (RFC 3261 §17.2), so 1,000 calls a second with a BYE each need
    /// 64,000. Tidegate rejects requests beyond this number with 503.
    transactions_max: usize = Whole(1000..=10_000_000), Default("1_000_000");
    /// Megabytes of memory for stored messages: three quarters for transactions (about 3 KiB each,
    /// more for long messages), one quarter for messages longer than 2 KiB that wait for service.
    message_memory_max("message_memory_max_mb"): usize | None = As {
        of: Whole(16..=1_048_576_usize),
        read: |mb| mb << 20,
        write: |bytes| bytes >> 20,
    }, Means("a quarter of the machine's memory, or of the limit of its control group if that is lower");
    /// Limit for the responses to an address that has never acknowledged a response and so may be
    /// forged: their bytes, retransmissions included, as a multiple of the bytes of the request (3
    /// in RFC 9000 §8.1). The first response of each kind and one retransmission of the final
    /// response are always sent, and padding (`gso_padding`) does not count. 0: no limit.
    amplification_max: u32 = Whole(0..=1000), Default("3");
    /// Seconds without a request after which Tidegate considers an answered call ended. A call with
    /// a session timer (RFC 4028) is kept until 32 seconds after its session has expired instead.
    /// Later requests of the call still find their back end by the token in their Route.
    call_idle("call_idle_seconds"): Duration = seconds(60..=86_400), Default("10_800");
    /// Seconds for which requests within a dialog still reach a back end that was removed from the
    /// configuration. This holds after a restart too: `state_dir` keeps the address. A back end
    /// with a host name is forgotten at the restart.
    removed_backend("removed_backend_seconds"): Duration =
        seconds(0..=604_800), Default("10_800");
    /// Messages that may wait for service in each queue (responses, requests of calls in progress,
    /// new INVITEs, registrations, other requests), or in the single queue of `[overload] queue =
    /// "fifo"`. A queue should be so short that no message waits for 500 ms, when its sender
    /// retransmits it (RFC 3261 §17.1.1.1, T1).
    // Divided among the shards, it must leave at least one for each.
    queue_max: usize = Whole(SHARDS_MAX as usize..=1_000_000), Default("4096");
    /// Seconds for which a back end gets no new calls after a message could not be delivered to it.
    backend_pause("backend_pause_seconds"): Duration = seconds(0..=3600), Default("5");
    /// Microseconds that Tidegate may add to the set-up delay of a call, in the median, so that a
    /// shard wakes up once for several messages. The shard pauses before it reads the next
    /// messages. The pause is as long as 16 messages take to arrive, and at most this. If fewer
    /// than four messages arrive in this time, the shard does not pause. 0: no pauses.
    coalesce("coalesce_us"): Duration = micros(0..=2000), Default("500");
    /// Microseconds that a SIP timer may fire late if other timers have fired just before it.
    /// Timers that fire together cost less processor time. 0: each timer fires at its time. Ticks
    /// of overload control are never late.
    timer_slack("timer_slack_us"): Duration = micros(0..=50_000), Default("10_000");
    /// Whether Tidegate passes messages of the same length to the same destination to the kernel as
    /// one packet, which the kernel or the network card splits (`UDP_SEGMENT`). This costs less
    /// processor time for each message. A capture on this machine may show one packet; with `false`
    /// every message is sent by itself.
    gso: bool = Flag, Default("true");
    /// Bytes of white space that Tidegate may add to a message (with `gso`), so that it has the
    /// same length as other messages to the same destination and can be sent together with them.
    /// The spaces follow the colon of the first header field, where they have no meaning (RFC 3261
    /// §7.3.1). Only messages that are sent together get them. 0: no padding.
    gso_padding: usize = Whole(0..=64), Default("32");
    /// The value of the Server header in responses that Tidegate itself generates (RFC 3261
    /// §20.35), and of the User-Agent header in its probes. `""` leaves both headers out.
    name: String | None = Text::new(
        "up to 64 printable ASCII characters, such as `\"edge\"`, or `\"\"`",
        word::server_name,
    ), Means("`Tidegate/` and the version");
    +
    /// When the keys are rotated, from `key_rotate_h` and `key_settle_s`.
    rotation: Rotation;
}

table! {
    /// The HTTP interface for operators: `/healthz`, `/readyz`, `/metrics` (OpenMetrics text), and
    /// as JSON `/status`, `/backends`, `/overload` (the law and limits in force; PUT changes them),
    /// `/laws`, `/policies`, `/rejections`, `/calls`, `/bans` and `/keys`. POST to `/reload`
    /// reloads the configuration. The interface has no password.
    pub static ADMIN: "[admin]" 0..=1, Restart, [] => Admin, AdminDraft;

    /// The address to listen on. Port 0 takes a free port.
    address: Option<SocketAddr> = Text {
        what: "an IP address and port, such as `\"127.0.0.1:8060\"`, or `\"off\"`",
        parse: address::listening_or_off,
        write: |address| address.map_or("off".to_owned(), |address| address.to_string()),
    }, Default("\"127.0.0.1:8060\"");
    /// Host names by which clients may address this interface, besides `localhost` and any IP
    /// address. A request with another name in its Host header is rejected. Otherwise a web page
    /// could point its own host name at this address, and read or change everything through the
    /// browser of an operator (DNS rebinding).
    hosts: Vec<String> = List {
        of: Text::new("a host name, such as `\"sip1.example.com\"`", word::host),
        count_max: 16,
    }, Default("[]");
    /// Rejections that each shard keeps for `/rejections` in a second, for each reason.
    refusals_per_second: u32 = Whole(0..=1000), Default("5");
    /// Rejections that are kept, divided among the shards. A new one replaces the oldest.
    refusals_kept: usize = Whole(1..=100_000), Default("256");
}
