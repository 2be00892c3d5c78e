//! Tests of promote.

use super::*;
use crate::canonical::sha256;
use crate::chain::ReceiptFile;
use crate::promotion::fixture::{
    Cell, World, cells, correction, edit_key, equivalent, faster, gates, request, slower, verdict,
};
use crate::record::ArmKind;
use crate::verify::Problem;

fn promote(world: &World, request: &PromotionRequest) -> Result<Promotion, Refusal> {
    check_promotion(&world.receipts(), &world.rigs, &world.registry(), &world.table, request)
}

fn assert_refused(found: Result<Promotion, Refusal>, rule: Rule, why: &str) {
    let refusal = found.unwrap_err();
    let text = refusal.to_string();
    assert_eq!(refusal.rule, rule, "{text}");
    assert!(text.contains(why), "{text}");
}

/// Refused over the one cited receipt, which `edit` changes, and not refused without the change.
fn assert_edit_refused(rule: Rule, why: &str, edit: impl FnOnce(&mut ReceiptFile)) {
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    promote(&world, &request(&[&citation], 1, 1)).unwrap();
    let mut world = World::new();
    let citation = world.add_edited(&faster(1, "scalar", "one_row"), edit);
    let found = promote(&world, &request(&[&citation], 1, 1));
    assert_eq!(found.as_ref().unwrap_err().receipt.as_ref().map(Citation::file), Some(citation.file()));
    assert_refused(found, rule, why);
}

#[test]
fn a_first_promotion_beats_the_baseline() {
    let mut world = World::new();
    let (low, high) = (world.add(&faster(1, "scalar", "one_row")), world.add(&faster(4, "scalar", "one_row")));
    let Promotion { entry, table, notices } = promote(&world, &request(&[&low, &high], 1, 4)).unwrap();
    assert!(notices.is_empty(), "{notices:?}");
    let EntryBody::Promotion(body) = &entry.body else { panic!("{entry:?}") };
    assert_eq!((body.m_min, body.m_max, &*body.variant, &*body.rig), (1, 4, "one_row", "one"));
    assert!(body.replaces.is_empty() && body.is_registered);
    assert_eq!(body.cells.len(), 2);
    assert_eq!(body.cells[0].effect.theta_ppm, Some(-100_000));
    let family = &table.families[0];
    assert_eq!((family.layout.as_str(), family.order_class.as_str()), ("plain", "dot8"));
    let row = family.row(3).unwrap();
    assert_eq!((row.variant.as_str(), &row.promotion), ("one_row", &entry.id));
    assert_eq!(row.receipts, [low.to_string(), high.to_string()]);
    assert_eq!(DefaultsTable::parse("t", &table.to_toml().unwrap()).unwrap(), table);
}

#[test]
fn a_second_promotion_takes_a_part_of_the_range() {
    let mut world = World::new();
    let first = [1, 8, 16].map(|m| world.add(&faster(m, "scalar", "one_row")));
    world.table = promote(&world, &request(&first.each_ref(), 1, 16)).unwrap().table;
    let second = world.add(&faster(4, "one_row", "four_rows"));
    let third = world.add(&faster(32, "scalar", "four_rows"));
    let found = promote(&world, &request(&[&second, &third], 4, 32)).unwrap();
    let EntryBody::Promotion(body) = &found.entry.body else { panic!() };
    assert_eq!(body.replaces, ["one_row"]);
    let rows: Vec<_> = found.table.families[0].rows.iter().map(|row| (row.m_min, row.m_max)).collect();
    assert_eq!(rows, [(1, 3), (4, 32)]);
    // Above m = 16 there is no row: there the baseline is what had to be beaten.
    assert_refused(promote(&world, &request(&[&third], 16, 32)), Rule::Range, "no cited cell has m = 16");
}

#[test]
fn nothing_cited_or_twice_is_refused() {
    let mut world = World::new();
    assert_refused(promote(&world, &request(&[], 1, 1)), Rule::Cited, "no verdict");
    let short = world.add(&faster(1, "scalar", "one_row"));
    let id = &world.files[0].records.last().unwrap().id;
    let whole: Citation = format!("{}#{id}", short.file()).parse().unwrap();
    promote(&world, &request(&[&whole], 1, 1)).unwrap();
    assert_refused(promote(&world, &request(&[&whole, &short], 1, 1)), Rule::Cited, "twice");
    let both = PromotionRequest { guards: vec![short], ..request(&[&whole], 1, 1) };
    assert_refused(promote(&world, &both), Rule::Cited, "as verdict and as guard");
}

