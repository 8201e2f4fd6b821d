//! `[overload]`, `[emulate]` and the policy of a `[[pool]]` with every key written out: what was read, as it would be
//! read again.

use ipnet::IpNet;
use tidegate_balance::Learning;
use tidegate_control::{
    Decide, Estimation, Scheme, ShedOrder, SourceSettings, TierSettings, Values,
};
use tidegate_proxy::{
    Class, Disposal, Excess, Flood, Overload, Priority, Queueing, SourceLimit, SourceWeight,
    Sources,
};
use tidegate_world::Work;

use super::overload::Emulate;
use super::pool::Selection;
use super::shape::Choice;
use super::tables::{
    CHECK, CLASSES, Classes, DECIDE, DISPOSAL, LIMIT_PER, LIMIT_THEN, OCCUPANCY, QUEUE, SHED_BY,
    THROTTLE, Then,
};

/// The table `[overload]`, with those in it.
pub fn overload_toml(overload: &Overload) -> String {
    let Overload {
        gate,
        queueing,
        disposal,
        reinvites,
        retry_after,
        pad,
        refusing_max,
        stateful_max,
        sources,
    } = overload;
    let refusing_max = match disposal {
        Disposal::Kernel => format!("refusing_max = {refusing_max}\n"),
        Disposal::Reject | Disposal::Drop => String::new(),
    };
    // Of use to a pool that is adaptive alone, and to no other a part of what was read.
    let stateful_max = if *stateful_max == TierSettings::default().occupancy_max {
        String::new()
    } else {
        format!("stateful_max = {stateful_max}\n")
    };
    let mut text = format!(
        "[overload]\nlaw = \"{}\"\ndecide = \"{}\"\nqueue = \"{}\"\nthrottle = \"{}\"\n\
         burst = {}\n{}reinvites = {reinvites}\n{}{}\
         disposal = \"{}\"\n{refusing_max}{stateful_max}occupancy = \"{}\"\nsticky = {}\nmemory_max = {}\n\n\
         [overload.params]\n",
        gate.law.entry().name,
        decide_word(gate.decide),
        queue_word(*queueing),
        word(&THROTTLE.shape, gate.throttle),
        gate.burst,
        scheme_toml(&gate.scheme),
        retry_after
            .map(|(least, most)| format!("retry_after = [{least}, {most}]\n"))
            .unwrap_or_default(),
        pad.map(|bytes| format!("pad = {bytes}\n")).unwrap_or_default(),
        word(&DISPOSAL.shape, *disposal),
        word(&OCCUPANCY.shape, gate.occupancy),
        gate.sticky,
        gate.memory_max,
    );
    text += &params_toml(&gate.law);
    if let Some(shadow) = &gate.shadow {
        text += &format!("\n[overload.shadow]\nlaw = \"{}\"\n", shadow.entry().name);
        text += "\n[overload.shadow.params]\n";
        text += &params_toml(shadow);
    }
    // Whoever reads it knows which class ends a call.
    let Estimation { check, interval, weight, rate_cps, rate_min_cps, end: _ } = gate.sessions;
    text + &format!(
        "\n[overload.sessions]\ncheck = \"{}\"\ninterval_ms = {}\nweight = {weight}\n\
         rate_cps = {rate_cps}\nrate_min_cps = {rate_min_cps}\n",
        word(&CHECK.shape, check),
        interval.as_millis(),
    ) + &sources_toml(&gate.sources, sources)
}

/// The tables that tell sources apart.
fn sources_toml(gate: &SourceSettings, sources: &Sources) -> String {
    let nets = |nets: &[IpNet]| list(nets.iter().map(ToString::to_string));
    let Sources { priority, limits, weights, flood, never_ban, bans_max } = sources;
    let mut text = format!(
        "\n[overload.sources]\nfair = {}\ntable_max = {}\nnever_ban = {}\nbans_max = {bans_max}\n",
        gate.fair,
        gate.sources_max,
        nets(never_ban)
    );
    if let Some(Flood { above_cps, after_s, ban }) = flood {
        text += &format!("ban_above_cps = {above_cps}\nban_after_s = {after_s}\n");
        text += &format!("ban_s = {}\n", ban.as_secs());
    }
    for SourceWeight { from, weight } in weights {
        text += &format!("\n[[overload.weight]]\nfrom = \"{from}\"\nweight = {weight}\n");
    }
    for SourceLimit { from, rate_cps, burst, per, then } in limits {
        let (then, ban_s) = match then {
            Excess::Refuse => (Then::Refuse, String::new()),
            Excess::Drop => (Then::Drop, String::new()),
            Excess::Ban(time) => (Then::Ban, format!("ban_s = {}\n", time.as_secs())),
        };
        text += &format!(
            "\n[[overload.limit]]\nfrom = \"{from}\"\nrate_cps = {rate_cps}\nburst = {burst}\n\
             per = \"{}\"\nthen = \"{}\"\n{ban_s}",
            word(&LIMIT_PER.shape, *per),
            word(&LIMIT_THEN.shape, then),
        );
    }
    if let Some(Priority { from, emergency, values, rate_cps }) = priority {
        text += &format!(
            "\n[overload.priority]\nfrom = {}\nemergency = {emergency}\n\
             resource_priority = {}\ncap_cps = {rate_cps}\n",
            nets(from),
            list(values.texts()),
        );
    }
    text
}

