//! Whole roots: files that hold, go, come or are cut, and citations into them.

use memra_ledger::chain::read_file;
use memra_ledger::index;
use memra_ledger::record::{Body, Verdict};
use memra_ledger::synthetic::Synthetic;
use memra_ledger::verify::{LookupError, load_and_verify, verify_root};

use super::{lines, problems, session, written};

#[test]
fn a_session_reads_as_written_and_verifies() {
    let root = tempfile::tempdir().unwrap();
    let name = written(root.path(), &session());
    assert_eq!(name, session().name().unwrap().relative_path());
    let (evidence, report) = load_and_verify(root.path());
    assert_eq!(report.problems, []);
    assert_eq!(report.notes, Vec::<String>::new());
    // Session, 2 replicates of 3 cells with two gates each, 3 verdicts, end.
    assert_eq!((report.files, report.records, report.cells, report.verdicts), (1, 23, 6, 3));
    let file = evidence.file(&name).unwrap();
    assert_eq!(file, &read_file(root.path(), &name).unwrap());
    assert_eq!(std::fs::read_to_string(root.path().join(&name)).unwrap(), session().text().unwrap());
    let verdicts: Vec<Verdict> = file
        .records
        .iter()
        .filter_map(|record| match &record.body {
            Body::Verdict(verdict) => Some(verdict.result.verdict),
            _ => None,
        })
        .collect();
    assert_eq!(verdicts, [Verdict::Faster, Verdict::Void, Verdict::Void]);
    assert_eq!(file.end().unwrap().records, 22);
    assert_eq!(file.session_id(), Some(session().session().as_str()));
}

#[test]
fn a_root_without_receipts_is_sound_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let report = verify_root(root.path());
    assert!(report.is_sound());
    assert_eq!((report.files, report.notes), (0, vec!["there are no receipts below the root".to_owned()]));
    let report = verify_root(&root.path().join("nowhere"));
    assert!(!report.is_sound());
}

#[test]
fn files_that_go_come_or_are_cut_are_noticed() {
    let root = tempfile::tempdir().unwrap();
    let first = written(root.path(), &session());
    let second = written(root.path(), &Synthetic { slug: "other".to_owned(), ..Synthetic::new(78) });
    assert_eq!(problems(root.path()), Vec::<String>::new());
    let path = |name: &str| root.path().join(name);
    let text = std::fs::read_to_string(path(&second)).unwrap();

    std::fs::remove_file(path(&second)).unwrap();
    let gone = format!("{second}: in receipts/index.json, but there is no such file: it was removed or renamed");
    assert_eq!(problems(root.path()), std::slice::from_ref(&gone));

    let renamed = second.replace("other", "nicer");
    std::fs::write(path(&renamed), &text).unwrap();
    assert_eq!(problems(root.path()), [format!("{renamed}: not in receipts/index.json"), gone]);

    std::fs::write(path(&second), &text).unwrap();
    let session = Synthetic::new(78).session();
    let twice = format!("{second}:1: session: {session} is the session of {renamed} too; a session has one file");
    assert_eq!(problems(root.path()), [format!("{renamed}: not in receipts/index.json"), twice]);
    std::fs::remove_file(path(&renamed)).unwrap();

    // Whole lines cut off leave a sound chain; the index knows better.
    let kept = lines(&text);
    std::fs::write(path(&second), kept[..kept.len() - 1].concat()).unwrap();
    let report = verify_root(root.path());
    let fields: Vec<_> = report.problems.iter().map(|problem| problem.field.as_deref()).collect();
    assert_eq!(fields, [Some("last_id"), Some("records")]);
    assert_eq!(report.notes, [format!("{second}: the session did not end")]);

    std::fs::write(path(&second), &text[..text.len() - 5]).unwrap();
    let report = verify_root(root.path());
    assert!(report.notes[0].contains("a cut last line of"), "{:?}", report.notes);
    assert_eq!(report.problems.len(), 2);
    std::fs::write(path(&second), &text).unwrap();

    std::fs::remove_file(path("receipts/index.json")).unwrap();
    assert_eq!(problems(root.path()).len(), 2);
    let index = index::rebuild(root.path()).unwrap();
    assert_eq!(index.files.iter().map(|entry| &entry.path).collect::<Vec<_>>(), [&second, &first]);
    assert_eq!(problems(root.path()), Vec::<String>::new());
    let spaced = index.text().unwrap() + "\n";
    std::fs::write(path("receipts/index.json"), spaced).unwrap();
    assert_eq!(problems(root.path()), ["receipts/index.json: not as it is generated: sorted, each file once"]);
}

#[test]
fn a_session_that_stopped_early_is_kept_and_can_be_indexed() {
    let root = tempfile::tempdir().unwrap();
    let first = written(root.path(), &session());
    let name = Synthetic::new(78).name().unwrap().relative_path();
    let path = root.path().join(&name);
    std::fs::write(&path, "").unwrap();
    let report = verify_root(root.path());
    assert_eq!((report.problems, report.notes), (vec![], vec![format!("{name}: holds no record")]));
    let error = index::enter_file(root.path(), &name).unwrap_err().to_string();
    assert_eq!(error, format!("{name}: holds no record that could be indexed"));

    let text = Synthetic::new(78).text().unwrap();
    std::fs::write(&path, lines(&text)[..4].concat()).unwrap();
    assert_eq!(problems(root.path()), [format!("{name}: not in receipts/index.json")]);
    assert_eq!(index::enter_file(root.path(), &name).unwrap().records, 4);
    let report = verify_root(root.path());
    assert_eq!((report.problems, report.notes), (vec![], vec![format!("{name}: the session did not end")]));
    assert_eq!(index::load(root.path()).unwrap().unwrap().files.len(), 2);

    std::fs::write(root.path().join(&first), "").unwrap();
    assert_eq!(problems(root.path()).len(), 2, "an indexed file that was emptied is noticed");
}

#[test]
fn citations_lead_to_one_record_or_say_why_not() {
    let root = tempfile::tempdir().unwrap();
    let name = written(root.path(), &session());
    let (evidence, _) = load_and_verify(root.path());
    let id = evidence.files()[0].records[2].id.clone();
    assert_eq!(evidence.lookup(&name, id.as_str()).unwrap().line, 3);
    assert_eq!(evidence.lookup(&name, id.short()).unwrap().record.id, id);
    for citation in
        [name.clone(), format!("{name}#"), format!("{name}#{}", &id.as_str()[..11]), format!("{name}#{id}0")]
    {
        assert!(matches!(evidence.find(&citation), Err(LookupError::Form(_))), "{citation}");
    }
    let error = evidence.find(&format!("receipts/x.jsonl#{}", id.short())).unwrap_err();
    assert_eq!(error, LookupError::NoFile("receipts/x.jsonl".to_owned()));
    let error = evidence.lookup(&name, "0123456789ab").unwrap_err().to_string();
    assert_eq!(error, format!("{name} holds no record 0123456789ab"));
}