#[test]
fn a_record_that_is_not_there_is_refused() {
    let mut world = World::new();
    let real = world.add(&faster(1, "scalar", "one_row"));
    let no_file = Citation::new("receipts/one/other.jsonl", &sha256(b"x")).unwrap();
    assert_refused(promote(&world, &request(&[&no_file], 1, 1)), Rule::Exists, "is no receipt file");
    let no_record = Citation::new(real.file(), &sha256(b"x")).unwrap();
    assert_refused(promote(&world, &request(&[&no_record], 1, 1)), Rule::Exists, "holds no record");
    let id = world.files[0].records[0].id.clone();
    let session = Citation::new(real.file(), &id).unwrap();
    assert_refused(promote(&world, &request(&[&session], 1, 1)), Rule::Exists, "not a verdict");
}

#[test]
fn a_file_that_failed_verification_is_refused() {
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    let problem = |file: &str| Problem {
        file: file.to_owned(),
        line: Some(3),
        field: None,
        message: "the line was edited".to_owned(),
    };
    world.problems = vec![problem(citation.file())];
    let found = promote(&world, &request(&[&citation], 1, 1));
    assert_eq!(found.as_ref().unwrap_err().receipt.as_ref(), Some(&citation));
    assert_refused(found, Rule::Chain, ":3: the line was edited");
    // Another file that does not verify, or that was removed, may be the one that says otherwise.
    world.problems = vec![problem("receipts/one/removed.jsonl")];
    let found = promote(&world, &request(&[&citation], 1, 1));
    assert_eq!(found.as_ref().unwrap_err().receipt, None);
    assert_refused(found, Rule::Chain, "receipts/one/removed.jsonl:3");
}

#[test]
fn a_withdrawn_record_is_refused() {
    // The withdrawal can concern the session, a replicate or the verdict.
    for index in [0, 3, 16] {
        let mut world = World::new();
        let citation = world.add(&faster(1, "scalar", "one_row"));
        let id = world.files[0].records[index].id.clone();
        world.withdraw(&id);
        assert_refused(promote(&world, &request(&[&citation], 1, 1)), Rule::Withdrawn, "wrong weights");
    }
    // One that does not withdraw changes nothing.
    let mut world = World::new();
    let citation = world.add_edited(&faster(1, "scalar", "one_row"), |file| {
        let mut later = correction(9, &file.records[0].id);
        if let Body::Correction(body) = &mut later.body {
            body.withdraws = false;
        }
        file.records.insert(1, later);
    });
    promote(&world, &request(&[&citation], 1, 1)).unwrap();
}

#[test]
fn a_verdict_that_is_not_faster_is_refused() {
    for cell in [equivalent(1, "scalar", "one_row"), slower(1, "scalar", "one_row")] {
        let mut world = World::new();
        let citation = world.add(&cell);
        assert_refused(promote(&world, &request(&[&citation], 1, 1)), Rule::Verdict, "FASTER is needed");
    }
    assert_edit_refused(Rule::Verdict, "does not say FASTER", |file| verdict(file).result.hi_ppm = Some(-5000));
    assert_edit_refused(Rule::Verdict, "no interval", |file| verdict(file).result.tau_ppm = None);
}

#[test]
fn arms_out_of_the_tree_are_not_promotable() {
    for is_a in [false, true] {
        assert_edit_refused(Rule::Variant, "out-of-tree arms are not promotable", |file| {
            for cell in cells(file) {
                let arm = if is_a { &mut cell.a } else { &mut cell.b };
                arm.chosen = crate::record::OUT_OF_TREE.to_owned();
            }
        });
    }
}

