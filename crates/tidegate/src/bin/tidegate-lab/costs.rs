//! `tidegate-lab costs`: the cost of a message of each kind, admitted and rejected.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use tidegate_lab::costs::gate::{Gate, Halves};
use tidegate_lab::costs::model::Model;
use tidegate_lab::costs::{
    self, Control, Cost, Costs, Decision, Derived, Parameters, Row, picture,
};

use crate::calibrate::Kept;
use tidegate::json;
use tidegate::trouble::Trouble;

/// The rate of accepted messages for which the model is evaluated, as a fraction of the greatest
/// possible rate of accepted messages. Paper 000, the thesis on single-class and simplified
/// multi-class overload control (`docs/papers.md`), uses the same fraction.
const PART: f64 = 0.9;

/// Measure the cost of each kind of message (accepted, rejected or dropped), with and without the
/// measurements of a law
///
/// The command repeats §6.1 of paper 000, a thesis on single-class and simplified multi-class
/// overload control in a SIP server (docs/papers.md). The server has no law, a law that measures
/// the load at each message, or a law that measures it only once a second. The messages are those
/// that the server can route, and those that it cannot. Each cost is measured in two ways: with
/// sockets (the whole cycle), and in the core alone. From the costs the command computes the time
/// to process a message (t_a), the time to shed a message (t_d), and the cost of a rejected call
/// (r) divided by the cost of a served call (s). It also evaluates the model in §5 of the paper,
/// which gives the rate of accepted messages if the server admits the share f of the messages. Stop
/// other programs while the command runs.
#[derive(clap::Args)]
pub struct Args {
    /// Mode of the measured server
    #[arg(long, value_enum, default_value_t = Kept::Transaction)]
    mode: Kept,

    /// Number of rounds. The table shows the minimum, median and mean of all rounds. Paper 000 uses
    /// 10
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100), default_value_t = 5)]
    rounds: u32,

    /// Number of messages of each kind in a round. Paper 000 uses 100,000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), default_value_t = 2000)]
    messages: u32,

    /// Number of messages of one kind that are timed together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=500), default_value_t = 100)]
    batch: u32,

    /// Directory for costs.csv, costs.json and the figure
    #[arg(long, value_name = "DIR", default_value = "out/costs")]
    out: PathBuf,
}

