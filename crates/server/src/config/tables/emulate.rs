//! `[emulate]`.

use std::time::Duration;

use tidegate_emulate::Distribution;
use tidegate_world::Work;

use crate::config::by_class::ByClass;
use crate::config::keys::{Only, table};
use crate::config::shape::{As, Real, Text, Whole, Wrong, real_millis};

/// The default: a processor on which every cost is zero.
impl Default for Emulate {
    fn default() -> Self {
        let none = [Duration::ZERO; Work::CLASSES_MAX];
        Self {
            receive: Duration::ZERO,
            offer: none,
            serve: none,
            serve_stateless: None,
            reject: none,
            distribution: Distribution::Constant,
            seed: None,
            socket_max: 2048,
            socket_bytes: None,
            wake: Duration::ZERO,
            batch: None,
            batch_fifo: None,
            quota: None,
            period: Duration::from_millis(100),
            tick: Duration::ZERO,
        }
    }
}

static FOR_QUOTA: Only<EmulateDraft> = Only {
    by: "quota",
    when: |emulate| emulate.quota.is_some(),
    why: "without a quota there are no periods",
    instead: "write `quota`, such as `quota = 0.2`",
};

static FOR_DISTRIBUTION: Only<EmulateDraft> = Only {
    by: "distribution",
    when: |emulate| {
        let distribution = emulate.distribution.as_ref().map(toml::Spanned::get_ref);
        distribution.is_some_and(|distribution| *distribution != Distribution::Constant)
    },
    why: "without a distribution no cost is random",
    instead: "write `distribution`, such as `distribution = \"exponential\"`",
};

table! {
    /// Emulates a server that is slower than this machine, for experiments. Each shard has an
    /// emulated processor that needs a given time, its cost, for each message. Tidegate sends the
    /// resulting messages when this time has passed. A cost is a number of microseconds for every
    /// message, or a table by message class.
    pub static EMULATE: "[emulate]" 0..=1, Restart, [] => Emulate, EmulateDraft;

    /// The cost of reading a message from the receive buffer. With `queue = "fifo"` a message costs
    /// this even if the queue is full and the message is lost.
    receive("receive_us"): Duration = As {
        of: Real(0.0..=3_600_000_000.0),
        read: |us| Duration::from_secs_f64(us / 1e6),
        write: |time| time.as_nanos() as f64 / 1e3,
    }, Default("0");
    /// The cost of classifying a message and deciding whether to admit it.
    offer("offer_us"): [Duration; Work::CLASSES_MAX] = ByClass, Default("0");
    /// The cost of serving a message.
    serve("serve_us"): [Duration; Work::CLASSES_MAX] = ByClass, Default("0");
    /// The cost of serving a message without transactions.
    serve_stateless("serve_stateless_us"): [Duration; Work::CLASSES_MAX] | None =
        ByClass, Means("the value of `serve_us`");
    /// The cost of rejecting a message.
    reject("reject_us"): [Duration; Work::CLASSES_MAX] = ByClass, Default("0");
    /// The distribution of the cost of each message around its mean, which the other keys give.
    /// `hyperexponential`: CV2, from 1 to 100, is the squared coefficient of variation. With 10, one
    /// message in twenty takes ten times the mean on average. `lognormal`: SIGMA, from 0 to 3, is
    /// the standard deviation of the natural logarithm of the cost. `pareto`: α is 1.5, so the most
    /// expensive hundredth of the messages takes a fifth of the time. The costs of `pareto` are cut
    /// at a hundred times the mean. `empirical`: costs drawn at random from a file. The file has one
    /// number on each line, in any unit, because only its ratio to the mean of the file counts. A
    /// relative path starts at the working directory. Reading a message and serving it are two
    /// steps, and the cost of each is drawn separately.
    distribution: Distribution = Text::new(
        "`\"constant\"`, `\"exponential\"`, `\"hyperexponential:CV2\"`, `\"lognormal:SIGMA\"`, `\"pareto\"` or `\"empirical:FILE\"`",
        |text| text.parse::<Distribution>().map_err(Wrong::from),
    ), Default("\"constant\"");
    /// The seed of the costs that are drawn. With equal seeds, a shard draws the same costs in the
    /// same order after each start. The laboratory derives it from the seed of the run.
    seed: u32 | None = Whole(0..=u32::MAX), Means("a new seed at each start"), only(&FOR_DISTRIBUTION);
    /// The number of datagrams that an emulated receive buffer can hold.
    socket_max: usize = Whole(1..=1_000_000), Default("2048");
    /// The size of an emulated receive buffer in bytes, as Linux counts them: a datagram of 500
    /// bytes counts for 1,280. `ss -uam` shows this size as `rb`. It is twice the size that a
    /// program requests.
    socket_bytes: usize | None = Whole(1..=1 << 31), Means("only `socket_max` limits the buffer");
    /// The additional cost of a message that finds the server idle: to wake it, and to put it to
    /// sleep again.
    wake("wake_us"): Duration = As {
        of: Real(0.0..=3_600_000_000.0),
        read: |us| Duration::from_secs_f64(us / 1e6),
        write: |time| time.as_nanos() as f64 / 1e3,
    }, Default("0");
    /// The number of INVITEs and REGISTERs that the server reads before it serves. With this key
    /// the server works in turns: it reads up to 256 other messages, then up to this number of
    /// INVITEs and REGISTERs, and then serves. It serves for at most 500 µs, or for as long as it
    /// has read if that was longer. With `queue = "fifo"` it reads up to this number of messages of
    /// any kind. A server that handles each message before it reads the next one has 1 and `queue =
    /// "fifo"`.
    batch: usize | None = Whole(1..=4096), Means("reading and serving get the same processor time while there are messages to read and messages to serve. Tidegate then reads at most 64 messages in a row");
    /// With `queue = "fifo"`: this key is used instead of `batch`. All messages then wait in one
    /// receive buffer.
    batch_fifo: usize | None = Whole(1..=4096), Means("the value of `batch`");
    /// The part of a core that the server may use in each period, as with `cpu.max` of a control
    /// group. If the work of one period takes more, the server waits until the parts of later
    /// periods have covered the rest. The other keys give costs on a whole core.
    quota: f64 | None = Real(0.001..=1.0), Means("no quota");
    /// The length of a period of the quota.
    period("period_ms"): Duration = real_millis(0.01..=60_000.0), Default("100"), only(&FOR_QUOTA);
    /// The time between two ticks of the kernel's clock, 1000 / `CONFIG_HZ`. Linux notices at a
    /// tick that a busy server has used up its quota. 0: it notices at once.
    tick("tick_ms"): Duration = real_millis(0.0..=100.0), Default("0"), only(&FOR_QUOTA);
}