#[test]
fn too_few_or_chosen_replicates_are_refused() {
    let mut world = World::new();
    let few = Cell { thetas: vec![-100_000; 4], ..faster(1, "scalar", "one_row") };
    let citation = world.add(&few);
    let request_local = PromotionRequest { is_local: true, ..request(&[&citation], 1, 1) };
    for request in [request(&[&citation], 1, 1), request_local] {
        assert_refused(
            promote(&world, &request),
            Rule::Replicates,
            "4 replicates that count and 0 void ones, 5 are needed",
        );
    }
    assert_edit_refused(Rule::Replicates, "signed-rank", |file| verdict(file).interval = "signed-rank".to_owned());
    assert_edit_refused(Rule::Replicates, "leaves out", |file| drop(verdict(file).replicates.pop()));
    assert_edit_refused(Rule::Replicates, "counted twice", |file| {
        let id = verdict(file).replicates[0].clone();
        verdict(file).replicates.push(id);
    });
    assert_edit_refused(Rule::Replicates, "no cell record", |file| verdict(file).replicates[1] = sha256(b"x"));
    assert_edit_refused(Rule::Replicates, "another cell", |file| {
        cells(file).next().unwrap().key.problem = "format=q8_0,m=1,n=32".to_owned();
    });
    assert_edit_refused(Rule::Replicates, "differ from the first", |file| {
        cells(file).last().unwrap().b.source_sha256 = Some(sha256(b"x"));
    });
}

#[test]
fn void_replicates_do_not_count() {
    let void_first = |file: &mut ReceiptFile| {
        let result = &mut cells(file).next().unwrap().result;
        (result.verdict, result.theta_ppm) = (Verdict::Void, None);
    };
    assert_edit_refused(Rule::Replicates, "4 replicates that count and 1 void", void_first);
    let mut world = World::new();
    let six = Cell { thetas: vec![-100_000; 6], ..faster(1, "scalar", "one_row") };
    let citation = world.add_edited(&six, void_first);
    let same = Cell { thetas: vec![0; 6], ..equivalent(8, "scalar", "one_row") };
    let guards = vec![world.add_edited(&same, void_first)];
    let found = promote(&world, &PromotionRequest { guards, ..request(&[&citation], 1, 1) }).unwrap();
    let EntryBody::Promotion(body) = &found.entry.body else { panic!() };
    assert_eq!((body.cells[0].effect.replicates, body.guards[0].evidence.effect.replicates), (5, 5));
}

#[test]
fn an_arm_that_is_not_the_registered_variant_is_refused() {
    assert_edit_refused(Rule::Variant, "is a process", |file| {
        cells(file).for_each(|cell| cell.b.kind = ArmKind::Process);
    });
    assert_edit_refused(Rule::Variant, "layout `other`", |file| {
        cells(file).for_each(|cell| cell.b.layout = "other".to_owned());
    });
    assert_edit_refused(Rule::Variant, "order class `none`", |file| {
        cells(file).for_each(|cell| cell.a.order_class = None);
    });
    assert_edit_refused(Rule::Variant, "tier `scalar`", |file| {
        cells(file).for_each(|cell| cell.b.isa = "scalar".to_owned());
    });
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    world.variants.retain(|facts| facts.variant != "one_row");
    assert_refused(promote(&world, &request(&[&citation], 1, 1)), Rule::Variant, "no variant `one_row`");
}

#[test]
fn a_source_that_changed_since_is_refused() {
    for name in ["one_row", "scalar"] {
        let mut world = World::new();
        let citation = world.add(&faster(1, "scalar", "one_row"));
        let facts = world.variants.iter_mut().find(|facts| facts.variant == name).unwrap();
        let measured = std::mem::replace(&mut facts.source_sha256, sha256(b"one byte more"));
        let found = promote(&world, &request(&[&citation], 1, 1));
        assert_eq!(found.as_ref().unwrap_err().receipt, Some(citation));
        assert!(found.as_ref().unwrap_err().why.contains(measured.as_str()));
        assert_refused(found, Rule::Source, sha256(b"one byte more").as_str());
    }
}

#[test]
fn an_arm_without_its_gate_is_refused() {
    assert_edit_refused(Rule::Gate, "no passed gate", |file| cells(file).last().unwrap().b.gate = None);
    assert_edit_refused(Rule::Gate, "no gate record", |file| cells(file).last().unwrap().a.gate = Some(sha256(b"x")));
    assert_edit_refused(Rule::Gate, "failed the gate", |file| gates(file).last().unwrap().is_passed = false);
    assert_edit_refused(Rule::Gate, "is not of `one_row`", |file| gates(file).last().unwrap().replicate = 0);
    assert_edit_refused(Rule::Gate, "is not of `scalar`", |file| {
        gates(file).next().unwrap().source_sha256 = Some(sha256(b"x"));
    });
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    let id = world.files[0].records[1].id.clone();
    world.withdraw(&id);
    assert_refused(promote(&world, &request(&[&citation], 1, 1)), Rule::Gate, "withdrawn");
}

