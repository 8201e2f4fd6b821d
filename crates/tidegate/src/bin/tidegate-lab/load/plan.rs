//! The command in a load plan: the leader divides its load among the followers.

use clap::{Parser, Subcommand};

use super::uac;

/// The arguments of a load plan, in the same form as after `tidegate-lab load`.
#[derive(Parser)]
#[command(name = "tidegate-lab load lead … --", no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Uac(Box<uac::Args>),
}

/// Returns the options of the command `words`.
///
/// # Errors
/// Returns an error of clap if an option is wrong, or if an option applies to a single machine and
/// so cannot be part of a load plan. Rejects a trace before its file is opened, because the words
/// may come from a peer.
pub fn parse(words: &[String]) -> Result<Box<uac::Args>, clap::Error> {
    let is_trace =
        |word: &String| word.strip_prefix("--arrivals=").unwrap_or(word).starts_with("trace:");
    let wrong =
        |message: String| clap::Error::raw(clap::error::ErrorKind::ValueValidation, message);
    if words.iter().any(is_trace) {
        let why = "a trace cannot be divided among followers: give --rate, and another pattern \
                   with --arrivals\n";
        return Err(wrong(why.to_owned()));
    }
    let Line { command: Command::Uac(args) } = Line::try_parse_from(words)?;
    match args.local_option() {
        None => Ok(args),
        Some(option @ ("--json" | "--progress")) => {
            Err(wrong(format!("{option} is an option of `load lead`: put it before the --\n")))
        }
        Some(option) => Err(wrong(format!(
            "{option} is an option of `load follow`: give it to each follower\n"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> String {
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        parse(&words).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_plan_is_a_command_of_the_generator() {
        assert_eq!(said("uac 127.0.0.1:5070 --rate 10 --calls 5"), "");
        // All followers open their WebSockets with the same request.
        let websocket = "--transport ws --ws-path /sip --origin https://a.example";
        assert_eq!(said(&format!("uac 127.0.0.1 --rate 10 --calls 5 {websocket}")), "");
        assert!(said("uas --bind 127.0.0.1").contains("unrecognized subcommand 'uas'"));
        assert!(said("uac 127.0.0.1 --rates 10").contains("unexpected argument '--rates'"));
    }

    #[test]
    fn options_of_one_machine_are_no_part_of_a_plan() {
        for (words, option) in [
            ("--json x.json", "--json is an option of `load lead`"),
            ("--progress", "--progress is an option of `load lead`"),
            ("--bind 127.0.0.2", "--bind is an option of `load follow`"),
            ("--ca x.pem", "--ca is an option of `load follow`"),
            ("--certificate x --private-key y", "--certificate is an option of `load follow`"),
        ] {
            let said = said(&format!("uac 127.0.0.1 --rate 1 --calls 1 {words}"));
            assert!(said.contains(option), "{words}: {said}");
        }
    }

    #[test]
    fn a_trace_is_rejected_before_its_file_is_opened() {
        for words in
            ["uac 127.0.0.1 --arrivals trace:/none", "uac 127.0.0.1 --arrivals=trace:/none"]
        {
            assert!(said(words).contains("a trace cannot be divided"), "{}", said(words));
        }
    }
}
