//! Runs the default law in all scenarios of the tournament.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use tidegate_lab::tournament::{Selection, Tournament};
use tidegate_lab::worlds::Simulated;

// With messages of existing calls strictly first, goodput was .77 of the bound with slow back ends.
// When new calls took turns with them without a rule about standing queues, single runs of the storm
// of retransmissions were at .67.
#[test]
fn the_default_law_keeps_85_percent_of_the_bound_in_every_scenario() {
    let folder = Path::new("../../scenarios/tournament");
    let laws = vec!["tide".to_owned()];
    let selection = Selection { laws, seeds: 3, speeds: vec![1.0], ..Selection::default() };
    let tournament = Tournament::load(folder, selection).unwrap();
    let mut kept = Vec::new();
    let run = tournament.run(&Simulated::new(), 2, &AtomicBool::new(false), |bout| {
        let bouts = bout.cells.iter().map(|cell| (cell.kept.unwrap(), bout.name.clone()));
        kept.extend(bouts.map(|(kept, name)| (kept.mean, kept.min, name)));
    });
    assert_eq!(run.unwrap().unwrap().seeds, 3);
    assert!(kept.len() > 20, "{}", kept.len());
    kept.retain(|(mean, min, _)| *mean < 0.85 || *min < 0.8);
    assert!(kept.is_empty(), "{kept:?}");
}
