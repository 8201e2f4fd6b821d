//! Tests of `tidegate lab`.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;

/// A scenario with so few calls that even a slow machine can handle them. A call costs the
/// server 6 ms.
const SCENARIO: &str = "title = \"Few calls\"\n\
    [emulate]\nserve_us = 1000\n\
    [sweep]\nload = [0.2, 2]\n\
    [schedule]\nwarm_up_s = 0.3\nmeasured_s = 0.7\nrepetitions = 1\n\
    [[variant]]\noverload = { law = \"pi\" }\n\
    [[expect]]\nvariant = \"pi (arrival, class)\"\n";

fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("lab").args(arguments);
    command
}

/// Runs SCENARIO with this condition and writes its results to the folder `out`.
fn run(folder: &Path, condition: &str) -> assert_cmd::assert::Assert {
    let file = folder.join("few.toml");
    fs::write(&file, format!("{SCENARIO}{condition}\n")).unwrap();
    let mut command = lab(&["run", "few.toml", "--out", "out"]);
    command.current_dir(folder).assert()
}

/// Returns the output of a run. The verdict must be `word`, and the exit status `code`. If the
/// machine was too busy for the generator, the verdict must be `not valid`, and the exit status 1.
fn judged(run: assert_cmd::assert::Assert, word: &str, code: i32) -> String {
    let out = text(&run.get_output().stdout);
    let verdict = out.lines().find(|line| line.contains(" of the bound: ")).unwrap();
    if verdict.contains("; at ") {
        assert!(verdict.starts_with("not valid  pi") && verdict.contains("the generator"), "{out}");
        run.code(1);
    } else {
        assert!(verdict.starts_with(&format!("{word:<4}  pi")), "{out}");
        run.code(code);
    }
    out
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_scenario_is_run_on_real_sockets_and_judged() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), "goodput_of_bound_min = 0.01");
    let err = text(&first.get_output().stderr);
    let out = judged(first, "ok", 0);
    assert!(out.contains("C = 166.7 calls/s"), "{out}");
    assert!(out.contains("pi (arrival, class) has at least 1 % of the bound"), "{out}");
    assert!(err.contains("2 runs, of which 0 were made before"), "{err}");
    let csv = fs::read_to_string(folder.path().join("out/results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(folder.path().join("out/goodput.svg").exists());

    // The output names the expectation that was not met. The runs of the first command are not
    // repeated, unless the machine was too busy for one of them.
    let are_all_kept = |percent: u32| {
        let next = run(folder.path(), &format!("goodput_of_bound_max = 0.0{percent}"));
        let err = text(&next.get_output().stderr);
        let out = judged(next, "FAIL", 1);
        let unmet = format!("pi (arrival, class) has at most {percent} % of the bound");
        assert!(out.contains(&unmet), "{out}");
        err.contains("2 runs, of which 2 were made before")
    };
    assert!((1..=5).any(are_all_kept));
}

#[test]
fn an_invalid_scenario_is_rejected_with_the_place_of_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let rejected = run(folder.path(), "goodput = 1").code(2);
    let err = text(&rejected.get_output().stderr);
    assert!(err.contains("few.toml:12:1") && err.contains("unknown key `goodput`"), "{err}");
    assert!(!folder.path().join("out").exists());
    lab(&["run", "/nonexistent.toml"]).assert().code(2);
}

/// Returns the paths and contents of all files under `folder`.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            all.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    all.sort();
    all
}