/// Measures the costs, prints them, and writes them to files.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let unmade = |error| Trouble::usage(format!("{}: {error}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(unmade)?;
    let parameters = Parameters {
        mode: args.mode.into(),
        rounds: args.rounds,
        messages: args.messages,
        batch: args.batch,
    };
    let on_measured = |round: u32, of: Control, with: Decision| {
        let (control, fate) = (of.name(), with.name());
        let _ = writeln!(anstream::stderr(), "round {round}: control {control}, {fate}");
    };
    let costs = costs::measure(&parameters, &on_measured).map_err(Trouble::failure)?;
    let (Some(cycle), Some(processing)) =
        (costs.derived(Row::cycle), costs.derived(Row::processing))
    else {
        return Err(Trouble::failure(
            "not every kind of message was measured, so the cost of a call is not known; run the \
             command again",
        ));
    };
    write(&args.out, &costs, &cycle, &processing)?;
    let text = table(&costs) + &conclusions(&cycle, &processing) + &dropped(&costs.gate);
    let _ = writeln!(
        anstream::stdout(),
        "{text}the costs and the figure are in {}",
        args.out.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn table(costs: &Costs) -> String {
    let Costs { machine, rounds, messages, batch, transactions, .. } = costs;
    let mut text = format!(
        "Costs of messages on {}, {}: {rounds} rounds of {messages} messages of each kind, \
         measured in batches of {batch}.\nIn µs, over all rounds: the minimum, the median of the medians, the mean of the \
         means.\n\n{:<10} {:<5} {:<9} {:<9} {:>7} {:>7} {:>7}   {:>7} {:>7} {:>7}\n",
        machine.processor,
        if *transactions { "with transactions" } else { "without transactions" },
        "",
        "",
        "",
        "",
        "whole",
        "cycle",
        "",
        "core",
        "alone",
        "",
    );
    text += &format!(
        "{:<10} {:<5} {:<9} {:<9} {:>7} {:>7} {:>7}   {:>7} {:>7} {:>7}\n",
        "message", "to", "control", "", "min", "median", "mean", "min", "median", "mean"
    );
    for row in &costs.rows {
        let to = if row.good { "good" } else { "bad" };
        let of = |cost: &Cost| {
            format!("{:>7.2} {:>7.2} {:>7.2}", cost.min_us, cost.median_us, cost.mean_us)
        };
        let (control, fate) = (row.control.name(), row.fate.name());
        text += &format!(
            "{:<10} {to:<5} {control:<9} {fate:<9} {}   {}\n",
            row.kind.name(),
            of(&row.cycle),
            of(&row.processing)
        );
    }
    text + "\nWhole cycle: from the receive buffer of a socket to the last sent packet. Core alone: \
            without sockets.\nThe column `to` shows the destination. good: the server can \
            route the message. bad: it cannot. The column `control` shows the overload control of \
            the server. none: no law. idle: the law `occupancy`, which measures only once a \
            second. measures: the law `occupancy`, which measures at each message.\n"
}

fn conclusions(cycle: &Derived, processing: &Derived) -> String {
    let mut text = format!(
        "\nµs                                        {:>11} {:>11} {:>9}\n",
        "whole cycle", "core alone", "paper"
    );
    let mut line = |what: &str, of: &dyn Fn(&Derived) -> f64, digits: usize, paper: Option<f64>| {
        let paper = paper.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"));
        text += &format!(
            "{what:<41} {:>11.digits$} {:>11.digits$} {paper:>9}\n",
            of(cycle),
            of(processing)
        );
    };
    let paper = Model::PAPER;
    let at = |model: &Model| model.fraction_for(PART);
    line("s, cost of a call with six messages", &|d| d.call_us, 2, None);
    line("r, cost of a rejected call (503 and ACK)", &|d| d.rejection_us, 2, None);
    line("r/s", &|d| d.rejection_us / d.call_us, 3, None);
    line("cost of a dropped INVITE", &|d| d.drop_us, 2, None);
    line(
        "t_a, cost of a message of a call",
        &|d| d.dropping.accepted_us,
        2,
        Some(paper.accepted_us),
    );
    line("t_d, cost of a dropped message", &|d| d.dropping.dropped_us, 2, Some(paper.dropped_us));
    line("t_d/t_a", &|d| d.dropping.ratio(), 3, Some(paper.ratio()));
    line("f at 90 % of the greatest accepted rate", &|d| at(&d.dropping), 3, Some(at(&paper)));
    line(
        "messages/s processed at that f",
        &|d| d.dropping.processed(at(&d.dropping)),
        0,
        Some(paper.processed(at(&paper))),
    );
    line(
        "full queue: wait(f = 1) ÷ wait(that f)",
        &|d| d.dropping.delay_ratio(at(&d.dropping)),
        2,
        Some(paper.delay_ratio(at(&paper))),
    );
    line("f at 90 % if calls are rejected by 503", &|d| at(&d.rejecting), 3, None);
    text + "f: the admitted share of the messages (paper 000, §5)\n\n"
}

/// Returns a table with the costs of dropping a datagram: if the process reads it and then drops
/// it, and if the kernel drops it.
fn dropped(gate: &Gate) -> String {
    let mut text = format!(
        "dropped datagram of 500 bytes, CPU µs     {:>11} {:>11} {:>9}\n",
        "arrival", "reading", "total"
    );
    for (what, Halves { sender, reader }) in [
        ("read, then dropped because of its first bytes", &gate.read),
        ("dropped by the kernel", &gate.shed),
    ] {
        let (sender, reader) = (sender.median_us, reader.median_us);
        text += &format!("{what:<41} {sender:>11.2} {reader:>11.2} {:>9.2}\n", sender + reader);
    }
    text + &format!(
        "a drop by the kernel saves {:.2} µs; on this machine the time of arrival includes the time \
         of sending\n\n",
        gate.saved_us()
    )
}

fn write(
    folder: &Path,
    costs: &Costs,
    cycle: &Derived,
    processing: &Derived,
) -> Result<(), Trouble> {
    let unwritten = |error| Trouble::failure(format!("{}: {error}", folder.display()));
    let mut csv = "message,to,control,fate,way,round,min_us,median_us,mean_us\n".to_owned();
    for row in &costs.rows {
        let to = if row.good { "good" } else { "bad" };
        for (way, cost) in [("cycle", &row.cycle), ("core", &row.processing)] {
            for (round, [min, median, mean]) in (1..).zip(&cost.rounds_us) {
                csv += &format!(
                    "{},{to},{},{},{way},{round},{min},{median},{mean}\n",
                    row.kind.name(),
                    row.control.name(),
                    row.fate.name()
                );
            }
        }
    }
    fs::write(folder.join("costs.csv"), csv).map_err(unwritten)?;
    let model = |of: &Model| {
        let fraction = of.fraction_for(PART);
        json!({
            "accepted_us": of.accepted_us,
            "dropped_us": of.dropped_us,
            "fraction": fraction,
            "processed_per_s": of.processed(fraction),
            "delay_ratio": of.delay_ratio(fraction),
        })
    };
    let derived = |of: &Derived| {
        json!({
            "call_us": of.call_us,
            "rejection_us": of.rejection_us,
            "drop_us": of.drop_us,
            "dropping": model(&of.dropping),
            "rejecting": model(&of.rejecting),
        })
    };
    let mut figures = serde_json::to_value(costs).map_err(Trouble::failure)?;
    figures["cycle"] = derived(cycle);
    figures["core"] = derived(processing);
    figures["paper"] = model(&Model::PAPER);
    json::write(&folder.join("costs.json"), &figures)?;
    let figure = picture::picture(cycle, processing, &costs.machine.processor);
    fs::write(folder.join("accepted-rate.svg"), figure.svg()).map_err(unwritten)?;
    fs::write(folder.join("accepted-rate.png"), figure.png()).map_err(unwritten)
}
