//! Reads a scenario from a file.

mod disturbance;
mod farm;
mod network;
mod people;
mod pool;
mod servers;
mod workload;

use std::path::Path;
use std::sync::Arc;

use tidegate_agent::{Load, Process};
use tidegate_emulate::Distribution;
use tidegate_server::config::schema::{
    Document, EMULATE, EmulateDraft, OVERLOAD, Report, Section, Table, alternatives, nearest,
    quoted, read_compared, read_overload,
};
use tidegate_server::config::{Diagnostics, Emulate};
use toml::Spanned;

use super::tables::{
    DISTURBANCE, EXPECT, ExpectationDraft, FARM, FAULT, LINK, MODE, ROOT, SCHEDULE, SERVER, SWEEP,
    ScheduleDraft, TCP, TITLE, VARIANT, VariantDraft, WORKLOAD,
};
use super::{Axis, Conditions, Expectation, Scenario, Variant};
use crate::cost::Capacity;
use crate::disturbance::Spread;
use crate::network::Tcp;
use crate::topology::Topology;
use network::{FaultDraft, WayDraft};
use workload::Workload;

/// The sweepable conditions of one table, with the values that apply if the scenario does not sweep
/// them.
type Base = Vec<(Axis, f64)>;

/// The maximum number of runs of one scenario, including repetitions.
const POINTS_MAX: usize = 100_000;

/// Help text for a missing cost in `[emulate]`.
const COSTS: &str = "set the costs of messages, such as `offer_us = 100`, `serve_us = 700`, \
                     `reject_us = 100`: they determine the capacity, and loads are multiples of it";

/// Parses `bytes`, the content of the scenario file at `path`. If `costs` is given, it replaces the
/// costs of the scenario.
pub(super) fn parse(
    path: &Path,
    bytes: &[u8],
    costs: Option<&Emulate>,
) -> Result<Scenario, Diagnostics> {
    let document = Document::parse(path, bytes)?;
    let mut report = Report::default();
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    let folder = path.parent().unwrap_or(Path::new(""));
    match read(&document, folder, costs, &mut report) {
        Some(scenario) if report.is_empty() => {
            let text = String::from_utf8_lossy(bytes).into_owned();
            Ok(Scenario { name, text, ..scenario })
        }
        _ => Err(document.reject(report)),
    }
}

