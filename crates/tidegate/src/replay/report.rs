//! Report of a replay, for people and for programs.

use std::fmt;

use serde_json::{Value, json};
use tidegate_control::Bucket;
use tidegate_proxy::Class;
use tidegate_server::config::Config;
use tidegate_server::recording::{Difference, Inputs, Recording, Verdict};
use tidegate_server::replay::Replayed;

/// Report of a replay.
pub struct Report<'r> {
    recording: &'r Recording,
    law: &'static str,
    replayed: &'r Replayed,
}

/// Version of this program.
const PROGRAM: &str = env!("CARGO_PKG_VERSION");

impl<'r> Report<'r> {
    /// Creates a report on the replay of `recording`, whose configuration is `config`.
    pub fn new(recording: &'r Recording, config: &Config, replayed: &'r Replayed) -> Self {
        Self { recording, law: config.overload.gate.law.entry().name, replayed }
    }

    /// Returns whether the replay shows no difference: all packets are equal, or the recording is
    /// incomplete and proves nothing.
    pub fn holds(&self) -> bool {
        !self.is_comparable() || self.replayed.verdict.difference.is_none()
    }

    /// Returns whether the replay can be compared with the recording: the recording still has its
    /// beginning, and lost no inputs.
    fn is_comparable(&self) -> bool {
        self.recording.overwritten() == 0 && self.recording.lost() == 0
    }

    fn received(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counters = &self.replayed.counters.proxy;
        Class::ALL.into_iter().map(|class| (class.name(), counters.received(class).get()))
    }

    /// Returns the report as JSON.
    pub fn to_json(&self) -> Value {
        let Verdict { inputs, packets, blocks, differing, difference, span } =
            self.replayed.verdict;
        let Inputs { datagrams, serves, timeouts, failures, connections, .. } = inputs;
        let Inputs { loads, commands, answers, drains, .. } = inputs;
        let recording = self.recording;
        json!({
            "recorded_by": recording.head().program,
            "replayed_by": PROGRAM,
            "law": self.law,
            "seed": recording.head().seed.0,
            "inputs": {
                "datagrams": datagrams,
                "serves": serves,
                "timeouts": timeouts,
                "failures": failures,
                "connections": connections,
                "loads": loads,
                "commands": commands,
                "answers": answers,
                "drains": drains,
            },
            "span_s": span.map(|(first, last)| [first.as_secs_f64(), last.as_secs_f64()]),
            "packets": packets,
            "received": self.received().map(|(name, n)| (name.to_owned(), n.into()))
                .collect::<serde_json::Map<_, _>>(),
            "status": self.replayed.status,
            "blocks_overwritten": recording.overwritten(),
            "inputs_lost": recording.lost(),
            "cut_at": recording.cut(),
            "checkpoints": blocks,
            "checkpoints_differing": differing,
            "exact": self.is_comparable() && difference.is_none(),
            "first_difference": difference.map(|d| json!({
                "checkpoint": d.block,
                "first_input": d.first_input,
                "from_s": d.from.as_secs_f64(),
                "packets_recorded": d.recorded,
                "packets_replayed": d.sent,
            })),
        })
    }

    fn verdict(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { packets, blocks, differing, difference, .. } = self.replayed.verdict;
        let recording = self.recording;
        if let Some(at) = recording.cut() {
            writeln!(f, "the file is cut short at byte {at}: replayed up to there")?;
        }
        let (overwritten, lost) = (recording.overwritten(), recording.lost());
        if overwritten > 0 {
            writeln!(
                f,
                "not exact: the beginning was overwritten ({overwritten} blocks), so the replay \
                 starts without the earlier calls"
            )?;
        }
        if lost > 0 {
            writeln!(f, "not exact: {lost} inputs were lost during the recording")?;
        }
        match difference {
            _ if !self.is_comparable() => {
                writeln!(
                    f,
                    "  {} of {blocks} checkpoints are the same as in the recording",
                    blocks - differing
                )
            }
            None => writeln!(f, "exact: all {packets} packets are the same as in the recording"),
            Some(first) => {
                writeln!(
                    f,
                    "not exact: {differing} of {blocks} checkpoints differ. {}",
                    describe(&first)
                )?;
                let program = &recording.head().program;
                if program == PROGRAM {
                    return Ok(());
                }
                writeln!(f, "  recorded by tidegate {program}, replayed by tidegate {PROGRAM}")
            }
        }
    }
}

