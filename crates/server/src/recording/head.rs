//! The head of a recording's file, which describes how the recorded core was built.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_proxy::{Base, EgressRoute, Secret};
use tidegate_world::Seed;

use super::Unreadable;
use super::block::checksum;
use super::layout::Layout;
use crate::config::FILE_MAX;
use crate::environment::Environment;
use crate::key::{self, from_hex, to_hex};

/// The version of the recording format that this program writes.
pub const VERSION: u32 = 8;

/// The oldest version of the recording format that this program reads. Later versions added kinds
/// of inputs, transports and causes, and did not change the existing ones.
pub const VERSION_MIN: u32 = 5;

/// The first bytes of every recording.
const MAGIC: [u8; 16] = *b"Tidegate record\n";

/// Length in bytes of the fields before the text of the head: magic, version, length of the text,
/// checksum of the text.
const FRAME: usize = 32;

/// Maximum length in bytes of the text of the head. A configuration may become six times as long
/// when characters are escaped. The other fields, mainly the addresses of removed back ends, need
/// less than 8 MiB.
const TEXT_MAX: usize = 6 * FILE_MAX + (8 << 20);

/// The parameters from which a core is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Version of Tidegate that made the recording.
    pub program: String,
    /// The text of the configuration file.
    pub configuration: String,
    /// Addresses of the listeners, in the order of the configuration.
    pub listeners: Vec<SocketAddr>,
    /// The facts about the machine and earlier processes that the core was built with.
    pub environment: Environment,
    /// Seed of all random numbers in the core.
    pub seed: Seed,
    /// The keys at the start of the core. A change of the keys is one of the recorded inputs.
    pub keys: Secret,
}

impl Head {
    /// Encodes the head for the beginning of a file whose slots have this `layout`.
    pub(super) fn encode(&self, layout: &Layout) -> Vec<u8> {
        let Self { program, configuration, listeners, environment, seed, keys } = self;
        let Environment { egress_routes, removed, before, message_memory, query_places, start } =
            environment;
        let route = |route: &EgressRoute| json!([route.to.to_string(), route.listener]);
        let egress_routes: Value = egress_routes.iter().map(route).collect();
        let text = json!({
            "program": program,
            "configuration": configuration,
            "listeners": listeners,
            "egress_routes": egress_routes,
            "removed": removed,
            "message_memory": message_memory,
            "query_places": query_places,
            "seed": seed.0,
            "before": before.map(|seed| seed.0),
            "base": to_hex(&keys.base.0),
            "keys": key::command::text(&keys.tokens),
            "start": start.as_nanos() as u64,
            "slot": layout.slot,
        })
        .to_string();
        let mut bytes = Vec::with_capacity(FRAME + text.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(checksum(text.as_bytes()).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    /// Returns whether the file at `path` is a recording of any version.
    pub(super) fn begins(path: &Path) -> io::Result<bool> {
        let mut magic = MAGIC.map(|_| 0);
        let whole = read_exact_at(&File::open(path)?, &mut magic, 0)?.is_some();
        Ok(whole && magic == MAGIC)
    }

    /// Reads the head of `file`, and returns it with the layout of the slots.
    pub(super) fn read(file: &File) -> Result<(Self, Layout), Unreadable> {
        let mut frame = [0; FRAME];
        read_exact_at(file, &mut frame, 0)?.ok_or(Unreadable::Foreign)?;
        if !frame.starts_with(&MAGIC) {
            return Err(Unreadable::Foreign);
        }
        let word = |at: usize| u32::from_le_bytes(frame[at..at + 4].try_into().expect("four"));
        let version = word(16);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Unreadable::Version(version));
        }
        let corrupt = |what| Unreadable::Corrupt(FRAME as u64, what);
        let len = word(20) as usize;
        if len > TEXT_MAX {
            return Err(Unreadable::Corrupt(20, "the length of the head is invalid"));
        }
        // A wrong length must not cost memory, so it is compared with the length of the file.
        if (FRAME + len) as u64 > file.metadata()?.len() {
            return Err(corrupt("the head is cut short"));
        }
        let mut text = vec![0; len];
        read_exact_at(file, &mut text, FRAME as u64)?
            .ok_or_else(|| corrupt("the head is cut short"))?;
        if frame[24..] != checksum(&text).to_le_bytes() {
            return Err(corrupt("the checksum of the head is wrong"));
        }
        let value: Value =
            serde_json::from_slice(&text).map_err(|_| corrupt("the head is not JSON"))?;
        let head = Self::parse(&value)
            .ok_or_else(|| corrupt("a field of the head is missing or invalid"))?;
        let layout = value["slot"].as_u64().and_then(|slot| Layout::of(FRAME + len, slot));
        let invalid = || corrupt("the head gives an invalid size for the parts of the file");
        Ok((head, layout.ok_or_else(invalid)?))
    }

    fn parse(value: &Value) -> Option<Self> {
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let listener = |value: &Value| value.as_str()?.parse().ok();
        let route = |value: &Value| {
            let to = value[0].as_str()?.parse().ok()?;
            Some(EgressRoute { to, listener: value[1].as_u64()? as usize })
        };
        // Recordings of early versions do not contain all of these fields.
        let list = |name: &str| value[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let environment = Environment {
            egress_routes: list("egress_routes").iter().map(route).collect::<Option<_>>()?,
            message_memory: value["message_memory"].as_u64().map(|bytes| bytes as usize),
            query_places: value["query_places"].as_u64().map(|places| places as usize),
            start: Duration::from_nanos(value["start"].as_u64()?),
            before: value["before"].as_u64().map(Seed),
            removed: list("removed").iter().map(listener).collect::<Option<_>>()?,
        };
        let base = Base(from_hex(value["base"].as_str()?.as_bytes())?);
        let tokens = key::command::given(value["keys"].as_str()?.as_bytes())?;
        Some(Self {
            program: text("program")?,
            configuration: text("configuration")?,
            listeners: value["listeners"]
                .as_array()?
                .iter()
                .map(listener)
                .collect::<Option<_>>()?,
            environment,
            seed: Seed(value["seed"].as_u64()?),
            keys: Secret { base, tokens },
        })
    }
}

/// Fills `buffer` from offset `at` of the file. Returns `None` if the file is too short.
pub(super) fn read_exact_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<Option<()>> {
    match file.read_exact_at(buffer, at) {
        Ok(()) => Ok(Some(())),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}