/// Reads all of the scenario except its name and text. Returns `None` when an error was reported.
fn read(
    document: &Document<'_>,
    folder: &Path,
    costs: Option<&Emulate>,
    report: &mut Report,
) -> Option<Scenario> {
    let root = Section::root(&ROOT, document.table(), report);
    let title = root.plain(&TITLE, report);
    let emulate = read_costs(&root, report).map(|own| match costs {
        Some(costs) => Spanned::new(own.span(), costs.clone()),
        None => own,
    });
    let has = |what: &str| match costs {
        Some(_) => format!("the file of `--costs` replaces this table, and has {what}"),
        None => format!("this table has {what}"),
    };
    let (workload, of_workload) = root.read_one(
        &WORKLOAD,
        |section, report| {
            (workload::read(section, folder, report), read_axes(&WORKLOAD, section, report))
        },
        report,
    );
    let (mode, of_server) = root.read_one(
        &SERVER,
        |section, report| (section.plain(&MODE, report), read_axes(&SERVER, section, report)),
        report,
    );
    let of_farm =
        root.read_all(&FARM, |section, report| read_axes(&FARM, section, report), report).pop();
    let of_tcp =
        root.read_all(&TCP, |section, report| read_axes(&TCP, section, report), report).pop();
    let disturbance = root.read_one(&DISTURBANCE, disturbance::read, report);
    let links = root.read_all(&LINK, WayDraft::read, report);
    let faults = root.read_all(&FAULT, FaultDraft::read, report);
    let sweep = root.read_one(&SWEEP, read_sweep, report);
    let variants = root.read_all(&VARIANT, read_variant, report);
    let schedule = root.read_one(
        &SCHEDULE,
        |section, report| ScheduleDraft::read(section, report).finish(),
        report,
    );
    let expectations = root.read_all(&EXPECT, read_expectation, report);

    let variants = variants.into_iter().collect::<Option<Vec<_>>>()?;
    check_distinct(&variants, report);
    let expectations = expectations.into_iter().collect::<Option<Vec<_>>>()?;
    for expectation in &expectations {
        check_variant(expectation, &variants, report);
    }
    let mode = mode?;
    let farm = farm::read(&root, mode, report)?;
    let topology = match &farm {
        Some(farm) => farm.topology(),
        None => servers::read(&root, mode, report)?,
    };
    let links: Vec<_> = links.iter().map(|way| way.as_ref()?.finish(&topology, report)).collect();
    let faults: Vec<_> =
        faults.iter().map(|fault| fault.as_ref()?.finish(&topology, report)).collect();
    let (sweep, schedule) = (sweep?, schedule?);
    for optional in [&FARM, &TCP] {
        check_swept(&sweep, optional, &root, report);
    }
    check_count(&sweep, variants.len(), schedule.repetitions, report);

    let emulate = emulate?;
    check_capacity(&topology, &emulate, report)?;
    if emulate.get_ref().quota.is_some() && disturbance.is_some_and(|d| d.stolen.is_some()) {
        let help = "remove `quota` from `[emulate]`, or `stolen_ms` from `[disturbance]`";
        report.error(
            emulate.span(),
            "a quota and stolen time exclude each other",
            has("a quota"),
            help,
        );
        return None;
    }
    if emulate.get_ref().distribution != Distribution::Constant
        && disturbance.is_some_and(|d| d.costs != Spread::Constant)
    {
        let help = "remove `distribution` from `[emulate]`, or `costs` from `[disturbance]`";
        report.error(emulate.span(), "costs have two distributions", has("one of them"), help);
        return None;
    }
    let workload = workload?;
    if of_tcp.is_some() && workload.devices.is_some() {
        let help = "remove `[tcp]` or `[workload.devices]`";
        report.error(root.span(), "devices register over UDP only", "has `[tcp]`", help);
        return None;
    }
    let trace_load = trace_load(&workload, &topology, &emulate, &sweep, report);
    let mut conditions = Conditions {
        load: 0.0,
        arrivals: workload.arrivals.into_inner(),
        profile: workload.profile.into_inner(),
        hold_s: 0.0,
        hold: workload.hold,
        goodput: workload.goodput,
        retransmissions: workload.retransmissions,
        open_max: workload.open_max,
        open_limit: workload.open_limit,
        failover: workload.failover,
        sources: workload.sources,
        trunk: workload.trunk,
        redial: workload.redial,
        emergency: workload.emergency,
        devices: workload.devices,
        trying: workload.trying,
        patience_s: 0.0,
        deadline_ms: 0.0,
        t1_ms: 0.0,
        answerers: 0,
        queue_max: 0,
        emulate: emulate.into_inner(),
        disturbance: disturbance?,
        topology: Arc::new(topology),
        farm,
        tcp: of_tcp.is_some().then(Tcp::default),
        links: links.into_iter().collect::<Option<_>>()?,
        faults: faults.into_iter().collect::<Option<_>>()?,
    };
    let of_optional = [of_farm, of_tcp].into_iter().flatten().collect::<Option<Vec<_>>>()?;
    let of_optional = of_optional.into_iter().flatten();
    for (axis, value) in of_workload?.into_iter().chain(of_server?).chain(of_optional) {
        axis.set(&mut conditions, value);
    }
    if let Some(load) = trace_load {
        conditions.load = load;
    }
    Some(Scenario {
        name: String::new(),
        title: title?,
        conditions,
        sweep,
        variants: variants.into_iter().map(Spanned::into_inner).collect(),
        schedule,
        expectations: expectations.into_iter().map(Spanned::into_inner).collect(),
        text: String::new(),
    })
}