/// Describes the first checkpoint whose packets differ from the recording. A checkpoint is a block
/// of the recording. The recording numbers its blocks from 0, and the report numbers its
/// checkpoints from 1.
fn describe(first: &Difference) -> String {
    let Difference { block, first_input, from, recorded, sent } = *first;
    let packets = if recorded == sent {
        format!("both sent {sent} packets, but not with the same content")
    } else {
        format!("the recorded process sent {recorded} packets, and the replay sent {sent}")
    };
    let (checkpoint, from_s) = (block + 1, from.as_secs_f64());
    format!(
        "The first is checkpoint {checkpoint}, which begins after input {first_input}, at \
         {from_s:.6} s: {packets}"
    )
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { inputs, packets, blocks, span, .. } = self.replayed.verdict;
        let head = self.recording.head();
        let listeners: Vec<_> = head.listeners.iter().map(ToString::to_string).collect();
        writeln!(
            f,
            "{:<12}tidegate {}, law {}, at {}",
            "recorded",
            head.program,
            self.law,
            listeners.join(", ")
        )?;
        writeln!(
            f,
            "{:<12}{}: {} datagrams, {} turns of service, {} timers, {} readings of the load, {} \
             failed deliveries, {} commands, {} answers to DNS queries and look-ups, {} connection \
             events, {} starts of draining",
            "inputs",
            inputs.total(),
            inputs.datagrams,
            inputs.serves,
            inputs.timeouts,
            inputs.loads,
            inputs.failures,
            inputs.commands,
            inputs.answers,
            inputs.connections,
            inputs.drains
        )?;
        if let Some((first, last)) = span {
            let (first, last) = (first.as_secs_f64(), last.as_secs_f64());
            writeln!(f, "{:<12}{:.3} s, from {first:.3} to {last:.3}", "time", last - first)?;
        }
        let received = self.received().filter(|(_, n)| *n > 0);
        let received: Vec<_> = received.map(|(name, n)| format!("{name} {n}")).collect();
        writeln!(f, "{:<12}{}", "received", received.join(", "))?;
        let flow = &self.replayed.counters.proxy.overload.flows[Bucket::Session as usize];
        writeln!(
            f,
            "{:<12}offered {}, admitted {}, rejected {}, retransmitted {}",
            "new calls",
            flow.offered.get(),
            flow.admitted.get(),
            flow.rejected.get(),
            flow.repeated.get()
        )?;
        writeln!(f, "{:<12}{packets} packets, checked at {blocks} checkpoints", "sent")?;
        self.verdict(f)
    }
}

#[cfg(test)]
mod tests {
    use tidegate_world::Timestamp;

    use super::*;

    #[test]
    fn the_first_difference_is_described_even_if_the_numbers_of_packets_are_equal() {
        let from = Timestamp::ZERO;
        let first = Difference { block: 0, first_input: 0, from, recorded: 500, sent: 500 };
        let text = describe(&first);
        assert!(
            text.starts_with("The first is checkpoint 1, which begins after input 0"),
            "{text}"
        );
        assert!(text.ends_with(": both sent 500 packets, but not with the same content"), "{text}");
        let text = describe(&Difference { sent: 499, ..first });
        let sent = ": the recorded process sent 500 packets, and the replay sent 499";
        assert!(text.ends_with(sent), "{text}");
    }
}
