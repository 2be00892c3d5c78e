//! Tests of demote.

use super::*;
use crate::canonical::sha256;
use crate::promotion::check_promotion;
use crate::promotion::fixture::{Cell, World, equivalent, faster, request as promotion_request, slower};

/// A world in which `one_row` serves m = 1..8.
fn promoted() -> (World, LedgerEntry) {
    let mut world = World::new();
    let cited = [1, 8].map(|m| world.add(&faster(m, "scalar", "one_row")));
    let request = promotion_request(&cited.each_ref(), 1, 8);
    let found = check_promotion(&world.receipts(), &world.rigs, &world.registry(), &world.table, &request).unwrap();
    world.table = found.table;
    (world, found.entry)
}

fn request(reason: DemotionReason, verdicts: &[&Citation]) -> DemotionRequest {
    DemotionRequest {
        verdicts: verdicts.iter().map(|citation| (*citation).clone()).collect(),
        reason,
        detail: "a newer compiler made the baseline faster".to_owned(),
        is_local: false,
        date: "2026-02-03".to_owned(),
    }
}

fn demote(world: &World, entry: &LedgerEntry, request: &DemotionRequest) -> Result<Demotion, Refusal> {
    check_demotion(&world.receipts(), &world.rigs, &world.registry(), &world.table, entry, request)
}

fn assert_refused(found: Result<Demotion, Refusal>, rule: Rule, why: &str) {
    let refusal = found.unwrap_err();
    assert_eq!(refusal.rule, rule, "{refusal}");
    assert!(refusal.to_string().contains(why), "{refusal}");
}

#[test]
fn a_slower_default_leaves_the_table() {
    let (mut world, entry) = promoted();
    let lost = world.add(&slower(4, "scalar", "one_row"));
    let found = demote(&world, &entry, &request(DemotionReason::Slower, &[&lost])).unwrap();
    assert!(found.table.families.is_empty());
    let EntryBody::Demotion(body) = &found.entry.body else { panic!() };
    assert_eq!((&body.promotion, body.m_min, body.m_max, body.cells.len()), (&entry.id, 1, 8, 1));
}

#[test]
fn a_stale_default_stays_in_the_table() {
    let (mut world, entry) = promoted();
    let found = demote(&world, &entry, &request(DemotionReason::Stale, &[])).unwrap();
    assert_eq!(found.table, world.table);
    let lost = world.add(&slower(4, "scalar", "one_row"));
    assert_refused(demote(&world, &entry, &request(DemotionReason::Stale, &[&lost])), Rule::Cited, "without verdicts");
}

#[test]
fn a_demotion_keeps_the_rules_of_a_promotion() {
    let (mut world, entry) = promoted();
    let mut refused = |cell: &Cell, rule, why| {
        let citation = world.add(cell);
        assert_refused(demote(&world, &entry, &request(DemotionReason::Slower, &[&citation])), rule, why);
    };
    refused(&equivalent(4, "scalar", "one_row"), Rule::Verdict, "SLOWER is needed");
    refused(&Cell { thetas: vec![100_000; 4], ..slower(4, "scalar", "one_row") }, Rule::Replicates, "4 replicates");
    refused(&slower(4, "scalar", "four_rows"), Rule::SameVariant, "not the promoted variant");
    refused(&slower(9, "scalar", "one_row"), Rule::Range, "m = 9");
    let problem = "format=q4_0,m=4".to_owned();
    refused(&Cell { problem, ..slower(4, "scalar", "one_row") }, Rule::Family, "not of the promoted family");
    assert_refused(demote(&world, &entry, &request(DemotionReason::Slower, &[])), Rule::Cited, "no verdict");
    let there = world.add_on(&slower(4, "scalar", "one_row"), 4, |_| {});
    assert_refused(demote(&world, &entry, &request(DemotionReason::Slower, &[&there])), Rule::Rig, "provisional-");
}

#[test]
fn only_what_was_promoted_and_still_serves_is_demoted() {
    let (mut world, entry) = promoted();
    let lost = world.add(&slower(4, "scalar", "one_row"));
    let plain = request(DemotionReason::Slower, &[&lost]);
    let gap = demote(&world, &entry, &request(DemotionReason::Stale, &[])).unwrap().entry;
    assert_refused(demote(&world, &gap, &plain), Rule::Entry, "is no promotion");
    let EntryBody::Promotion(mut body) = entry.body.clone() else { panic!() };
    body.source.sha256 = sha256(b"another text");
    let other = LedgerEntry { body: EntryBody::Promotion(body), ..entry.clone() };
    assert_refused(demote(&world, &other, &plain), Rule::Source, "was promoted");
    world.table.families.clear();
    assert_refused(demote(&world, &entry, &plain), Rule::Range, "no row of the table");
}