fn read_costs(root: &Section<'_, '_>, report: &mut Report) -> Option<Spanned<Emulate>> {
    let costs = root.read_all(
        &EMULATE,
        |section, report| {
            Some(Spanned::new(section.span(), EmulateDraft::read(section, report).finish()?))
        },
        report,
    );
    match costs.into_iter().next() {
        None => {
            report.missing("no `[emulate]`", COSTS);
            None
        }
        Some(costs) => costs,
    }
}

fn check_capacity(
    topology: &Topology,
    costs: &Spanned<Emulate>,
    report: &mut Report,
) -> Option<()> {
    if Capacity::of(topology, costs.get_ref(), false).call.is_zero() {
        let label = "the capacity has no limit";
        report.error(costs.span(), "a call costs nothing", label, COSTS);
        return None;
    }
    Some(())
}

/// Returns the load that results from the arrival times of a recorded trace, as a multiple of the
/// capacity. Returns `None` if the arrivals are not a trace.
fn trace_load(
    workload: &Workload,
    topology: &Topology,
    costs: &Spanned<Emulate>,
    sweep: &[(Axis, Vec<f64>)],
    report: &mut Report,
) -> Option<f64> {
    let Process::Trace(trace) = workload.arrivals.get_ref() else { return None };
    let mut reject = |label, help| {
        report.error(workload.arrivals.span(), "a trace determines the load itself", label, help);
    };
    if sweep.iter().any(|(axis, _)| *axis == Axis::LOAD) {
        reject("the load is swept", "remove `load` from `[sweep]`");
    }
    if topology.entries().count() > 1 {
        reject("callers send to several nodes", "give only one of them a `share`");
    }
    let capacity = Capacity::of(topology, costs.get_ref(), workload.trying);
    Some(Load::of_trace(trace.clone()).rate_cps / capacity.cps)
}

/// Reads the keys of `table` that can be swept. Their values apply in scenarios that do not sweep
/// them.
fn read_axes(table: &Table, section: &Section<'_, '_>, report: &mut Report) -> Option<Base> {
    let here = Axis::all().filter(|axis| table.names().any(|name| name == axis.name()));
    // Read every key before giving up, so that all errors are reported.
    let read: Vec<_> = here.map(|axis| Some((axis, axis.read(section, report)?))).collect();
    let given = |(axis, value): (Axis, Option<f64>)| value.map(|value| (axis, value));
    let read = read.into_iter().collect::<Option<Vec<_>>>()?;
    Some(read.into_iter().filter_map(given).collect())
}

fn read_sweep(section: &Section<'_, '_>, report: &mut Report) -> Option<Vec<(Axis, Vec<f64>)>> {
    let mut sweep = Vec::new();
    let mut right = true;
    for (key, value) in section.each() {
        let names = || Axis::all().map(Axis::name);
        let Some(axis) = Axis::all().find(|axis| axis.name() == &**key.get_ref()) else {
            let title = format!("{} cannot be swept", quoted(key.get_ref()));
            let help = match nearest(key.get_ref(), names()) {
                Some(known) => format!("did you mean `{known}`?"),
                None => format!("write {}", alternatives(names())),
            };
            report.error(
                key.span(),
                title,
                "only some keys of `[workload]`, `[server]`, `[farm]` and `[tcp]` can be swept",
                help,
            );
            right = false;
            continue;
        };
        match axis.read_list(value, report) {
            Some(values) if values.is_empty() => {
                let title = format!("`{}` has no values", axis.name());
                report.error(value.span(), title, "the list is empty", "write at least one value");
                right = false;
            }
            Some(mut values) => {
                values.sort_by(f64::total_cmp);
                values.dedup();
                sweep.push((axis, values));
            }
            None => right = false,
        }
    }
    // The load is the last axis, because runs that are shown and drawn together differ in their
    // load.
    sweep.sort_by_key(|(axis, _)| *axis == Axis::LOAD);
    right.then_some(sweep)
}

