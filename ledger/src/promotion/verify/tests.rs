//! Tests of verify.

use std::fs;

use super::*;
use crate::chain::PrivacyLint;
use crate::entry::{LedgerEntry, write_entry, write_index};
use crate::promotion::fixture::{KEY, World, correction, faster, request, slower, source, verdict};
use crate::promotion::{DemotionRequest, check_demotion, check_promotion};
use crate::synthetic::{Synthetic, SyntheticCell};

/// A root with one promotion, its defaults and its index; nothing is wrong with it.
struct Root {
    folder: tempfile::TempDir,
    world: World,
    entry: LedgerEntry,
    one_row: Option<Vec<u8>>,
}

const TABLE: &str = "kernels/defaults/host-x86_64-avx2.toml";

impl Root {
    fn new() -> Self {
        let mut world = World::new();
        let cited = [1, 8].map(|m| world.add(&faster(m, "scalar", "one_row")));
        let request = request(&cited.each_ref(), 1, 8);
        let found = check_promotion(&world.receipts(), &world.rigs, &world.registry(), &world.table, &request).unwrap();
        world.table = found.table;
        let folder = tempfile::tempdir().unwrap();
        let root = Self { folder, world, entry: found.entry, one_row: Some(source("one_row")) };
        root.write(&root.entry);
        root.write_table();
        root
    }

    fn path(&self, file: &str) -> std::path::PathBuf {
        self.folder.path().join(file)
    }

    fn write(&self, entry: &LedgerEntry) {
        write_entry(self.folder.path(), entry, &PrivacyLint::default()).unwrap();
        write_index(self.folder.path()).unwrap();
    }

    fn write_table(&self) {
        fs::create_dir_all(self.path("kernels/defaults")).unwrap();
        fs::write(self.path(TABLE), self.world.table.to_toml().unwrap()).unwrap();
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(file)).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(self.path(file), text.replacen(from, to, 1)).unwrap();
    }

    fn problems(&self) -> Vec<String> {
        let read = |path: &str| match path.rsplit('/').next() {
            Some("one_row.rs") => self.one_row.clone(),
            other => panic!("{other:?} was asked for"),
        };
        let variants = Some(&self.world.variants[..]);
        let found = verify_ledger(self.folder.path(), &self.world.receipts(), variants, &read);
        found.iter().map(ToString::to_string).collect()
    }

    fn assert_problem(&self, parts: &[&str]) {
        let problems = self.problems();
        assert!(problems.iter().any(|text| parts.iter().all(|part| text.contains(part))), "{parts:?}: {problems:#?}");
    }
}

#[test]
fn a_whole_ledger_has_no_problem() {
    assert!(Root::new().problems().is_empty(), "{:#?}", Root::new().problems());
    let empty = tempfile::tempdir().unwrap();
    assert!(verify_ledger(empty.path(), &Receipts::default(), None, &|_| None).is_empty());
}

#[test]
fn one_changed_byte_of_a_promoted_source_is_found() {
    let mut root = Root::new();
    let promoted = sha256(&source("one_row"));
    if let Some(text) = &mut root.one_row {
        text[0] ^= 1;
    }
    let found = sha256(root.one_row.as_ref().unwrap());
    let problems = root.problems();
    assert_eq!(problems.len(), 1, "{problems:#?}");
    for part in ["kernels/src/ops/matmul/one_row.rs", promoted.as_str(), found.as_str(), &root.entry.id] {
        assert!(problems[0].contains(part), "{problems:?}");
    }
    root.one_row = None;
    root.assert_problem(&["kernels/src/ops/matmul/one_row.rs: missing", &root.entry.id, promoted.as_str()]);
}

#[test]
fn a_registry_that_moved_on_is_found() {
    let mut root = Root::new();
    root.world.variants[1].source_sha256 = sha256(b"newer");
    root.assert_problem(&[TABLE, "`one_row`", "source digest is not that of the registry", &root.entry.id]);
    root.world.variants.remove(1);
    root.assert_problem(&[TABLE, "the registry has no such variant"]);
}

#[test]
fn a_tampered_entry_is_found_and_its_row_stands_alone() {
    let root = Root::new();
    root.edit(&root.entry.path(), "-100000", "-900000");
    root.assert_problem(&[&root.entry.path(), "states the id"]);
    root.assert_problem(&[TABLE, &root.entry.id, "which the ledger does not have"]);
}

