//! Anything that is changed, removed, moved, added or cut is found, and the first record that it touches is named.

use proptest::prelude::*;

use super::*;

/// What may be done to the files.
#[derive(Clone, Debug)]
pub(super) enum Damage {
    /// One byte of one segment becomes another.
    Byte { segment: usize, at: usize, to: u8 },
    /// A line goes.
    Removed { line: usize },
    /// Two lines change places.
    Swapped { one: usize, other: usize },
    /// A line stands once more somewhere.
    Doubled { line: usize, at: usize },
    /// A line is replaced by another one.
    Replaced { line: usize, by: usize },
    /// Bytes are put in somewhere.
    Inserted { segment: usize, at: usize, text: Vec<u8> },
    /// A segment goes.
    SegmentRemoved { segment: usize },
    /// Two segments change names.
    SegmentsSwapped { one: usize, other: usize },
    /// A segment has another name.
    Renamed { segment: usize, to: u64 },
    /// A segment ends early.
    Cut { segment: usize, at: usize },
}

pub(super) fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<usize>;
    prop_oneof![
        6 => (place(), place(), any::<u8>()).prop_map(|(segment, at, to)| Damage::Byte { segment, at, to }),
        2 => place().prop_map(|line| Damage::Removed { line }),
        2 => (place(), place()).prop_map(|(one, other)| Damage::Swapped { one, other }),
        2 => (place(), place()).prop_map(|(line, at)| Damage::Doubled { line, at }),
        2 => (place(), place()).prop_map(|(line, by)| Damage::Replaced { line, by }),
        2 => (place(), place(), proptest::collection::vec(any::<u8>(), 1..20))
            .prop_map(|(segment, at, text)| Damage::Inserted { segment, at, text }),
        1 => place().prop_map(|segment| Damage::SegmentRemoved { segment }),
        1 => (place(), place()).prop_map(|(one, other)| Damage::SegmentsSwapped { one, other }),
        1 => (place(), 0u64..100).prop_map(|(segment, to)| Damage::Renamed { segment, to }),
        3 => (place(), place()).prop_map(|(segment, at)| Damage::Cut { segment, at }),
    ]
}

impl Damage {
    pub(super) fn does(self, place: &Place) {
        let paths = place.segments();
        let mut texts: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
        let count = texts.len();
        let lines = place.lines().len();
        match self {
            Damage::Byte { segment, at, to } => {
                let text = &mut texts[segment % count];
                let at = at % text.len();
                text[at] = to;
            }
            Damage::Removed { line } => with_lines(&mut texts, |all| drop(all.remove(line % lines))),
            Damage::Swapped { one, other } => with_lines(&mut texts, |all| {
                let (one, other) = (one % lines, other % lines);
                let kept = all[one].1.clone();
                all[one].1 = all[other].1.clone();
                all[other].1 = kept;
            }),
            Damage::Doubled { line, at } => with_lines(&mut texts, |all| {
                let at = at % lines;
                let doubled = (all[at].0, all[line % lines].1.clone());
                all.insert(at, doubled);
            }),
            Damage::Replaced { line, by } => with_lines(&mut texts, |all| {
                all[line % lines].1 = all[by % lines].1.clone();
            }),
            Damage::Inserted { segment, at, text: new } => {
                let text = &mut texts[segment % count];
                let at = at % (text.len() + 1);
                text.splice(at..at, new);
            }
            Damage::SegmentRemoved { segment } => {
                fs::remove_file(&paths[segment % count]).unwrap();
                return;
            }
            Damage::SegmentsSwapped { one, other } => texts.swap(one % count, other % count),
            Damage::Renamed { segment, to } => {
                fs::rename(&paths[segment % count], place.directory.join(segment::name(to))).unwrap();
                return;
            }
            Damage::Cut { segment, at } => {
                let text = &mut texts[segment % count];
                text.truncate(at % text.len());
            }
        }
        for (path, text) in paths.iter().zip(texts) {
            fs::write(path, text).unwrap();
        }
    }
}

/// All lines, each with the number of its segment.
fn with_lines(texts: &mut [Vec<u8>], change: impl FnOnce(&mut Vec<(usize, Vec<u8>)>)) {
    let mut all: Vec<(usize, Vec<u8>)> = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        all.extend(text.split_inclusive(|byte| *byte == b'\n').map(|line| (number, line.to_vec())));
    }
    change(&mut all);
    for (number, text) in texts.iter_mut().enumerate() {
        *text = all.iter().filter(|(of, _)| *of == number).flat_map(|(_, line)| line.clone()).collect();
    }
}

/// The files in order, by name.
fn files(place: &Place) -> Vec<(PathBuf, Vec<u8>)> {
    let named = |path: PathBuf| (PathBuf::from(path.file_name().unwrap()), fs::read(&path).unwrap());
    place.segments().into_iter().map(named).collect()
}

/// What has to be found, made from comparing the files before and after: the first record that is not as it was; and whether
/// only the end of the chain is missing, without or with a part of a record.
#[derive(PartialEq, Debug)]
enum Expected {
    Good(u64),
    ShorterBy { records: u64, torn: bool },
    Bad(u64),
}