/// There are eight runs: four laws at two loads. A run at the lower load takes much less time than
/// the run before it, so runs at the same time do not end in the order in which they begin.
#[test]
fn simulated_results_are_the_same_to_the_byte_however_many_run_at_once() {
    let more = ["none", "occupancy", "ohta"]
        .map(|law| format!("[[variant]]\noverload = {{ law = \"{law}\" }}\n"));
    let schedule = "warm_up_s = 0.1\nmeasured_s = 0.3\n";
    let scenario = SCENARIO
        .replace("warm_up_s = 0.3\nmeasured_s = 0.7\n", schedule)
        .replace("[[expect]]", &format!("{}[[expect]]", more.concat()));
    let scenario = format!("{scenario}goodput_of_bound_min = 0.01\n");
    let results = [1, 4].map(|jobs| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("few.toml"), &scenario).unwrap();
        let jobs = jobs.to_string();
        let mut command =
            lab(&["run", "few.toml", "--world", "sim", "--out", "out", "--jobs", &jobs]);
        let out = text(&command.current_dir(folder.path()).assert().code(0).get_output().stdout);
        assert!(out.contains("simulated time") && out.contains("packets delivered in "), "{out}");
        let base = folder.path().join("out");
        let name = |path: PathBuf| path.strip_prefix(&base).unwrap().to_owned();
        let files = files(&base).into_iter().map(|(path, bytes)| (name(path), bytes));
        files.collect::<Vec<_>>()
    });
    assert!(results[0].iter().filter(|(path, _)| path.ends_with("result.json")).count() == 8);
    assert!(results[0] == results[1]);
}

#[test]
fn results_of_both_worlds_are_reported_in_one_page() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("few.toml"), format!("{SCENARIO}goodput_of_bound_min = 0\n"))
        .unwrap();
    for world in ["sim", "real"] {
        let mut run = lab(&["run", "few.toml", "--world", world, "--out", world]);
        judged(run.current_dir(folder.path()).assert(), "ok", 0);
        let page = fs::read_to_string(folder.path().join(world).join("report.html")).unwrap();
        assert!(page.contains("<h1>Few calls</h1>"));
    }
    let mut report = lab(&["report", "sim", "real", "--out", "both/page.html"]);
    let reported = report.current_dir(folder.path()).assert().code(0);
    let out = text(&reported.get_output().stdout);
    assert!(out.contains("error in goodput: median"), "{out}");
    assert!(out.ends_with("report: both/page.html\n"), "{out}");
    let page = fs::read_to_string(folder.path().join("both/page.html")).unwrap();
    assert!(page.contains("Simulated time beside real sockets"));
    for figure in ["worlds-goodput.svg", "worlds-set-up-delay.png"] {
        assert!(folder.path().join("both").join(figure).exists(), "{figure}");
    }

    let rejected = lab(&["report", "/nonexistent"]).assert().code(2);
    let err = text(&rejected.get_output().stderr);
    assert!(err.contains("/nonexistent/results.json: No such file"), "{err}");
}

#[test]
fn scenarios_are_listed_with_the_errors_of_broken_ones() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("few.toml"), format!("{SCENARIO}goodput_of_bound_min = 0\n"))
        .unwrap();
    fs::write(folder.path().join("broken.toml"), "title = 5\n").unwrap();
    let at = folder.path().to_str().unwrap();
    let listed = lab(&["list", "scenarios", "--dir", at]).assert().code(0);
    let out = text(&listed.get_output().stdout);
    assert!(out.contains("Few calls") && out.contains("broken.toml is not a scenario"), "{out}");
    let listed = lab(&["list", "scenarios", "--dir", at, "--json"]).assert().code(0);
    let json: serde_json::Value = serde_json::from_slice(&listed.get_output().stdout).unwrap();
    assert!(json[0]["error"].is_string() && json[1]["points"] == 2, "{json}");
    lab(&["list", "scenarios", "--dir", "/nonexistent"]).assert().code(2);
}