fn list(texts: impl IntoIterator<Item = String>) -> String {
    let quoted: Vec<_> = texts.into_iter().map(|text| format!("\"{text}\"")).collect();
    format!("[{}]", quoted.join(", "))
}

fn params_toml(law: &Values) -> String {
    law.each().map(|(param, value)| format!("{} = {value}\n", param.name)).collect()
}

/// The keys of a class scheme.
fn scheme_toml(scheme: &Scheme) -> String {
    let classes = |classes| format!("classes = \"{}\"\n", word(&CLASSES.shape, classes));
    match scheme {
        Scheme::Simplified { scaled } => {
            format!("{}scaled = {scaled}\n", classes(Classes::Simplified))
        }
        Scheme::Single => classes(Classes::Single),
        Scheme::Multi(ShedOrder { order, weight }) => {
            let of_number =
                |number: &u8| Class::ALL.into_iter().find(|class| *class as u8 == *number);
            let names = order.iter().filter_map(of_number);
            let names: Vec<_> = names.map(|class| format!("\"{}\"", class.name())).collect();
            let names = names.join(", ");
            let weight = word(&SHED_BY.shape, *weight);
            let classes = classes(Classes::Multi);
            format!("{classes}shed = [{names}]\nshed_by = \"{weight}\"\n")
        }
    }
}

/// The table `[emulate]`.
pub fn emulate_toml(emulate: &Emulate) -> String {
    let Emulate { receive, offer, serve, serve_stateless, refuse, socket_max } = emulate;
    let by_class = |costs: &[std::time::Duration; Work::CLASSES_MAX]| {
        let cost = |class: Class| {
            let us = costs[class as usize].as_nanos() as f64 / 1e3;
            format!("{} = {us}", class.name())
        };
        Class::ALL.map(cost).join(", ")
    };
    let serve_stateless = serve_stateless
        .as_ref()
        .map(|costs| format!("serve_stateless_us = {{ {} }}\n", by_class(costs)))
        .unwrap_or_default();
    format!(
        "[emulate]\nreceive_us = {}\noffer_us = {{ {} }}\nserve_us = {{ {} }}\n{serve_stateless}\
         refuse_us = {{ {} }}\nsocket_max = {socket_max}\n",
        receive.as_nanos() as f64 / 1e3,
        by_class(offer),
        by_class(serve),
        by_class(refuse),
    )
}

/// The keys of `[[pool]]` that say who gets a new request.
pub fn selection_toml(selection: &Selection) -> String {
    let params = match selection {
        Selection::One(values) => {
            let given = values.each().map(|(param, value)| format!("{} = {value}", param.name));
            given.collect::<Vec<_>>().join(", ")
        }
        Selection::Fork => String::new(),
    };
    format!("policy = \"{}\"\nparams = {{ {params} }}\n", selection.name())
}

/// The key of `[[pool]]` that says how rates are learned.
pub fn learning_toml(learning: &Learning) -> String {
    let Learning { interval, increase, decrease, rate_min_cps } = learning;
    format!(
        "limit = {{ learn = \"refusals\", interval_ms = {}, increase = {increase}, \
         decrease = {decrease}, rate_min_cps = {rate_min_cps} }}\n",
        interval.as_millis(),
    )
}

/// What `decide` is written as.
pub fn decide_word(decide: Decide) -> &'static str {
    word(&DECIDE.shape, decide)
}

/// What `queue` is written as.
pub fn queue_word(queue: Queueing) -> &'static str {
    word(&QUEUE.shape, queue)
}

