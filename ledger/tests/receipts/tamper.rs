//! Lines that were edited, moved, added, cut or written under other rules.

use memra_ledger::chain::{LineFault, ReadError, SkippedTail, read_bytes};
use memra_ledger::synthetic::Synthetic;
use memra_ledger::verify::verify_root;

use super::{lines, read, rewritten, session, written};

#[test]
fn every_single_digit_is_covered() {
    let small = Synthetic { replicates: 1, quads: 6, ..session() };
    let mut bytes = small.text().unwrap().into_bytes();
    let (mut line, mut tried) = (1, 0);
    for index in 0..bytes.len() {
        let byte = bytes[index];
        line += u64::from(byte == b'\n');
        if !byte.is_ascii_digit() {
            continue;
        }
        bytes[index] = if byte == b'9' { b'0' } else { byte + 1 };
        match read_bytes("f", &bytes) {
            Err(error @ ReadError::Line { .. }) => assert_eq!(error.line(), Some(line), "byte {index}"),
            other => panic!("byte {index} of line {line}: {other:?}"),
        }
        bytes[index] = byte;
        tried += 1;
    }
    assert!(tried > 3_000, "{tried}");
    assert!(read_bytes("f", &bytes).is_ok());
}

#[test]
fn an_edited_digit_is_named_by_verification() {
    let root = tempfile::tempdir().unwrap();
    let name = written(root.path(), &session());
    let path = root.path().join(&name);
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.find("\"elapsed_ns\":[").unwrap() + "\"elapsed_ns\":[".len();
    let line = text[..at].matches('\n').count() + 1;
    let mut edited = text.into_bytes();
    edited[at] = if edited[at] == b'9' { b'8' } else { edited[at] + 1 };
    std::fs::write(&path, edited).unwrap();
    let report = verify_root(root.path());
    assert_eq!(report.problems.len(), 1);
    let problem = &report.problems[0];
    assert_eq!((problem.file.as_str(), problem.line), (name.as_str(), Some(line as u64)));
    assert!(problem.message.starts_with("field `id` does not match the line"), "{problem}");
}

#[test]
fn the_chain_says_what_differs() {
    let text = session().text().unwrap();
    let good = lines(&text);
    let fault = |lines: &[String]| match read(&lines.concat()) {
        Err(ReadError::Line { line, fault, .. }) => (line, fault),
        other => panic!("{other:?}"),
    };

    let mut swapped = good.clone();
    swapped.swap(4, 5);
    assert!(matches!(fault(&swapped), (5, LineFault::Seq { found: 5, expected: 4 })));

    let mut without = good.clone();
    without.remove(6);
    assert!(matches!(fault(&without), (7, LineFault::Seq { found: 7, expected: 6 })));
    let mut without_first = good.clone();
    without_first.remove(0);
    assert!(matches!(fault(&without_first), (1, LineFault::Seq { found: 1, expected: 0 })));

    let mut doubled = good.clone();
    doubled.push(good[good.len() - 1].clone());
    assert!(matches!(fault(&doubled), (24, LineFault::Seq { found: 22, expected: 23 })));
    let mut doubled = good.clone();
    doubled.push(rewritten(&good[22], |record| record["seq"] = 23.into()));
    assert!(matches!(fault(&doubled), (24, LineFault::Prev { .. })));

    let mut replaced = good.clone();
    replaced[3] = rewritten(&good[3], |record| record["cell"] = "other".into());
    assert!(matches!(fault(&replaced), (5, LineFault::Prev { .. })));

    let mut foreign = good.clone();
    foreign[3] = rewritten(&good[3], |record| record["session"] = "0".repeat(32).into());
    assert!(matches!(fault(&foreign), (4, LineFault::Session { .. })));

    let mut spaced = good.clone();
    spaced[2] = good[2].replacen(',', ", ", 1);
    assert_eq!(fault(&spaced), (3, LineFault::NotCanonical));
    let mut twice = good.clone();
    twice[2] = good[2].replacen('{', "{\"cases\":7,", 1);
    assert_eq!(fault(&twice), (3, LineFault::NotCanonical));

    let mut shapeless = good.clone();
    shapeless[22] = rewritten(&good[22], |record| record["records"] = "many".into());
    let (line, form) = fault(&shapeless);
    assert_eq!(line, 23);
    assert!(form.to_string().starts_with("not a record of kind `end`: "), "{form}");
    shapeless[22] = rewritten(&good[22], |record| record["kind"] = "rumour".into());
    assert!(fault(&shapeless).1.to_string().contains("unknown variant `rumour`"));
}

#[test]
fn versions_tokens_and_tails() {
    let text = session().text().unwrap();
    let good = lines(&text);

    // A later minor version with a field nobody knows yet is read, and the field is kept and covered.
    let mut minor = good.clone();
    minor[22] = rewritten(&good[22], |record| {
        record["schema"] = "memra-lab.receipt/1.7.0".into();
        record["mood"] = "calm".into();
    });
    let file = read(&minor.concat()).unwrap();
    assert!(file.texts[22].contains("\"mood\":\"calm\"") && file.skipped_tail.is_none());
    minor[22] = minor[22].replace("calm", "cold");
    assert_eq!(read(&minor.concat()).unwrap_err().line(), Some(23));

    let mut major = good.clone();
    major[22] = rewritten(&good[22], |record| record["schema"] = "memra-lab.receipt/2.0.0".into());
    let error = read(&major.concat()).unwrap_err().to_string();
    assert!(error.starts_with("f:23: schema `memra-lab.receipt/2.0.0` has a major version"), "{error}");

    let mut nan = good.clone();
    nan[3] = good[3].replacen("\"launches\":24", "\"launches\":NaN", 1);
    let error = read(&nan.concat()).unwrap_err().to_string();
    assert!(error.starts_with("f:4: column ") && error.contains("`NaN` is not a finite number"), "{error}");
    nan[3] = good[3].replacen("\"launches\":24", "\"launches\":24.5", 1);
    let error = read(&nan.concat()).unwrap_err().to_string();
    assert_eq!(error, "f:4: plan.launches: 24.5 is not an integer; records hold integers only");

    // Cut anywhere in its last line, a file reads up to there.
    let last = good[22].len();
    for cut in 1..=last {
        let file = read(&text[..text.len() - cut]).unwrap();
        assert_eq!(file.records.len(), 22);
        let tail = (cut < last).then_some(SkippedTail { line: 23, bytes: (last - cut) as u64 });
        assert_eq!(file.skipped_tail, tail);
    }
    // With a line end after the cut, the tail is told from a wrong line in the middle.
    let cut = text[..text.len() - 10].to_owned() + "\n";
    assert_eq!(read(&cut).unwrap().skipped_tail.map(|tail| tail.line), Some(23));
    assert_eq!(read(&(cut + &good[22])).unwrap_err().line(), Some(23));
}
