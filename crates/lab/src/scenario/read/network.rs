//! Reads `[[link]]` and `[[fault]]`.

use std::time::Duration;

use tidegate_server::config::schema::{Report, Section};
use tidegate_sim::{Bandwidth, Link, Resolution, Silence};
use toml::Spanned;

use super::servers::report_unknown;
use crate::network::{Endpoint, Fault, Trouble, Way};
use crate::scenario::tables::{
    AT_S, BANDWIDTH_MBPS, DELAY_MS, DUPLICATE, FAILS, FOR_S, FROM, JITTER_MS, KIND, Kind, LINK_TO,
    LOSS, OF_NODE, QUEUE_BYTES, REORDER, SILENT,
};
use crate::topology::Topology;

/// A `[[link]]` table in which the names of nodes have not been looked up yet.
pub(super) struct WayDraft {
    from: Option<Spanned<String>>,
    to: Option<Spanned<String>>,
    link: Link,
}

impl WayDraft {
    pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Self> {
        let (from, to) = (section.given(&FROM, report), section.given(&LINK_TO, report));
        let mut real = |knob| section.plain(knob, report);
        let (delay_ms, jitter_ms) = (real(&DELAY_MS), real(&JITTER_MS));
        let (loss, reorder, duplicate) = (real(&LOSS), real(&REORDER), real(&DUPLICATE));
        let mbps = section.given_plain(&BANDWIDTH_MBPS, report);
        let queue = section.plain(&QUEUE_BYTES, report);
        let queue_max_bytes = usize::try_from(queue?).ok()?;
        let bandwidth = |mbps| Bandwidth { bits_per_s: (mbps * 1e6) as u64, queue_max_bytes };
        let link = Link {
            delay: millis(delay_ms?),
            jitter: millis(jitter_ms?),
            loss: loss?,
            reorder: reorder?,
            duplicate: duplicate?,
            bandwidth: mbps.map(bandwidth),
            cut: false,
        };
        Some(Self { from, to, link })
    }

    pub fn finish(&self, topology: &Topology, report: &mut Report) -> Option<Way> {
        let mut end = |name: &Option<Spanned<String>>| match name {
            None => Some(None),
            Some(name) => endpoint(name, topology, report).map(Some),
        };
        let (from, to) = (end(&self.from), end(&self.to));
        Some(Way { from: from?, to: to?, link: self.link })
    }
}

/// A `[[fault]]` table in which the names of nodes have not been looked up yet.
pub(super) struct FaultDraft {
    at: Duration,
    lasts: Duration,
    kind: Spanned<Kind>,
    node: Option<Spanned<String>>,
    silent: bool,
    fails: f64,
    way: WayDraft,
}

impl FaultDraft {
    pub fn read(section: &Section<'_, '_>, report: &mut Report) -> Option<Self> {
        let kind = section.value(&KIND, report);
        let (at, lasts) = (section.plain(&AT_S, report), section.plain(&FOR_S, report));
        let node = section.given(&OF_NODE, report);
        let silent = section.plain(&SILENT, report);
        let fails = section.plain(&FAILS, report);
        let way = WayDraft::read(section, report);
        let kind = kind?;
        check_keys(*kind.get_ref(), section, report)?;
        Some(Self {
            at: Duration::from_secs_f64(at?),
            lasts: Duration::from_secs_f64(lasts?),
            kind,
            node,
            silent: silent?,
            fails: fails?,
            way: way?,
        })
    }

    pub fn finish(&self, topology: &Topology, report: &mut Report) -> Option<Fault> {
        let what = match self.kind.get_ref() {
            Kind::Crash => Trouble::Crash {
                node: self.node(topology, report)?,
                silence: if self.silent { Silence::Silent } else { Silence::Refused },
            },
            Kind::Stall => Trouble::Stall { node: self.node(topology, report)? },
            Kind::Partition => {
                let Way { from, to, .. } = self.way.finish(topology, report)?;
                let (Some(a), Some(b)) = (from, to) else {
                    report.error(
                        self.kind.span(),
                        "a partition needs `from` and `to`",
                        "one of them is missing",
                        "add `from = …` and `to = …`",
                    );
                    return None;
                };
                Trouble::Partition { a, b }
            }
            Kind::Resolver => {
                let Link { delay, jitter, loss: lost, .. } = self.way.link;
                Trouble::Resolver(Resolution { delay, jitter, fails: self.fails, lost })
            }
            Kind::Link => Trouble::Link(self.way.finish(topology, report)?),
        };
        Some(Fault { at: self.at, lasts: self.lasts, what })
    }

    fn node(&self, topology: &Topology, report: &mut Report) -> Option<usize> {
        let Some(name) = &self.node else {
            if topology.nodes().len() == 1 {
                return Some(0);
            }
            report.error(
                self.kind.span(),
                "the fault names no node",
                "the scenario has several nodes",
                "add `node = …` to this `[[fault]]`",
            );
            return None;
        };
        place(name, topology, &[], report)
    }
}

/// Reports an error for each key that has no effect on this kind of fault.
fn check_keys(kind: Kind, section: &Section<'_, '_>, report: &mut Report) -> Option<()> {
    let of_node = matches!(kind, Kind::Crash | Kind::Stall);
    let is_link = kind == Kind::Link;
    let is_resolver = kind == Kind::Resolver;
    let idle = [
        (section.has(&OF_NODE) && !of_node, OF_NODE.name),
        (section.has(&SILENT) && kind != Kind::Crash, SILENT.name),
        (section.has(&FROM) && (of_node || is_resolver), FROM.name),
        (section.has(&LINK_TO) && (of_node || is_resolver), LINK_TO.name),
        (section.has(&DELAY_MS) && !(is_link || is_resolver), DELAY_MS.name),
        (section.has(&JITTER_MS) && !(is_link || is_resolver), JITTER_MS.name),
        (section.has(&LOSS) && !(is_link || is_resolver), LOSS.name),
        (section.has(&FAILS) && !is_resolver, FAILS.name),
        (section.has(&REORDER) && !is_link, REORDER.name),
        (section.has(&DUPLICATE) && !is_link, DUPLICATE.name),
        (section.has(&BANDWIDTH_MBPS) && !is_link, BANDWIDTH_MBPS.name),
        (section.has(&QUEUE_BYTES) && !is_link, QUEUE_BYTES.name),
    ];
    let mut right = Some(());
    for (_, name) in idle.into_iter().filter(|(is_idle, _)| *is_idle) {
        let title = format!("`{name}` has no effect on this kind of fault");
        let help = format!("remove `{name}`");
        report.error(section.span(), title, "in this table", help);
        right = None;
    }
    right
}

fn endpoint(name: &Spanned<String>, topology: &Topology, report: &mut Report) -> Option<Endpoint> {
    match &**name.get_ref() {
        "callers" => Some(Endpoint::Callers),
        "answerers" => Some(Endpoint::Answerers),
        _ => place(name, topology, &["callers", "answerers"], report).map(Endpoint::Node),
    }
}

fn place(
    name: &Spanned<String>,
    topology: &Topology,
    others: &[&str],
    report: &mut Report,
) -> Option<usize> {
    let names: Vec<&str> = topology.nodes().iter().map(|node| &*node.name).collect();
    let found = names.iter().position(|known| known == name.get_ref());
    if found.is_none() {
        report_unknown(name, &names, others, report);
    }
    found
}

fn millis(ms: f64) -> Duration {
    Duration::from_secs_f64(ms / 1e3)
}