#[test]
fn a_rig_outside_the_registry_serves_local_promotions_only() {
    let mut world = World::new();
    let citation = world.add_on(&faster(1, "scalar", "one_row"), 4, |_| {});
    assert_refused(promote(&world, &request(&[&citation], 1, 1)), Rule::Rig, "provisional-");
    let found = promote(&world, &PromotionRequest { is_local: true, ..request(&[&citation], 1, 1) }).unwrap();
    let EntryBody::Promotion(body) = &found.entry.body else { panic!() };
    assert!(!body.is_registered && body.rig.starts_with("provisional-"));
    let rig = |file: &mut ReceiptFile, edit: fn(&mut crate::record::Rig)| match &mut file.records[0].body {
        Body::Session(session) => edit(&mut session.rig),
        other => panic!("{other:?}"),
    };
    assert_edit_refused(Rule::Rig, "names the rig `two`", |file| rig(file, |rig| rig.label = "two".to_owned()));
    assert_edit_refused(Rule::Rig, "fingerprint", |file| rig(file, |rig| rig.fingerprint = sha256(b"x")));
    assert_edit_refused(Rule::Rig, "not stand in the registry", |file| rig(file, |rig| rig.is_registered = false));
}

#[test]
fn records_of_two_rigs_device_keys_or_regimes_are_refused() {
    let mut world = World::new();
    let here = world.add(&faster(1, "scalar", "one_row"));
    let there = world.add_on(&faster(2, "scalar", "one_row"), 4, |_| {});
    let local = PromotionRequest { is_local: true, ..request(&[&here, &there], 1, 2) };
    assert_refused(promote(&world, &local), Rule::SameRig, "`one`");

    assert_edit_refused(Rule::DeviceKey, "avx512vnni", |file| {
        edit_key(file, |key| key.device_key = "host-x86_64-avx512vnni".to_owned());
    });
    let text = "schema = \"memra-lab.defaults/1\"\ndevice_key = \"host-x86_64-scalar\"";
    world.table = DefaultsTable::parse("t", text).unwrap();
    assert_refused(promote(&world, &request(&[&here], 1, 1)), Rule::DeviceKey, "host-x86_64-scalar");

    let edits: [fn(&mut crate::record::CellKey); 4] = [
        |key| key.cache = "hot".to_owned(),
        |key| key.clock = "locked".to_owned(),
        |key| key.host_mode = "plain".to_owned(),
        |key| key.threads = 1,
    ];
    for edit in edits {
        let mut world = World::new();
        let one = world.add(&faster(1, "scalar", "one_row"));
        let two = world.add_edited(&faster(2, "scalar", "one_row"), |file| edit_key(file, edit));
        assert_refused(promote(&world, &request(&[&one, &two], 1, 2)), Rule::Regime, "measured with");
    }
}

#[test]
fn records_of_two_variants_or_families_are_refused() {
    let mut world = World::new();
    let one = world.add(&faster(1, "scalar", "one_row"));
    let two = world.add(&faster(2, "scalar", "four_rows"));
    assert_refused(promote(&world, &request(&[&one, &two], 1, 2)), Rule::SameVariant, "`four_rows`");
    let of = |problem: &str| Cell { problem: problem.to_owned(), ..faster(2, "scalar", "one_row") };
    let two = world.add(&of("format=q4_0,m=2,n=64"));
    assert_refused(promote(&world, &request(&[&one, &two], 1, 2)), Rule::Family, "q4_0 any");
    let two = world.add(&of("m=2,n=64"));
    assert_refused(promote(&world, &request(&[&one, &two], 1, 2)), Rule::Family, "no family");
}

#[test]
fn another_layout_replaces_the_family_only_when_asked() {
    let mut world = World::new();
    let first = [1, 8].map(|m| world.add(&faster(m, "scalar", "one_row")));
    world.table = promote(&world, &request(&first.each_ref(), 1, 8)).unwrap().table;
    let packed = world.add(&faster(2, "one_row", "packed"));
    let plain = request(&[&packed], 2, 2);
    let refusal = promote(&world, &plain);
    assert_refused(refusal, Rule::Family, "whole family is replaced (m = 1..8 `one_row`), which was not asked for");
    let found = promote(&world, &PromotionRequest { may_replace_family: true, ..plain }).unwrap();
    assert!(found.notices[0].contains("whole family is replaced"), "{:?}", found.notices);
    assert_eq!(found.table.families.len(), 1);
    assert_eq!(found.table.families[0].rows.len(), 1);
    assert_eq!(found.table.families[0].layout, "packed");
    let EntryBody::Promotion(body) = &found.entry.body else { panic!() };
    assert_eq!(body.replaces, ["one_row"]);
}

