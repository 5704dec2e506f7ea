//! Histories of numbers: a state is a set of blocks, and its own bytes are the blocks its ancestor does not have.

use super::*;

type Blocks = Vec<u32>;

fn own(state: &Blocks, ancestor: Option<&Blocks>) -> u64 {
    state
        .iter()
        .filter(|block| !ancestor.is_some_and(|ancestor| ancestor.contains(block)))
        .count() as u64
}

fn id(bits: u64) -> CheckpointId {
    CheckpointId::from_bits(bits)
}

pub(crate) fn line(at: u64, parent: Option<CheckpointId>) -> CheckpointLine {
    CheckpointLine {
        id: id(at),
        parent,
        message: None,
        tags: Vec::new(),
        created_ms: 0,
        head: false,
        process_count: 0,
        memory_bytes: 0,
        file_bytes: 0,
        changed_files: 0,
        dropped: false,
        automatic: false,
        outside: Vec::new(),
    }
}

fn grow(history: &mut History<Blocks>, at: u64, state: Blocks) {
    let parent = history.head();
    let bytes = own(&state, parent.and_then(|parent| history.state(parent).ok()));
    history.add(line(at, parent), state, bytes, true);
}

/// ab00.. <- ab11.. <- cd00.. (head), and ef00.. beside cd00 (where we were before).
fn sample() -> History<Blocks> {
    let mut history = History::default();
    grow(&mut history, 0xab00_0000_0000_0000, vec![1, 2, 3]);
    grow(&mut history, 0xab11_0000_0000_0000, vec![1, 2, 4]);
    grow(&mut history, 0xef00_0000_0000_0000, vec![1, 2, 4, 5]);
    history.jump(history.head(), id(0xab11_0000_0000_0000));
    grow(&mut history, 0xcd00_0000_0000_0000, vec![1, 6]);
    history.tag(id(0xab00_0000_0000_0000), "baseline").unwrap();
    history
}

#[test]
fn every_way_to_name_a_place() {
    let history = sample();
    let table = [
        ("HEAD", "ckp_cd00000000000000"),
        ("@", "ckp_cd00000000000000"),
        ("HEAD~1", "ckp_ab11000000000000"),
        ("HEAD~2", "ckp_ab00000000000000"),
        ("HEAD~3", "no checkpoint \"HEAD~3\""),
        ("@{-1}", "ckp_ef00000000000000"),
        ("@{-1}~", "ckp_ab11000000000000"),
        ("@{-2}", "no checkpoint \"@{-2}\""),
        ("baseline", "ckp_ab00000000000000"),
        ("baseline~", "no checkpoint \"baseline~\""),
        ("ef", "ckp_ef00000000000000"),
        ("EF00", "ckp_ef00000000000000"),
        ("ckp_ab1", "ckp_ab11000000000000"),
        ("ckp_ab11000000000000", "ckp_ab11000000000000"),
        (
            "ab",
            "\"ab\" is the start of several checkpoints: ckp_ab00000000000000, ckp_ab11000000000000",
        ),
        ("12", "no checkpoint \"12\""),
        ("basline", "no checkpoint \"basline\" (did you mean baseline?)"),
        ("haed", "no checkpoint \"haed\" (did you mean HEAD?)"),
        (
            "ckp_ab11000000000001",
            "no checkpoint \"ckp_ab11000000000001\" (did you mean ckp_ab11000000000000 or ckp_ab00000000000000 or ckp_cd00000000000000?)",
        ),
    ];
    for (text, expected) in table {
        let found = history.resolve(&Revision(text.to_owned()));
        let shown = found.map_or_else(|error| error.to_string(), |id| id.to_string());
        assert_eq!(shown, expected, "{text}");
    }
}

#[test]
fn an_empty_history_says_so() {
    let history = History::<Blocks>::default();
    for text in ["HEAD", "x", "ab", "HEAD~1"] {
        assert!(
            matches!(
                history.resolve(&Revision(text.to_owned())),
                Err(TimelineError::NoCheckpoint)
            ),
            "{text}"
        );
    }
}

#[test]
fn a_tag_wins_over_the_start_of_an_id_and_is_given_once() {
    let mut history = sample();
    history.tag(id(0xcd00_0000_0000_0000), "ef").unwrap();
    assert_eq!(
        history.resolve(&Revision("ef".to_owned())).unwrap(),
        id(0xcd00_0000_0000_0000)
    );
    assert!(matches!(
        history.tag(id(0xab00_0000_0000_0000), "ef"),
        Err(TimelineError::BadTag { .. })
    ));
    history.untag("ef").unwrap();
    assert_eq!(
        history.resolve(&Revision("ef".to_owned())).unwrap(),
        id(0xef00_0000_0000_0000)
    );
    let error = history.untag("baselin").unwrap_err();
    assert_eq!(error.to_string(), "no tag \"baselin\" (did you mean baseline?)");
}

#[test]
fn there_and_back_again() {
    let mut history = sample();
    for n in 0..3_u64 {
        let was = history.head();
        let to = history.resolve(&Revision("@{-1}".to_owned())).unwrap();
        history.jump(was, to);
        let expected = if n % 2 == 0 {
            0xef00_0000_0000_0000
        } else {
            0xcd00_0000_0000_0000
        };
        assert_eq!(history.head(), Some(id(expected)));
    }
}

#[test]
fn the_oldest_unnamed_lose_their_bytes_and_their_lines_stay() {
    let mut history = sample();
    let residents = |history: &History<Blocks>| -> String {
        let mark = |line: &CheckpointLine| if line.dropped { '-' } else { '+' };
        history.lines().iter().map(mark).collect()
    };
    assert_eq!((history.bytes(), residents(&history).as_str()), (3 + 1 + 1 + 1, "++++"));
    // ab11 goes: ef00 now owns 4 and 5 beside the baseline. The sum does not fall, so cd00 (head), ef00 (@{-1})
    // and the tagged one are all that is left to refuse.
    let freed = history.keep_within(5, own);
    assert_eq!((freed, residents(&history).as_str()), (vec![vec![1, 2, 4]], "+-++"));
    assert_eq!(history.bytes(), 3 + 2 + 1);
    assert!(matches!(
        history.state(id(0xab11_0000_0000_0000)),
        Err(TimelineError::Dropped { .. })
    ));
    assert_eq!(
        history.resolve(&Revision("HEAD~2".to_owned())).unwrap(),
        id(0xab00_0000_0000_0000)
    );
    // Without its name the baseline may go too.
    history.untag("baseline").unwrap();
    history.keep_within(5, own);
    assert_eq!((history.bytes(), residents(&history).as_str()), (4 + 2, "--++"));
    assert_eq!(history.resident_count(), 2);
}

#[test]
fn within_the_bound_nothing_goes() {
    let mut history = sample();
    assert!(history.keep_within(6, own).is_empty());
}
