//! `tidegate-lab overhead`: the cost and the accuracy of a law's measurements.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidegate_lab::overhead::droppers::{self, WINDOW};
use tidegate_lab::overhead::packets::{self, EVERY, Reading};
use tidegate_lab::overhead::{self, Overhead, Parameters, picture, readings};

use crate::calibrate::Kept;
use tidegate::json;
use tidegate::trouble::Trouble;

/// Measure the cost and the accuracy of a law's measurements, and the accuracy of the throttles
///
/// There are three measurements, as in paper 000. The first is the additional cost of a message
/// when the laws occupancy, aro and sired measure at intervals of several messages and admit all
/// messages (§6.2). The second is the error of the measured occupancy, for several windows and
/// several clock resolutions (§4.1.1). The third is the deviation of the deterministic and the
/// random throttle from their share, compared with the exact values by formula (§3.4). Stop other
/// programs while the command runs.
#[derive(clap::Args)]
pub struct Args {
    /// Mode of the measured server
    #[arg(long, value_enum, default_value_t = Kept::Transaction)]
    mode: Kept,

    /// Number of pairs of batches for each law and each frequency of its measurements. One batch of
    /// a pair is served without overload control, and the other under the law
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000), default_value_t = 60)]
    rounds: u32,

    /// Number of calls in a batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), default_value_t = 100)]
    calls: u32,

    /// Number of packets for measuring the error of the occupancy. One thread serves all of them. A
    /// packet comes every 300 µs on average
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=1_000_000), default_value_t = 20_000)]
    packets: u32,

    /// Number of requests about which each throttle decides, for each share
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1000..=100_000_000), default_value_t = 1_000_000)]
    pieces: u32,

    /// Seed of the arrivals and the random decisions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Directory for overhead.json and the figures
    #[arg(long, value_name = "DIR", default_value = "out/overhead")]
    out: PathBuf,
}

/// Measures, prints the results, and writes them to files.
pub fn run(args: &Args) -> Result<ExitCode, Trouble> {
    let unmade = |error| Trouble::usage(format!("{}: {error}", args.out.display()));
    fs::create_dir_all(&args.out).map_err(unmade)?;
    let Args { rounds, calls, packets, pieces, seed, .. } = *args;
    let parameters = Parameters {
        packets: packets::Parameters { mode: args.mode.into(), rounds, calls },
        readings: readings::Parameters { packets, seed },
        droppers: droppers::Parameters { pieces, seed },
    };
    let overhead = overhead::measure(&parameters).map_err(Trouble::failure)?;
    write(&args.out, &overhead)?;
    let text = of_packets(&overhead.packets, rounds)
        + &of_readings(&overhead.readings)
        + &of_droppers(&overhead.droppers, pieces);
    let _ = writeln!(
        anstream::stdout(),
        "{text}overhead.json and the figures are in {}",
        args.out.display()
    );
    Ok(ExitCode::SUCCESS)
}

fn of_packets(rows: &[packets::Row], rounds: u32) -> String {
    let mut text = format!(
        "Additional CPU time of a message in ns, if the law measures once in N messages and admits \
         all of them.\nMedian of {rounds} pairs of batches with and without the law. In brackets: \
         the same in percent of the time without the law.\n"
    );
    for reading in Reading::ALL {
        text += &format!("\nread {}\n{:<10}", reading.name(), "N");
        text.extend(EVERY.map(|measure| format!(" {measure:>13}")));
        text.push('\n');
        for of_law in rows.chunks(EVERY.len()).filter(|rows| rows[0].reading == reading) {
            text += &format!("{:<10}", of_law[0].law);
            text.extend(of_law.iter().map(|row| {
                let part = format!("({:.1} %)", row.part() * 100.0);
                format!(" {:>5.0} {part:>8}", row.more_ns.median)
            }));
            text.push('\n');
        }
    }
    text
}

fn of_readings(readings: &readings::Readings) -> String {
    let readings::Readings { occupancy, intended, packets, seconds, rows } = readings;
    let mut text = format!(
        "\nThe occupancy of a thread, read with each clock. Over the whole run it is \
         {occupancy:.3} (intended: {intended:.3}): {packets} packets in {seconds:.1} s.\n\
         Each reading covers k measurements, one every `measure` packets. Error: root mean \
         square of the differences from the occupancy over the whole run. By grain: root mean \
         square of the differences from an exact clock in the same windows, which only the clock's \
         resolution causes.\n\
         {:<7} {:>4} {:>8} {:>9} {:>7} {:>8} {:>9} {:>7} {:>7} {:>8}\n",
        "clock",
        "k",
        "measure",
        "readings",
        "0 %",
        "> 100 %",
        "greatest",
        "mean",
        "error",
        "by grain"
    );
    for row in rows {
        text += &format!(
            "{:<7} {:>4} {:>8} {:>9} {:>5.1} % {:>6.1} % {:>7.0} % {:>7.3} {:>7.3} {:>8.3}\n",
            row.clock,
            row.k,
            row.measure,
            row.readings,
            row.zero * 100.0,
            row.above_one * 100.0,
            row.max * 100.0,
            row.mean,
            row.error,
            row.of_grain
        );
    }
    text
}

fn of_droppers(rows: &[droppers::Row], pieces: u32) -> String {
    let mut text = format!(
        "\nAccuracy of the throttles: {pieces} requests for each share f that the throttle should \
         admit. In each pair of columns, the first value is measured, and the second is exact (by \
         formula).\n\
         Deviation: standard deviation of the number of admitted requests among {WINDOW}. \
         Run: rejected requests between two admitted ones.\n{:<14} {:>6} {:>9}   {:^17}   {:^17}   {:^17}\n",
        "throttle", "f", "admitted", "deviation", "mean run length", "longest run"
    );
    for row in rows {
        let pair = |pair: droppers::Pair| format!("{:>8.3} {:>8.3}", pair.measured, pair.exact);
        text += &format!(
            "{:<14} {:>6.3} {:>9.5}   {}   {}   {}\n",
            row.dropper,
            row.fraction,
            row.admitted,
            pair(row.deviation),
            pair(row.run_mean),
            pair(row.run_longest)
        );
    }
    text.push('\n');
    text
}

fn write(folder: &Path, overhead: &Overhead) -> Result<(), Trouble> {
    let unwritten = |error| Trouble::failure(format!("{}: {error}", folder.display()));
    let figures = serde_json::to_value(overhead).map_err(Trouble::failure)?;
    json::write(&folder.join("overhead.json"), &figures)?;
    for (name, figure) in picture::figures(overhead) {
        fs::write(folder.join(name).with_extension("svg"), figure.svg()).map_err(unwritten)?;
        fs::write(folder.join(name).with_extension("png"), figure.png()).map_err(unwritten)?;
    }
    Ok(())
}