/// What is written to choose `value`.
fn word<T: Copy + PartialEq>(choice: &Choice<T>, value: T) -> &'static str {
    let found = choice.words.iter().find(|(_, known)| *known == value);
    found.expect("every value can be chosen").0
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    const PLACES: &str = "[[listen]]\ntransport = \"udp\"\naddress = \"127.0.0.1:0\"\n\
                          [[pool]]\nname = \"app\"\n[[pool.backend]]\nuri = \"sip:127.0.0.1\"\n";

    #[test]
    fn a_policy_is_read_as_what_it_was() {
        for keys in ["policy = \"tlwl\"\nparams = { invite = 2.5 }\n", "policy = \"fork\"\n"] {
            let text =
                |keys: &str| PLACES.replace("name = \"app\"\n", &format!("name = \"app\"\n{keys}"));
            let read = |text: &str| {
                let config = Config::parse(Path::new("f"), text.as_bytes());
                config.unwrap_or_else(|e| panic!("{e}")).pool.remove(0).policy
            };
            let policy = read(&text(keys));
            assert_eq!(read(&text(&selection_toml(&policy))), policy);
        }
    }

    #[test]
    fn how_rates_are_learned_is_read_as_what_it_was() {
        let learning = Learning {
            interval: std::time::Duration::from_millis(70),
            increase: 0.125,
            decrease: 0.75,
            rate_min_cps: 2.5,
        };
        let keys = format!("name = \"app\"\n{}", learning_toml(&learning));
        let text = PLACES.replace("name = \"app\"\n", &keys);
        let config = Config::parse(Path::new("f"), text.as_bytes());
        let pool = config.unwrap_or_else(|e| panic!("{e}")).pool.remove(0);
        assert_eq!(pool.learning, Some(learning));
    }

    #[test]
    fn what_is_written_is_read_as_what_it_was() {
        let given = "[overload]\nlaw = \"pi\"\ndecide = \"service\"\nqueue = \"fifo\"\n\
                     throttle = \"random\"\ndisposal = \"drop\"\noccupancy = \"cpu\"\n\
                     sticky = false\nmemory_max = 5000\nparams = { c_t = 0.85, k_ic = 3 }\n\
                     [emulate]\nreceive_us = 2.25\noffer_us = 100.5\nsocket_max = 7\n\
                     serve_us = { default = 700, invite = 0.125 }\n";
        let parse = |text: &str| {
            let text = PLACES.to_owned() + text;
            Config::parse(Path::new("f"), text.as_bytes()).unwrap_or_else(|e| panic!("{e}"))
        };
        let single = "[overload]\nclasses = \"single\"\nreinvites = true\nburst = 9\n\
                      retry_after = [0, 7]\npad = 512\n[overload.sessions]\ncheck = \"full\"\n\
                      interval_ms = 50\nweight = 0.5\nrate_cps = 7.5\nrate_min_cps = 0.25\n\
                      [emulate]\n";
        let multi = "[overload]\nclasses = \"multi\"\nshed = [\"bye\", \"final\"]\n\
                     shed_by = \"count\"\nthrottle = \"gapping\"\n[emulate]\n";
        let scaled = "[overload]\nscaled = true\n[emulate]\n";
        let sources = "[overload.sources]\nfair = true\ntable_max = 99\nban_above_cps = 500\n\
                       ban_after_s = 3\nban_s = 9\nnever_ban = [\"10.0.0.0/8\"]\nbans_max = 5\n\
                       [[overload.weight]]\nfrom = \"10.1.0.0/16\"\nweight = 1000\n\
                       [[overload.limit]]\nfrom = \"192.0.2.1\"\nrate_cps = 0.5\nthen = \"ban\"\n\
                       ban_s = 7\n[[overload.limit]]\nfrom = \"2001:db8::/32\"\nrate_cps = 20\n\
                       burst = 3\nper = \"limit\"\nthen = \"drop\"\n[overload.priority]\n\
                       from = [\"192.0.2.9/32\"]\nemergency = false\ncap_cps = 2.5\n\
                       resource_priority = [\"esnet.1\", \"DSN.flash\"]\n[emulate]\n";
        let kernel = "[overload]\ndisposal = \"kernel\"\nrefusing_max = 0.25\nstateful_max = 0.6\n\
                      [emulate]\nserve_us = 9\nserve_stateless_us = { default = 3, bye = 0.5 }\n";
        for text in [given, single, multi, scaled, sources, kernel, "[emulate]\n"] {
            let config = parse(text);
            let emulate = config.emulate.expect("it was given");
            let again = parse(&(overload_toml(&config.overload) + &emulate_toml(&emulate)));
            assert_eq!(again.overload, config.overload);
            let again = again.emulate.expect("it was written");
            // There are places for more classes than there are.
            for class in Class::ALL.map(|class| class as usize) {
                assert_eq!(again.offer[class], emulate.offer[class]);
                assert_eq!(again.serve[class], emulate.serve[class]);
                assert_eq!(again.refuse[class], emulate.refuse[class]);
                let stateless = |emulate: &Emulate| emulate.serve_stateless.map(|us| us[class]);
                assert_eq!(stateless(&again), stateless(&emulate));
            }
            assert_eq!((again.receive, again.socket_max), (emulate.receive, emulate.socket_max));
        }
    }
}