#[test]
fn shards_of_a_sweep_fill_one_folder_and_a_run_finds_all_points_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("few.toml"), format!("{SCENARIO}goodput_of_bound_min = 0.01\n"))
        .unwrap();
    let run = |arguments: &[&str]| {
        let mut command = lab(&["run", "few.toml", "--world", "sim", "--out", "out"]);
        let done = command.args(arguments).current_dir(folder.path()).assert().code(0);
        text(&done.get_output().stderr)
    };
    for shard in ["1/2", "2/2"] {
        assert!(run(&["--shard", shard]).contains("1 runs, of which 0 were made before"));
    }
    assert!(!folder.path().join("out/results.csv").exists());
    assert!(run(&[]).contains("2 runs, of which 2 were made before"));
    assert!(folder.path().join("out/results.csv").exists());
    lab(&["run", "few.toml", "--shard", "3/2"]).current_dir(folder.path()).assert().code(2);
}

const ROW: &str = "[[node]]\nname = \"edge\"\nto = [\"core\"]\n\
    [[node]]\nname = \"core\"\nto = [\"answerers\"]\nunder_test = true\n";

#[test]
fn servers_in_a_row_are_run_on_real_sockets_and_one_crashes() {
    let folder = tempfile::tempdir().unwrap();
    let fault = "[[fault]]\nkind = \"crash\"\nnode = \"core\"\nat_s = 0.4\nfor_s = 0.2\n";
    let scenario = SCENARIO.replace("[emulate]", &format!("{ROW}{fault}[emulate]"));
    fs::write(folder.path().join("few.toml"), format!("{scenario}goodput_of_bound_min = 0.01\n"))
        .unwrap();
    let mut command = lab(&["run", "few.toml", "--out", "out"]);
    judged(command.current_dir(folder.path()).assert(), "ok", 0);
    let (mut results, mut timelines) = (0, 0);
    for (path, bytes) in files(&folder.path().join("out/points")) {
        if path.ends_with("result.json") {
            results += 1;
            let kept: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
            let nodes = &kept["outcome"]["nodes"];
            assert_eq!((&nodes[0]["node"], &nodes[0]["starts"]), (&"edge".into(), &1.into()));
            assert_eq!((&nodes[1]["node"], &nodes[1]["starts"]), (&"core".into(), &2.into()));
            assert!(nodes[1]["received"]["invite"].as_u64() > Some(0), "{nodes}");
        }
        if path.ends_with("timeline.csv") {
            timelines += 1;
            let csv = text(&bytes);
            assert!(
                csv.contains(",core,occupancy,") && csv.contains(",callers-edge,open,"),
                "{csv}"
            );
        }
    }
    assert_eq!((results, timelines), (2, 2));

    let link = scenario.replace("[emulate]", "[[link]]\nloss = 0.5\n[emulate]");
    fs::write(folder.path().join("few.toml"), format!("{link}goodput_of_bound_min = 0.01\n"))
        .unwrap();
    let mut command = lab(&["run", "few.toml", "--out", "out"]);
    let rejected = command.current_dir(folder.path()).assert().code(1);
    let out = text(&rejected.get_output().stdout);
    assert!(out.contains("a `[[link]]` works only in simulated time"), "{out}");
}

/// A stopped process cannot answer. So it must be continued before its counts are read.
#[test]
fn a_server_that_crashes_during_a_stall_keeps_its_counts() {
    let folder = tempfile::tempdir().unwrap();
    // The server does not start again, so all of its counts are those of the killed process.
    let faults = "[[fault]]\nkind = \"stall\"\nnode = \"core\"\nat_s = 0.6\nfor_s = 10\n\
                  [[fault]]\nkind = \"crash\"\nnode = \"core\"\nat_s = 0.8\nfor_s = 10\n";
    let scenario = SCENARIO.replace("[emulate]", &format!("{ROW}{faults}[emulate]"));
    fs::write(folder.path().join("few.toml"), format!("{scenario}goodput_of_bound_min = 0\n"))
        .unwrap();
    let mut command = lab(&["run", "few.toml", "--out", "out"]);
    judged(command.current_dir(folder.path()).assert(), "ok", 0);
    let points = files(&folder.path().join("out/points"));
    let results = points.iter().filter(|(path, _)| path.ends_with("result.json"));
    let cores = results.map(|(_, bytes)| {
        let kept: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        kept["outcome"]["nodes"][1].clone()
    });
    let cores: Vec<_> = cores.collect();
    assert_eq!(cores.len(), 2, "{cores:?}");
    for core in cores {
        assert_eq!((&core["node"], &core["starts"]), (&"core".into(), &1.into()));
        // About 20 calls began at the lower load before the stall.
        assert!(core["received"]["invite"].as_u64() > Some(5), "{core}");
    }
}