fn expected(before: &Place, after: &Place) -> Expected {
    let (old, new) = (files(before), files(after));
    if old == new {
        return Expected::Good(before.lines().len() as u64);
    }
    let (old_lines, new_lines) = (before.lines(), after.lines());
    // The number of the first line that is not what it was.
    let same = old_lines.iter().zip(&new_lines).take_while(|(old, new)| old == new).count();
    // Whether all files that are left are those that were there, but for the end of the last.
    let mut prefix = !new.is_empty() && new.len() <= old.len();
    for (number, (name, text)) in new.iter().enumerate() {
        let last = number + 1 == new.len();
        prefix &= old.get(number).is_some_and(|(old_name, old_text)| {
            old_name == name && if last { old_text.starts_with(text) } else { old_text == text }
        });
    }
    // A file has at least its first record.
    prefix &= new.last().is_some_and(|(_, text)| text.contains(&b'\n'));
    if prefix {
        let whole = new_lines.iter().filter(|line| line.ends_with(b"\n")).count() as u64;
        return Expected::ShorterBy {
            records: old_lines.len() as u64 - whole,
            torn: whole < new_lines.len() as u64,
        };
    }
    Expected::Bad(same as u64)
}

/// What was found, in the same words.
fn found(place: &Place, records: u64) -> Expected {
    match place.verify() {
        Ok(verified) if verified.records == records && verified.tail.is_none() => Expected::Good(records),
        Ok(verified) => {
            Expected::ShorterBy { records: records - verified.records, torn: verified.tail.is_some() }
        }
        Err(fault) => Expected::Bad(fault.seq().unwrap()),
    }
}

/// Where a file was renamed or its place is wrong, its lines are all there: the first record that cannot be reached counts.
fn names_a_record_before(place: &Place, expected: u64) -> bool {
    let mut next = 0;
    for (name, text) in files(place) {
        if name.to_str() != Some(&segment::name(next)) {
            return next <= expected;
        }
        next += text.split_inclusive(|byte| *byte == b'\n').count() as u64;
    }
    false
}

fn check(good: &Place, change: Damage) {
    let place = good.copy();
    let shown = format!("{change:?}");
    change.does(&place);
    let records = good.lines().len() as u64;
    let (expected, found) = (expected(good, &place), found(&place, records));
    if expected == found {
        return;
    }
    let fits = match (&expected, &found) {
        // A last line without its newline is a torn one, whatever is in it.
        (Expected::Bad(seq), Expected::ShorterBy { records: missing, torn: true }) => {
            let text = fs::read(place.last()).unwrap();
            *seq == records - missing && !text.ends_with(b"\n")
        }
        (Expected::Bad(expected), Expected::Bad(found)) => {
            found <= expected && names_a_record_before(&place, *expected)
        }
        _ => false,
    };
    assert!(fits, "{shown}: expected {expected:?}, found {found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    /// EVI-2: whatever is done to the files is found, and the first record that it touches is named.
    #[test]
    fn any_damage_is_found(change in damage()) {
        use std::sync::LazyLock;
        static GOOD: LazyLock<Place> = LazyLock::new(|| chain(30));
        check(&GOOD, change);
    }
}

/// EVI-2: every byte of every segment, changed in one bit.
#[test]
fn every_changed_byte_is_found() {
    let good = chain(4);
    for segment in 0..good.segments().len() {
        let text = fs::read(&good.segments()[segment]).unwrap();
        for (at, byte) in text.iter().enumerate() {
            check(&good, Damage::Byte { segment, at, to: byte ^ 1 });
            check(&good, Damage::Byte { segment, at, to: byte ^ 0x80 });
        }
    }
}

/// EVI-2: every line removed, every two swapped, every segment removed or cut at any line.
#[test]
fn every_removed_or_moved_record_is_named() {
    let good = chain(30);
    let count = good.lines().len();
    for line in 0..count {
        check(&good, Damage::Removed { line });
        check(&good, Damage::Doubled { line, at: line });
        for other in 0..line {
            check(&good, Damage::Swapped { one: other, other: line });
        }
    }
    for (segment, path) in good.segments().iter().enumerate() {
        check(&good, Damage::SegmentRemoved { segment });
        for other in 0..segment {
            check(&good, Damage::SegmentsSwapped { one: other, other: segment });
        }
        let text = fs::read(path).unwrap();
        let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        for at in ends.chain([0]) {
            check(&good, Damage::Cut { segment, at });
        }
    }
}

/// EVI-2: the sentence names the record, the file and the place in it.
#[test]
fn the_fault_says_where() {
    let place = chain(30);
    let path = place.segments()[1].clone();
    let mut text = fs::read(&path).unwrap();
    let second = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let seq = Record::read(text[second..].split(|byte| *byte == b'\n').next().unwrap()).unwrap().seq;
    text[second + 60] ^= 1;
    fs::write(&path, &text).unwrap();
    let fault = place.verify().unwrap_err();
    let Fault::Record { seq: named, segment, offset, .. } = &fault else { panic!("{fault}") };
    assert_eq!((*named, segment, *offset), (seq, &path, second as u64));
    let sentence = fault.to_string();
    assert!(sentence.starts_with(&format!("record {seq} was changed")), "{sentence}");
    assert!(sentence.contains(&format!("byte {second}")), "{sentence}");
}
