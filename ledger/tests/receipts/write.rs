//! What the writer refuses, and what may follow the end of a session.

use memra_ledger::canonical;
use memra_ledger::chain::{
    MAX_SESSION_BYTES, PrivacyLint, RESERVED_BYTES, ReceiptWriter, WriteError, append_correction, read_file,
};
use memra_ledger::record::{Body, CorrectionBody, ExternalBody, Record};
use memra_ledger::synthetic::Synthetic;
use memra_ledger::verify::{Evidence, load_and_verify};

use super::{problems, session, written};

#[test]
fn records_stand_where_they_belong() {
    let root = tempfile::tempdir().unwrap();
    let synthetic = Synthetic::new(5);
    let mut writer = ReceiptWriter::create(root.path(), &synthetic.name().unwrap(), PrivacyLint::default()).unwrap();
    let error = writer.append(external("x")).unwrap_err().to_string();
    assert!(error.ends_with("the first record must be that of the session"), "{error}");
    let wrong_rig = Synthetic { rig_label: "elsewhere".to_owned(), ..synthetic.clone() };
    let error = wrong_rig.emit(&mut |body| writer.append(body)).unwrap_err().to_string();
    assert!(error.ends_with("field `rig.label` is `elsewhere`, but the file lies under `synthetic`"), "{error}");
    assert_eq!((writer.records(), writer.bytes()), (0, 0));
    synthetic.emit(&mut |body| writer.append(body)).unwrap();
    let error = synthetic.emit(&mut |body| writer.append(body)).unwrap_err().to_string();
    assert!(error.ends_with("a file holds one session"), "{error}");

    assert!(matches!(
        ReceiptWriter::create(root.path(), &synthetic.name().unwrap(), PrivacyLint::default()),
        Err(WriteError::Exists { .. })
    ));
    let name = writer.name().to_owned();
    let first = read_file(root.path(), &name).unwrap().records[0].clone();
    let fix = || CorrectionBody { corrects: first.id.clone(), text: "x".to_owned(), withdraws: false };
    let error = append_correction(root.path(), &name, PrivacyLint::default(), fix()).unwrap_err();
    assert!(matches!(error, WriteError::Locked { .. }), "{error}");
    writer.finish("2024-01-02T03:14:05Z".to_owned(), 0).unwrap();
    append_correction(root.path(), &name, PrivacyLint::default(), fix()).unwrap();
    assert_eq!(problems(root.path()), Vec::<String>::new());
}

fn external(source: &str) -> Body {
    Body::External(ExternalBody {
        title: "a figure".to_owned(),
        source: source.to_owned(),
        date: "2024-01-01".to_owned(),
        value_milli: 1,
        unit: "tok/s".to_owned(),
    })
}

#[test]
fn private_facts_never_reach_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let synthetic = Synthetic::new(6);
    let lint = PrivacyLint::new(Some("gpu-box"), Some("alice"));
    let mut writer = ReceiptWriter::create(root.path(), &synthetic.name().unwrap(), lint).unwrap();
    synthetic.emit(&mut |body| writer.append(body)).unwrap();
    let before = std::fs::read(root.path().join(writer.name())).unwrap();
    for (source, what) in [
        ("/data/x", "an absolute path"),
        ("~/x", "an absolute path"),
        ("by alice", "the user name"),
        ("GPU-BOX", "the host"),
    ] {
        let error = writer.append(external(source)).unwrap_err().to_string();
        assert!(error.contains(&format!("external record not written: source holds {what}")), "{error}");
    }
    assert_eq!(std::fs::read(root.path().join(writer.name())).unwrap(), before);
    writer.append(external("a paper")).unwrap();
    writer.finish("2024-01-02T03:14:05Z".to_owned(), 0).unwrap();
    assert_eq!(problems(root.path()), Vec::<String>::new());
}

#[test]
fn a_full_session_can_still_be_closed_and_corrected() {
    let root = tempfile::tempdir().unwrap();
    let synthetic = Synthetic::new(7);
    let mut writer = ReceiptWriter::create(root.path(), &synthetic.name().unwrap(), PrivacyLint::default()).unwrap();
    synthetic.emit(&mut |body| writer.append(body)).unwrap();
    let first = read_file(root.path(), writer.name()).unwrap().records[0].clone();
    let large = "x".repeat(300_000);
    let error = loop {
        if let Err(error) = writer.append(external(&large)) {
            break error;
        }
    };
    assert!(matches!(&error, WriteError::TooLarge { limit, .. } if *limit == MAX_SESSION_BYTES - RESERVED_BYTES));
    let name = writer.name().to_owned();
    assert!(error.to_string().starts_with(&format!("{name}: external record of 300")), "{error}");
    let room = MAX_SESSION_BYTES - RESERVED_BYTES - writer.bytes();
    writer.append(external(&"x".repeat(room as usize - 600))).unwrap();
    assert!(matches!(writer.append(external(&"x".repeat(600))), Err(WriteError::TooLarge { .. })));
    writer.finish("2024-01-02T03:14:05Z".to_owned(), 0).unwrap();
    let correction = |text: String| CorrectionBody { corrects: first.id.clone(), text, withdraws: false };
    append_correction(root.path(), &name, PrivacyLint::default(), correction("x".to_owned())).unwrap();
    let error = append_correction(root.path(), &name, PrivacyLint::default(), correction("x".repeat(20_000)));
    assert!(matches!(error, Err(WriteError::TooLarge { limit: MAX_SESSION_BYTES, .. })));
    assert_eq!(problems(root.path()), Vec::<String>::new());
}

#[test]
fn corrections_follow_and_withdraw() {
    let root = tempfile::tempdir().unwrap();
    let name = written(root.path(), &session());
    let before = read_file(root.path(), &name).unwrap();
    let cell = before.records[3].clone();
    let correction = |corrects: &Record, withdraws| CorrectionBody {
        corrects: corrects.id.clone(),
        text: "the card was shared".to_owned(),
        withdraws,
    };
    let lint = PrivacyLint::default;
    append_correction(root.path(), &name, lint(), correction(&cell, false)).unwrap();
    append_correction(root.path(), &name, lint(), correction(&cell, true)).unwrap();
    let (evidence, report) = load_and_verify(root.path());
    assert_eq!((report.problems.as_slice(), report.records), (&[][..], 25));
    let file = evidence.file(&name).unwrap();
    assert!(file.records.starts_with(&before.records));
    assert!(file.is_withdrawn(&cell.id) && !file.is_withdrawn(&before.records[0].id));
    assert_eq!(Evidence::corrections(file, &cell).len(), 2);
    let found = evidence.find(&Evidence::citation(file, &cell)).unwrap();
    assert!(found.is_withdrawn && found.record == &cell && found.line == 4);
    assert_eq!(found.session, before.session().unwrap());

    let mut stranger = cell.clone();
    stranger.id = canonical::sha256(b"nothing");
    let error = append_correction(root.path(), &name, lint(), correction(&stranger, true)).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{name}: it holds no record ")), "{error}");

    // After a cut line nothing can be appended; a broken chain is not continued.
    let path = root.path().join(&name);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, &text[..text.len() - 1]).unwrap();
    let error = append_correction(root.path(), &name, lint(), correction(&cell, true)).unwrap_err().to_string();
    assert!(error.contains("its last line is cut"), "{error}");
    std::fs::write(&path, text.replacen("\"launches\":24", "\"launches\":25", 1)).unwrap();
    let error = append_correction(root.path(), &name, lint(), correction(&cell, true)).unwrap_err();
    assert!(matches!(error, WriteError::Read(_)), "{error}");
}