#[test]
fn every_field_of_a_row_agrees_with_its_promotion() {
    for (from, to, field) in [
        ("device_key = \"host-x86_64-avx2\"", "device_key = \"host-x86_64-scalar\"", "holds the defaults of"),
        ("contract = \"matmul\"", "contract = \"mul\"", "the contract is not"),
        ("revision = 1", "revision = 2", "the revision is not"),
        ("format = \"q8_0\"", "format = \"q4_0\"", "the format is not"),
        ("class = \"any\"", "class = \"wide\"", "the class is not"),
        ("layout = \"plain\"", "layout = \"packed\"", "the layout is not"),
        ("order_class = \"dot8\"", "order_class = \"dot4\"", "the order class is not"),
        ("m_max = 8", "m_max = 9", "the range is not"),
        ("variant = \"one_row\"", "variant = \"four_rows\"", "the variant is not"),
        ("source_sha256 = \"", "source_sha256 = \"0000", "not a sha256"),
        ("s-00000001.jsonl#", "s-00000000.jsonl#", "the list of receipts is not"),
        ("receipts/one/", "elsewhere/one/", "is not a citation"),
        ("schema = \"memra-lab.defaults/1\"", "schema = \"memra-lab.defaults/2\"", "memra-lab.defaults/2"),
    ] {
        let root = Root::new();
        root.edit(TABLE, from, to);
        root.assert_problem(&[TABLE, field]);
    }
    let mut root = Root::new();
    root.world.table.families[0].rows[0].source_sha256 = sha256(b"other");
    root.write_table();
    root.assert_problem(&[TABLE, "the source digest is not that of the promotion"]);
    root.world.table.families[0].rows[0].receipts.clear();
    root.write_table();
    root.assert_problem(&[TABLE, "the list of receipts is not that of the promotion"]);
}

#[test]
fn receipts_that_are_gone_edited_or_withdrawn_are_found() {
    let mut root = Root::new();
    let id = root.world.files[0].records.last().unwrap().id.clone();
    root.world.files[0].records.push(correction(17, &id));
    root.assert_problem(&[TABLE, "s-00000000.jsonl", "withdrawn: wrong weights"]);
    root.world.files[0].records.pop();

    root.world.problems = vec![problem("receipts/one/2026-01-02-s-00000001.jsonl", "line 2 was edited".to_owned())];
    root.assert_problem(&[TABLE, "does not verify", "line 2 was edited"]);
    root.world.problems.clear();
    assert!(root.problems().is_empty());

    verdict(&mut root.world.files[0]).result.theta_ppm = Some(-1);
    root.assert_problem(&[&root.entry.path(), "the effect is not what the entry says"]);
    verdict(&mut root.world.files[1]).key.problem = "m=2".to_owned();
    root.assert_problem(&[&root.entry.path(), "the problem is not what the entry says"]);
    root.world.files.remove(0);
    root.assert_problem(&[&root.entry.path(), "s-00000000.jsonl", "is no receipt file"]);
    root.assert_problem(&[TABLE, "s-00000000.jsonl", "is no receipt file"]);
}

#[test]
fn a_promotion_without_a_row_has_to_be_explained() {
    let mut root = Root::new();
    fs::remove_file(root.path(TABLE)).unwrap();
    root.assert_problem(&[&root.entry.path(), "no row of the defaults rests on this promotion"]);

    let lost = root.world.add(&slower(4, "scalar", "one_row"));
    let demotion = DemotionRequest {
        verdicts: vec![lost],
        reason: DemotionReason::Slower,
        detail: "lost".to_owned(),
        is_local: false,
        date: "2026-02-03".to_owned(),
    };
    let world = &root.world;
    let found = check_demotion(&world.receipts(), &world.rigs, &world.registry(), &world.table, &root.entry, &demotion)
        .unwrap();
    root.write(&found.entry);
    // Its source is history now, and may change.
    root.one_row = None;
    assert!(root.problems().is_empty(), "{:#?}", root.problems());
    // The row must not come back.
    root.write_table();
    root.assert_problem(&[TABLE, &root.entry.id, "which was demoted"]);
    // A demotion of a promotion that never was.
    fs::remove_file(root.path(&root.entry.path())).unwrap();
    root.assert_problem(&[&found.entry.path(), "demotes", "which the ledger does not have"]);
}