#[test]
fn a_range_that_the_cells_do_not_cover_is_refused() {
    let mut world = World::new();
    let cells = [1, 8, 65].map(|m| world.add(&faster(m, "scalar", "one_row")));
    let [one, eight, far] = cells.each_ref();
    promote(&world, &request(&[one, eight], 1, 8)).unwrap();
    for (verdicts, m_min, m_max, why) in [
        (vec![one, eight], 0, 8, "is empty"),
        (vec![one, eight], 8, 1, "is empty"),
        (vec![one], 1, u64::MAX, "larger than a defaults file"),
        (vec![one, eight], 2, 8, "m = 1 lies outside"),
        (vec![one, eight], 1, 9, "no cited cell has m = 9"),
        (vec![eight], 1, 8, "no cited cell has m = 1"),
        (vec![one, eight, far], 1, 65, "between m = 8 and m = 65"),
    ] {
        assert_refused(promote(&world, &request(&verdicts, m_min, m_max)), Rule::Range, why);
    }
    let of = |problem: &str| Cell { problem: problem.to_owned(), ..faster(1, "scalar", "one_row") };
    let word = world.add(&of("format=q8_0,m=few"));
    assert_refused(promote(&world, &request(&[&word], 1, 1)), Rule::Range, "`few`");
    let none = world.add(&of("format=q8_0,n=64"));
    assert_refused(promote(&world, &request(&[one, &none], 1, 1)), Rule::Range, "no axis m");
    assert_eq!(promote(&world, &request(&[&none], 1, 64)).unwrap().table.families[0].rows[0].m_max, 64);
}

#[test]
fn every_incumbent_of_the_range_has_to_be_beaten() {
    let mut world = World::new();
    let middle = world.add(&faster(4, "scalar", "one_row"));
    world.table = promote(&world, &request(&[&middle], 4, 4)).unwrap().table;
    let ends = [2, 8].map(|m| world.add(&faster(m, "scalar", "four_rows")));
    let found = promote(&world, &request(&ends.each_ref(), 2, 8));
    assert_refused(found, Rule::Range, "m = 4..4, which `one_row` serves so far");
    let centre = world.add(&faster(4, "one_row", "four_rows"));
    let [low, high] = ends.each_ref();
    promote(&world, &request(&[low, &centre, high], 2, 8)).unwrap();
}

#[test]
fn arm_a_has_to_be_what_serves_so_far() {
    let mut world = World::new();
    let against_row = world.add(&faster(1, "one_row", "four_rows"));
    assert_refused(promote(&world, &request(&[&against_row], 1, 1)), Rule::Incumbent, "must be the baseline");
    let first = world.add(&faster(1, "scalar", "one_row"));
    world.table = promote(&world, &request(&[&first], 1, 1)).unwrap().table;
    promote(&world, &request(&[&against_row], 1, 1)).unwrap();
    let against_baseline = world.add(&faster(1, "scalar", "four_rows"));
    let found = promote(&world, &request(&[&against_baseline], 1, 1));
    assert_refused(found, Rule::Incumbent, "arm A is `scalar`, but `one_row` serves m = 1..1");
    let again = promote(&world, &request(&[&first], 1, 1));
    assert_refused(again, Rule::Incumbent, "`one_row` serves m = 1..1 already");
    // Without an axis m, every part of the range must be served by arm A.
    let no_m = Cell { problem: "format=q8_0,n=64".to_owned(), ..faster(1, "one_row", "four_rows") };
    let no_m = world.add(&no_m);
    promote(&world, &request(&[&no_m], 1, 1)).unwrap();
    assert_refused(promote(&world, &request(&[&no_m], 1, 2)), Rule::Incumbent, "m = 2..2");
}

#[test]
fn a_void_row_is_served_by_the_baseline() {
    let mut world = World::new();
    let first = world.add(&faster(1, "scalar", "one_row"));
    world.table = promote(&world, &request(&[&first], 1, 1)).unwrap().table;
    world.table.families[0].rows[0].source_sha256 = sha256(b"an older text");
    let found = promote(&world, &request(&[&first], 1, 1)).unwrap();
    assert!(found.notices[0].contains("is void"), "{:?}", found.notices);
    assert_eq!(found.table.families[0].rows[0].promotion, found.entry.id);
}