#[test]
fn the_sources_of_two_servers_on_real_sockets_have_an_index_of_fairness() {
    let folder = tempfile::tempdir().unwrap();
    let nodes = "[[node]]\nname = \"left\"\nto = [\"core\"]\n\
                 [[node]]\nname = \"right\"\nto = [\"core\"]\n\
                 [[node]]\nname = \"core\"\nto = [\"answerers\"]\nunder_test = true\n";
    let scenario = SCENARIO.replace("[emulate]", &format!("{nodes}[emulate]"));
    fs::write(folder.path().join("few.toml"), format!("{scenario}goodput_of_bound_min = 0.01\n"))
        .unwrap();
    let mut command = lab(&["run", "few.toml", "--out", "out"]);
    judged(command.current_dir(folder.path()).assert(), "ok", 0);
    let results = fs::read(folder.path().join("out/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_slice(&results).unwrap();
    let points = results["points"].as_array().unwrap();
    // The index needs at least 20 calls of each source, and at the lower load there are fewer.
    let high = points.iter().find(|point| point["swept"]["load"] == 2.0).unwrap();
    assert!(high["outcome"]["fairness"].is_number(), "{high}");
}

#[test]
fn laws_and_policies_are_listed() {
    let listed = lab(&["list", "laws"]).assert().code(0);
    assert!(text(&listed.get_output().stdout).contains("001 §3"));
    let listed = lab(&["list", "policies", "--json"]).assert().code(0);
    let json: serde_json::Value = serde_json::from_slice(&listed.get_output().stdout).unwrap();
    assert_eq!(json[0]["name"], "rr");
}

#[test]
fn costs_are_measured_and_scenarios_run_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let short = ["calibrate", "--seconds", "0.5", "--rounds", "1", "--json", "costs.json"];
    let measured = lab(&short).current_dir(folder.path()).assert().code(0);
    let out = text(&measured.get_output().stdout);
    assert!(out.contains("a rejected call") && out.ends_with("costs: costs.toml\n"), "{out}");
    let json = fs::read(folder.path().join("costs.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let us = |class: &str, what: &str| json["classes"][class][what].as_f64().unwrap();
    assert!(us("invite", "serve_us") > 0.0 && us("ack", "offer_us") > 0.0, "{json}");
    assert_eq!(us("register", "serve_us"), us("invite", "serve_us"));
    // The server pauses, so it cannot use much more than its part of a core while calls are
    // offered. Work after the load, up to 0.2 s more, does not count.
    let used = json["server_load"].as_f64().unwrap();
    assert!(used > 0.0 && used < 1.2, "{used}");

    let costs = fs::read_to_string(folder.path().join("costs.toml")).unwrap();
    assert!(costs.contains("# register was not measured"), "{costs}");
    fs::write(folder.path().join("few.toml"), format!("{SCENARIO}goodput_of_bound_min = 0\n"))
        .unwrap();
    let with_costs = ["run", "few.toml", "--world", "sim", "--costs", "costs.toml", "--out", "out"];
    let run = lab(&with_costs).current_dir(folder.path()).assert().code(0);
    let out = text(&run.get_output().stdout);
    assert!(!out.contains("C = 166.7 calls/s"), "{out}");
    // The results contain the costs and the scenario of the run. A run with these files is the same
    // run.
    let again = ["run", "few.toml", "--world", "sim", "--costs", "out/costs.toml", "--out", "out"];
    let again = lab(&again).current_dir(folder.path()).assert().code(0);
    let err = text(&again.get_output().stderr);
    assert!(err.contains("2 runs, of which 2 were made before"), "{err}");
}

#[test]
fn wrong_costs_are_rejected_before_anything_is_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("few.toml"), format!("{SCENARIO}goodput_of_bound_min = 0\n"))
        .unwrap();
    for (costs, wrong) in [
        ("[emulate]\nserve_us = 0\n", "a call costs nothing"),
        ("[emulate]\nserve_us = -1\n", "`serve_us` is out of bounds"),
        ("[pool]\n", "unknown key `pool`"),
        ("", "no `[emulate]`"),
    ] {
        fs::write(folder.path().join("costs.toml"), costs).unwrap();
        let run = ["run", "few.toml", "--world", "sim", "--costs", "costs.toml", "--out", "out"];
        let rejected = lab(&run).current_dir(folder.path()).assert().code(2);
        let err = text(&rejected.get_output().stderr);
        assert!(err.contains(wrong) && err.contains("costs.toml"), "{err}");
    }
    assert!(!folder.path().join("out").exists());
    lab(&["run", "scenario.toml", "--costs", "/nonexistent"]).assert().code(2);

    for (option, value) in
        [("--quota", "0"), ("--period-ms", "0"), ("--seconds", "nan"), ("--rounds", "0")]
    {
        lab(&["calibrate", option, value]).assert().code(2);
    }
    let rejected = lab(&["calibrate", "--out", "/nonexistent/costs.toml"]).assert().code(2);
    let err = text(&rejected.get_output().stderr);
    assert_eq!(
        err,
        "tidegate-lab calibrate: /nonexistent/costs.toml: No such file or directory \
                     (os error 2)\n"
    );
}

#[test]
fn parameters_are_tuned_by_simulation() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("few.toml"), format!("{SCENARIO}goodput_of_bound_min = 0\n"))
        .unwrap();
    let tune = |arguments: &[&str]| {
        let mut command = lab(&["tune", "few.toml", "--law", "pi"]);
        command.args(arguments).current_dir(folder.path()).assert()
    };
    let tuned = tune(&["--param", "k_pc", "--steps", "3", "--out", "out"]).code(0);
    let out = text(&tuned.get_output().stdout);
    assert!(out.contains("k_pc of `pi`") && out.contains("with other seeds"), "{out}");
    let path = fs::read_to_string(folder.path().join("out/path.csv")).unwrap();
    let lines: Vec<&str> = path.lines().collect();
    assert!(lines.len() == 4 && lines[0] == "step,value,k_pc,estimate_k_pc", "{path}");
    let json = fs::read(folder.path().join("out/tuned.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["path"].as_array().unwrap().len(), 3);
    assert!(folder.path().join("out/tuning.svg").exists());

    for (arguments, wrong) in [
        (&["--param", "k_x"][..], "`pi` has no parameter `k_x`"),
        (&["--param", "k_pc", "--param", "k_pc"], "--param k_pc is given twice"),
        (&["--from", "k_pc=-1"], "k_pc = -1, but it must be a number from 0 to 10000"),
        (&["--from", "k_pc"], "not of the form NAME=VALUE"),
        (&["--param", "t_q"], "must start above 0"),
        (&["--out", "few.toml/out"], "few.toml/out: Not a directory"),
        (&["--steps", "0"], "0 is not in 1..=10000"),
    ] {
        let rejected = tune(arguments).code(2);
        let err = text(&rejected.get_output().stderr);
        assert!(err.contains(wrong), "{err}");
    }
    let mut unknown = lab(&["tune", "few.toml", "--law", "x"]);
    let rejected = unknown.current_dir(folder.path()).assert().code(2);
    let err = text(&rejected.get_output().stderr);
    assert!(err.contains("unknown law `x`"), "{err}");
}

/// Reads the JSON file that a command wrote.
fn json(file: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn costs_are_measured_for_every_kind_of_message_and_give_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made/costs");
    let bounds = ["--rounds", "1", "--messages", "20", "--batch", "10"];
    let mut command = lab(&["costs", "--mode", "stateless"]);
    let done = command.args(bounds).arg("--out").arg(&out).assert().code(0);
    let printed = text(&done.get_output().stdout);
    for line in ["INVITE     good  none      accepted", "ACK (503)  good  idle      503"] {
        assert!(printed.contains(line), "{printed}");
    }
    assert!(
        printed.contains("f at 90 % of the greatest accepted rate") && printed.contains("0.435")
    );
    let costs = json(&out.join("costs.json"));
    // There are nine kinds of messages in seven states. Eight of them are also measured without a
    // destination. The ACK to a 503 is measured in two states.
    assert_eq!(costs["rows"].as_array().unwrap().len(), (9 + 8) * 7 + 2);
    assert_eq!(costs["transactions"], false);
    let csv = fs::read_to_string(out.join("costs.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * ((9 + 8) * 7 + 2), "{csv}");
    assert!(out.join("accepted-rate.svg").exists() && out.join("accepted-rate.png").exists());
    lab(&["costs", "--batch", "501"]).assert().code(2);
    lab(&["costs", "--out", "/proc/nowhere"]).assert().code(2);
}

#[test]
fn the_overhead_of_measuring_reading_and_selecting_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("overhead");
    let bounds = ["--rounds", "1", "--calls", "5", "--packets", "200", "--pieces", "10000"];
    let done = lab(&["overhead"]).args(bounds).arg("--out").arg(&out).assert().code(0);
    let printed = text(&done.get_output().stdout);
    for line in ["read at each measurement", "read every 2 ms", "10 ms      2        1       200"] {
        assert!(printed.contains(line), "{printed}");
    }
    let overhead = json(&out.join("overhead.json"));
    assert_eq!(overhead["packets"].as_array().unwrap().len(), 2 * 3 * 8);
    assert_eq!(overhead["droppers"].as_array().unwrap().len(), 2 * 7);
    assert_eq!(overhead["readings"]["packets"], 200);
    for name in ["measuring", "occupancy", "droppers"] {
        assert!(out.join(name).with_extension("svg").exists(), "{name}");
    }
}

const CLAIM: &str = "paper = \"x\"\n[[setup]]\nid = \"few\"\nscenario = \"few\"\n\
    [[claim]]\nid = \"x-rejects\"\nplace = \"§1\"\nsays = \"pi rejects beyond the capacity\"\n\
    setup = \"few\"\nvalues.kept = \"goodput('pi', load=2)\"\nreproduced = \"kept < 1.2\"\n\
    shows = \"{{ kept }} of the capacity\"\nverdict = \"reproduced\"\n\
    paper = { kept = 0.9 }\nplanted = { kept = 2 }\nquick = true\n";

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = std::process::Command::new("git");
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.com"];
    let done = command.current_dir(folder).args(identity).args(arguments).status().unwrap();
    assert!(done.success(), "{arguments:?}");
}

/// Commits all scenarios and documents in `folder`.
fn commit(folder: &Path) {
    git(folder, &["add", "scenarios", "docs"]);
    git(folder, &["commit", "--quiet", "--message", "docs: add results"]);
}

#[test]
fn claims_are_run_judged_and_written_into_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir_all(at("scenarios/claims")).unwrap();
    fs::create_dir(at("docs")).unwrap();
    let scenario = SCENARIO.split("[[expect]]").next().unwrap();
    fs::write(at("scenarios/few.toml"), scenario).unwrap();
    fs::write(at("scenarios/claims/x.toml"), CLAIM).unwrap();
    let marks = "<!-- begin: tidegate-lab reproduce -->\n<!-- end: tidegate-lab reproduce -->\n";
    fs::write(at("docs/reproduction.md"), marks).unwrap();
    let reproduce = |more: &[&str]| {
        let mut command = lab(&["reproduce"]);
        command.args(more).current_dir(folder.path()).assert()
    };
    reproduce(&["--check"]).code(1);
    let out = text(&reproduce(&["--quick"]).code(0).get_output().stdout);
    assert!(out.starts_with("ok   x-rejects  reproduced: pi rejects"), "{out}");
    assert!(!at("docs/reproduction.json").exists(), "a quick run says too little for the page");
    reproduce(&["--row", "x"]).code(0);
    let page = fs::read_to_string(at("docs/reproduction.md")).unwrap();
    assert!(page.contains("| §1: pi rejects beyond the capacity | reproduced |"), "{page}");
    reproduce(&["--check"]).code(0);

    // A row is stale if its scenario has changed, or if its commit is lost.
    fs::write(at("scenarios/few.toml"), scenario.replace("1000", "999")).unwrap();
    let check = reproduce(&["--check"]).code(1);
    let (out, err) = (text(&check.get_output().stdout), text(&check.get_output().stderr));
    assert!(out.contains("stale x-rejects: its scenario has changed\n"), "{out}");
    assert!(err.contains("stale rows: 1; run `make programs` and then"), "{err}");
    fs::write(at("scenarios/few.toml"), scenario).unwrap();
    git(folder.path(), &["init", "--quiet"]);
    commit(folder.path());
    let out = text(&reproduce(&["--check"]).code(1).get_output().stdout);
    let lost = "stale x-rejects: its commit unknown commit is not in the history\n";
    assert!(out.contains(lost), "{out}");
    reproduce(&["--row", "x"]).code(0);
    commit(folder.path());
    reproduce(&["--check"]).code(0);
    // A change of the program does not make a row stale. It only causes a warning.
    fs::create_dir_all(at("crates/control/src")).unwrap();
    fs::write(at("crates/control/src/lib.rs"), "//! A law.\n").unwrap();
    fs::create_dir_all(at("crates/io/src")).unwrap();
    fs::write(at("crates/io/src/lib.rs"), "//! A driver.\n").unwrap();
    git(folder.path(), &["add", "crates"]);
    commit(folder.path());
    let out = text(&reproduce(&["--check"]).code(0).get_output().stdout);
    let older = "1 row is older than the last change of crates/control: run `make reproduce`";
    assert_eq!(out, format!("warning: {older}\n"));
    let err = text(&reproduce(&["--check", "--strict"]).code(1).get_output().stderr);
    assert!(err.contains(older), "{err}");
    let out = text(&reproduce(&["--quick"]).code(0).get_output().stdout);
    assert!(out.ends_with(&format!("warning: {older}\n")), "{out}");
    // The results of scenarios with uncommitted changes are not written, because nobody could
    // repeat the runs.
    let page = fs::read_to_string(at("docs/reproduction.md")).unwrap();
    fs::write(at("scenarios/few.toml"), scenario.replace("1000", "999")).unwrap();
    let out = text(&reproduce(&["--row", "x"]).code(0).get_output().stdout);
    let unwritten = "not committed, so reproduction.md and reproduction.json will not be written";
    assert!(out.contains(unwritten), "{out}");
    assert_eq!(fs::read_to_string(at("docs/reproduction.md")).unwrap(), page);
    fs::write(at("scenarios/few.toml"), scenario).unwrap();

    fs::write(
        at("scenarios/claims/x.toml"),
        CLAIM.replace("\"reproduced\"\npaper", "\"not\"\npaper"),
    )
    .unwrap();
    let out = text(&reproduce(&["--quick"]).code(1).get_output().stdout);
    assert!(out.starts_with("FAIL (known: not) x-rejects"), "{out}");
    reproduce(&["--check"]).code(1);
    reproduce(&["--row", "y"]).code(2);
}