#[test]
fn a_promotion_that_lost_its_range_to_another_is_history() {
    let mut root = Root::new();
    let cited = [1, 8].map(|m| root.world.add(&faster(m, "one_row", "four_rows")));
    let world = &mut root.world;
    let next = request(&cited.each_ref(), 1, 8);
    let found = check_promotion(&world.receipts(), &world.rigs, &world.registry(), &world.table, &next).unwrap();
    world.table = found.table;
    root.write(&found.entry);
    root.write_table();
    let receipts = root.world.receipts();
    let read = |path: &str| path.ends_with("four_rows.rs").then(|| source("four_rows"));
    assert_eq!(verify_ledger(root.folder.path(), &receipts, Some(&root.world.variants), &read), []);
    assert_eq!(root.world.table.device_key, KEY);
}

#[test]
fn an_index_that_is_not_of_the_entries_is_found() {
    let root = Root::new();
    let index = fs::read_to_string(root.path(INDEX_PATH)).unwrap();
    root.edit(INDEX_PATH, "one_row serves", "two_row serves");
    root.assert_problem(&[INDEX_PATH, "is not the index"]);
    fs::write(root.path(INDEX_PATH), index).unwrap();
    fs::remove_file(root.path(&root.entry.path())).unwrap();
    root.assert_problem(&[INDEX_PATH, "is not the index"]);
    root.write(&root.entry);
    fs::remove_file(root.path(INDEX_PATH)).unwrap();
    root.assert_problem(&[INDEX_PATH]);
}

#[test]
fn a_synthetic_session_becomes_a_local_promotion() {
    let local = Local::new("rs");
    assert_eq!(local.problems(&|_| Some(b"source of rows_wide".to_vec())), []);
    let other = local.problems(&|_| Some(b"another text".to_vec()));
    assert!(other.iter().any(|problem| problem.message.contains("sha256 is")), "{other:?}");
}

#[test]
fn of_device_text_the_registry_knows_the_digest() {
    let local = Local::new("cu");
    assert_eq!(local.problems(&|_| Some(b"text without its headers".to_vec())), []);
    let missing = local.problems(&|_| None);
    assert!(missing.iter().any(|problem| problem.message.contains("missing")), "{missing:?}");
}

/// A root with a session and the local promotion that it allowed.
struct Local {
    folder: tempfile::TempDir,
    variants: [VariantFacts; 2],
}

impl Local {
    fn problems(&self, read: &dyn Fn(&str) -> Option<Vec<u8>>) -> Vec<crate::verify::Problem> {
        let root = self.folder.path();
        verify_ledger(root, &Receipts::load(root), Some(&self.variants), read)
    }

    fn new(extension: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let mut session = Synthetic::new(7);
        session.replicates = 5;
        session.cells = vec![SyntheticCell::named("norm").with_theta(-80_000)];
        let file = session.write(root).unwrap();
        let receipts = Receipts::load(root);
        assert!(receipts.problems().is_empty(), "{:?}", receipts.problems());
        let cited = receipts.files()[0].records.iter().find(|record| matches!(record.body, Body::Verdict(_))).unwrap();
        let citation = Citation::new(&file, &cited.id).unwrap();
        let facts = |variant: &str| VariantFacts {
            contract: "rms_norm".to_owned(),
            revision: 1,
            variant: variant.to_owned(),
            layout: "rows".to_owned(),
            order_class: "chains8".to_owned(),
            isa: "avx2".to_owned(),
            source_path: format!("kernels/src/ops/rms_norm/{variant}.{extension}"),
            source_sha256: sha256(format!("source of {variant}").as_bytes()),
            is_baseline: variant == "rows",
        };
        let variants = [facts("rows"), facts("rows_wide")];
        let family_of =
            |_: &str, _: &str| Some(crate::promotion::FamilyKey { format: "none".to_owned(), class: "any".to_owned() });
        let registry = crate::promotion::RegistryFacts { variants: &variants, family_of: &family_of };
        let rigs = crate::rigs::RigRegistry::default();
        let table = World::new().table;
        let local = crate::promotion::PromotionRequest { is_local: true, ..request(&[&citation], 1, 64) };
        let found = check_promotion(&receipts, &rigs, &registry, &table, &local).unwrap();
        write_entry(root, &found.entry, &PrivacyLint::default()).unwrap();
        write_index(root).unwrap();
        fs::create_dir_all(root.join("defaults")).unwrap();
        fs::write(root.join("defaults/host-x86_64-avx2.toml"), found.table.to_toml().unwrap()).unwrap();
        Self { folder, variants }
    }
}