#[test]
fn a_guard_that_is_slower_is_refused() {
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    let guarded = |world: &World, guards: &[&Citation]| {
        let guards = guards.iter().map(|guard| (*guard).clone()).collect();
        promote(world, &PromotionRequest { guards, ..request(&[&citation], 1, 1) })
    };
    let fine = world.add(&equivalent(64, "scalar", "one_row"));
    let found = guarded(&world, &[&fine]).unwrap();
    let EntryBody::Promotion(body) = &found.entry.body else { panic!() };
    assert_eq!(body.guards.len(), 1);
    assert!(body.guards[0].holm_p_ppm < 1000, "far below tau, and said so");
    let bad = world.add(&slower(32, "scalar", "one_row"));
    let found = guarded(&world, &[&fine, &bad]);
    assert_eq!(found.as_ref().unwrap_err().receipt.as_ref(), Some(&bad));
    assert_refused(found, Rule::Guard, "after Holm");
    let void = world.add(&Cell { verdict: Verdict::Void, ..equivalent(2, "scalar", "one_row") });
    assert_refused(guarded(&world, &[&void]), Rule::Guard, "VOID");
    let locked = world.add_edited(&equivalent(2, "scalar", "one_row"), |file| {
        edit_key(file, |key| key.clock = "locked".to_owned());
    });
    assert_refused(guarded(&world, &[&locked]), Rule::Guard, "clock regime `locked`");
    let other = world.add(&equivalent(2, "scalar", "four_rows"));
    assert_refused(guarded(&world, &[&other]), Rule::Guard, "not the promoted variant");
    let few = world.add(&Cell { thetas: vec![0; 3], ..equivalent(2, "scalar", "one_row") });
    assert_refused(guarded(&world, &[&few]), Rule::Replicates, "3 replicates that count");
    let there = world.add_on(&equivalent(2, "scalar", "one_row"), 4, |_| {});
    assert_refused(guarded(&world, &[&there]), Rule::Rig, "provisional-");
    let blank = world.add_edited(&equivalent(2, "scalar", "one_row"), |file| {
        cells(file).next().unwrap().result.theta_ppm = None;
    });
    assert_refused(guarded(&world, &[&blank]), Rule::Guard, "no estimate");
}

#[test]
fn holm_decides_over_all_guards() {
    // The mean of the estimates is 6000 against tau = 5000: t = 1000 / (790.6 / sqrt 5) = 2.83, p = 0.047.
    let near = Cell { thetas: vec![5000, 5500, 6000, 6500, 7000], ..slower(32, "scalar", "one_row") };
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    let one = PromotionRequest { guards: vec![world.add(&near)], ..request(&[&citation], 1, 1) };
    assert_refused(promote(&world, &one), Rule::Guard, "p = 4.7");
    // Another guard of no clear mean makes two tests of it, and the corrected p is above 0.05.
    let vague = Cell { thetas: vec![-9000, 19_000, 0, 10_000, 5100], ..equivalent(16, "scalar", "one_row") };
    let two = PromotionRequest { guards: vec![one.guards[0].clone(), world.add(&vague)], ..one };
    let found = promote(&world, &two).unwrap();
    assert!(found.notices.iter().any(|notice| notice.contains("SLOWER alone")), "{:?}", found.notices);
}

#[test]
fn other_verdicts_and_provisional_bands_are_said() {
    let mut world = World::new();
    let citation = world.add_edited(&faster(1, "scalar", "one_row"), |file| verdict(file).result.is_provisional = true);
    world.add(&equivalent(1, "scalar", "one_row"));
    let notices = promote(&world, &request(&[&citation], 1, 1)).unwrap().notices;
    assert!(notices.iter().any(|notice| notice.contains("provisional")), "{notices:?}");
    assert!(notices.iter().any(|notice| notice.contains("EQUIVALENT receipts/one/")), "{notices:?}");
}

#[test]
fn a_bad_date_is_refused() {
    let mut world = World::new();
    let citation = world.add(&faster(1, "scalar", "one_row"));
    let bad = PromotionRequest { date: "2026-13-01".to_owned(), ..request(&[&citation], 1, 1) };
    assert_refused(promote(&world, &bad), Rule::Entry, "2026-13-01");
}
