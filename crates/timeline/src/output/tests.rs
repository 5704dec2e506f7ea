//! Cutting, bringing back and following an output, without any process.

use super::*;

const A: CheckpointId = CheckpointId::from_bits(0xa);
const B: CheckpointId = CheckpointId::from_bits(0xb);

fn out(text: &str) -> Arc<Output> {
    let output = Arc::new(Output::default());
    output.append(Stream::Stdout, text.as_bytes());
    output
}

/// Everything that is ready, one line an event.
fn read(follower: &mut Follower) -> String {
    let mut text = String::new();
    while let Some(event) = follower.try_recv() {
        text += &match event {
            ExecEvent::Output { stream, bytes, next } => {
                let name = if stream == Stream::Stdout { "out" } else { "err" };
                format!("{name} {} ->{}\n", String::from_utf8_lossy(&bytes), next.offset)
            }
            ExecEvent::Skipped { bytes, next } => format!("skipped {bytes} ->{}\n", next.offset),
            ExecEvent::Exited { code } => format!("exited {code}\n"),
            ExecEvent::RolledBack { to, cut_at, gone, .. } => format!("back to {:x} at {cut_at} {gone}\n", to.bits()),
            ExecEvent::Ended => "ended\n".to_owned(),
        };
    }
    text
}

#[test]
fn a_rollback_cuts_and_says_so_to_who_reads_and_to_who_comes_back() {
    let output = out("before");
    let mut live = output.follow(0.into());
    assert_eq!(read(&mut live), "out before ->6\n");
    let (content, state) = output.mark();
    output.append(Stream::Stdout, b" undone");
    output.exited(3);
    assert_eq!(read(&mut live), "out  undone ->13\nexited 3\n");
    let place = Position {
        generation: Some(0),
        offset: 13,
    };

    assert!(output.rewind(&content, state, A));
    assert_eq!(output.exec_state(), ExecState::Running);
    output.append(Stream::Stderr, b"again");
    assert_eq!(read(&mut live), "back to a at 6 false\nerr again ->11\n");
    // A client that reconnects with the place it knew is told the same.
    assert_eq!(
        read(&mut output.follow(place)),
        "back to a at 6 false\nerr again ->11\n"
    );
    // One that knew only what still holds is not.
    assert_eq!(
        read(&mut output.follow(Position {
            generation: Some(0),
            offset: 6
        })),
        "err again ->11\n"
    );
    assert_eq!(read(&mut output.follow(0.into())), "out before ->6\nerr again ->11\n");
}

#[test]
fn an_undone_text_comes_back_whole() {
    let output = out("base");
    let (base, running) = output.mark();
    output.append(Stream::Stdout, b"-one");
    let (one, _) = output.mark();
    assert!(output.rewind(&base, running, A));
    output.append(Stream::Stdout, b"-two");
    let mut live = output.follow(0.into());
    assert_eq!(read(&mut live), "out base-two ->8\n");
    assert!(output.rewind(&one, running, B));
    assert_eq!(read(&mut live), "back to b at 4 false\nout -one ->8\n");
    assert!(output.rewind(&base, running, A));
    assert_eq!(read(&mut live), "back to a at 4 false\n");
    assert_eq!(output.mark().0.end(), 4);
}

#[test]
fn nothing_printed_since_means_nothing_cut() {
    let output = out("same");
    let (content, state) = output.mark();
    let mut live = output.follow(4.into());
    assert!(!output.rewind(&content, state, A));
    assert_eq!(read(&mut live), "back to a at 4 false\n");
}

#[test]
fn a_command_that_was_not_started_yet_is_gone() {
    let output = out("x");
    let mut live = output.follow(0.into());
    output.forget(A);
    assert_eq!(read(&mut live), "back to a at 0 true\n");
    assert!(live.is_over());
    assert_eq!(live.recv(), None);
}

#[test]
fn the_middle_is_forgotten_and_the_bound_holds() {
    let output = Arc::new(Output::default());
    let block = vec![b'x'; 10_000];
    for _ in 0..400 {
        output.append(Stream::Stdout, &block);
    }
    let (content, _) = output.mark();
    let kept: usize = content
        .head
        .iter()
        .chain(content.tail.iter())
        .map(|chunk| chunk.bytes.len())
        .sum();
    assert!(kept as u64 <= LOG_HEAD_MAX_BYTES + LOG_TAIL_MAX_BYTES);
    let (mut seen, mut skipped, mut follower) = (0, 0, output.follow(0.into()));
    while let Some(event) = follower.try_recv() {
        match event {
            ExecEvent::Output { bytes, .. } => seen += bytes.len() as u64,
            ExecEvent::Skipped { bytes, .. } => skipped += bytes,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seen + skipped, seen), (4_000_000, kept as u64));
}

#[test]
fn a_cut_inside_the_forgotten_middle_goes_on_from_there() {
    let output = Arc::new(Output::default());
    output.append(Stream::Stdout, &vec![b'a'; 100_000]);
    let (early, state) = output.mark();
    for _ in 0..40 {
        output.append(Stream::Stdout, &vec![b'b'; 100_000]);
    }
    assert!(output.rewind(&early, state, A));
    output.append(Stream::Stdout, b"end");
    assert_eq!(
        read(&mut output.follow(99_999.into())),
        "out a ->100000\nout end ->100003\n"
    );
}

#[test]
fn exit_comes_after_all_output_and_ended_last() {
    let output = out("x");
    output.exited(0);
    output.end();
    let mut follower = output.follow(0.into());
    assert_eq!(read(&mut follower), "out x ->1\nexited 0\nended\n");
    assert_eq!(follower.recv(), None);
}

#[test]
fn a_waiting_reader_wakes() {
    let output = out("");
    let mut follower = output.follow(0.into());
    let (told, hears) = std::sync::mpsc::channel();
    follower.on_ready(move || told.send(()).unwrap());
    let writer = {
        let output = Arc::clone(&output);
        std::thread::spawn(move || output.append(Stream::Stdout, b"now"))
    };
    assert!(matches!(follower.recv(), Some(ExecEvent::Output { bytes, .. }) if bytes == b"now"));
    writer.join().unwrap();
    hears.recv().unwrap();
}