fn read_variant(section: &Section<'_, '_>, report: &mut Report) -> Option<Spanned<Variant>> {
    let table = VariantDraft::read(section, report).finish();
    let pool = pool::read(section, report);
    let read = |overload: &Section<'_, '_>, report: &mut Report| match &table {
        Some(table) if table.product_defaults => read_overload(overload, report),
        _ => read_compared(overload, report),
    };
    let overload = section.read_one(&OVERLOAD, read, report)?;
    let (pool, table) = (pool?, table?);
    let name = pool.as_ref().map(|pool| pool.selection.name());
    let name = name.unwrap_or(overload.gate.law.entry().name);
    let label = table.label.unwrap_or_else(|| name.to_owned());
    Some(Spanned::new(section.span(), Variant { label, overload, pool }))
}

/// Reads an `[[expect]]`. The span of the result is the place of the variant's name in the file.
fn read_expectation(
    section: &Section<'_, '_>,
    report: &mut Report,
) -> Option<Spanned<Expectation>> {
    let draft = ExpectationDraft::read(section, report);
    let bounds = ["goodput_of_bound_min", "goodput_of_bound_max"];
    if bounds.iter().all(|key| section.place(key).is_none()) {
        report.error(
            section.span(),
            "`[[expect]]` expects nothing",
            "this table has no condition",
            "add `goodput_of_bound_min = …` or `goodput_of_bound_max = …`",
        );
    }
    let variant = draft.variant.as_ref()?.span();
    Some(Spanned::new(variant, draft.finish()?))
}

fn check_distinct(variants: &[Spanned<Variant>], report: &mut Report) {
    for (index, variant) in variants.iter().enumerate() {
        let name = variant.get_ref().name();
        let twin = variants[..index].iter().find(|other| other.get_ref().name() == name);
        if let Some(twin) = twin {
            report.clash(
                format!("two variants are called {}", quoted(&name)),
                (variant.span(), "this variant"),
                (twin.span(), "and this one"),
                "give one of them another `label`",
            );
        }
    }
}

fn check_variant(
    expected: &Spanned<Expectation>,
    variants: &[Spanned<Variant>],
    report: &mut Report,
) {
    let names: Vec<String> = variants.iter().map(|variant| variant.get_ref().name()).collect();
    let wanted = &expected.get_ref().variant;
    if names.contains(wanted) {
        return;
    }
    let help = match nearest(wanted, names.iter().map(|name| &**name)) {
        Some(near) => format!("did you mean `\"{near}\"`?"),
        None => format!("write {}", alternatives(&names)),
    };
    let title = format!("there is no variant {}", quoted(wanted));
    report.error(expected.span(), title, "not the name of a variant", help);
}

/// Reports an error if a key of the table `optional` is swept in a scenario without this table.
fn check_swept(
    sweep: &[(Axis, Vec<f64>)],
    optional: &Table,
    root: &Section<'_, '_>,
    report: &mut Report,
) {
    let swept = sweep.iter().map(|(axis, _)| *axis).find(|axis| axis.is_of(optional));
    if let Some(axis) = swept
        && root.names().all(|name| name != optional.name)
    {
        let header = optional.header;
        let title = format!("`{}` is swept, but there is no `{header}`", axis.name());
        let help = format!("add `{header}`, or remove the key from `[sweep]`");
        report.error(root.span(), title, format!("no `{header}`"), help);
    }
}

fn check_count(sweep: &[(Axis, Vec<f64>)], variants: usize, repetitions: u32, report: &mut Report) {
    let lengths = sweep.iter().map(|(_, values)| values.len());
    let count = lengths.fold(variants.saturating_mul(repetitions as usize), usize::saturating_mul);
    if count > POINTS_MAX {
        let title = format!("the scenario has {count} runs, the limit is {POINTS_MAX}");
        report.missing(
            title,
            "sweep fewer values, or reduce `repetitions` or the number of variants",
        );
    }
}
