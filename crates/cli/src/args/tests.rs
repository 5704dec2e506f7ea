//! What is typed and what it means.

use super::*;

fn parse(line: &str) -> Command {
    Args::try_parse_from(line.split(' '))
        .unwrap_or_else(|error| panic!("{line}: {error}"))
        .command
}

fn refused(line: &str) -> String {
    Args::try_parse_from(line.split(' '))
        .map(|args| panic!("{line}: {args:?}"))
        .unwrap_err()
        .to_string()
}

fn place(text: &str) -> (Option<String>, Option<String>) {
    let place: Place = text.parse().unwrap();
    (place.sandbox, place.revision)
}

#[test]
fn the_definition_holds_together() {
    use clap::CommandFactory;
    Args::command().debug_assert();
}

#[test]
fn places() {
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(place("work"), (some("work"), None));
    assert_eq!(place("work@v1"), (some("work"), some("v1")));
    assert_eq!(place("work@{-1}"), (some("work"), some("@{-1}")));
    assert_eq!(place("work@@{-1}"), (some("work"), some("@{-1}")));
    assert_eq!(place("work~2"), (some("work"), some("HEAD~2")));
    assert_eq!(place("work@HEAD~2"), (some("work"), some("HEAD~2")));
    assert_eq!(place("@{-1}"), (None, some("@{-1}")));
    assert_eq!(place("HEAD~3"), (None, some("HEAD~3")));
    assert_eq!(place("HEAD"), (None, some("HEAD")));
    assert_eq!(place("ckp_12"), (None, some("ckp_12")));
    assert_eq!(place("HEADER"), (some("HEADER"), None));
    assert!("work@".parse::<Place>().is_err());
    assert!("".parse::<Place>().is_err());
}

#[test]
fn sizes() {
    for (text, bytes) in [
        ("1", 1),
        ("4k", 4096),
        ("512M", 512 << 20),
        ("2GiB", 2 << 30),
        ("1TB", 1 << 40),
    ] {
        assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
    }
    for text in ["", "M", "1.5G", "-1", "0", "99999999T"] {
        assert!(text.parse::<Size>().is_err(), "{text}");
    }
    assert_eq!("1.5".parse(), Ok(Cpus(1500)));
    assert!("0".parse::<Cpus>().is_err());
    assert!("nan".parse::<Cpus>().is_err());
}

#[test]
fn sides_of_a_copy() {
    let inside = |sandbox: &str, path: &str| Side::Box {
        sandbox: sandbox.to_owned(),
        path: path.to_owned(),
    };
    assert_eq!("-".parse(), Ok(Side::Stream));
    assert_eq!("work:/srv/".parse(), Ok(inside("work", "/srv/")));
    assert_eq!("./a:b".parse(), Ok(Side::Here("./a:b".into())));
    assert_eq!("/a:b".parse(), Ok(Side::Here("/a:b".into())));
    assert_eq!("counter.py".parse(), Ok(Side::Here("counter.py".into())));
    assert!("work:srv".parse::<Side>().is_err());
}

#[test]
fn volumes_and_variables() {
    let volume: Volume = "/a:/b:ro".parse().unwrap();
    assert_eq!(
        volume.0,
        api::Volume {
            host: "/a".to_owned(),
            inside: "/b".to_owned(),
            read_only: true
        }
    );
    for text in ["/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:x"] {
        assert!(text.parse::<Volume>().is_err(), "{text}");
    }
    assert_eq!("A=b=c".parse(), Ok(Variable("A".to_owned(), "b=c".to_owned())));
    assert!("A".parse::<Variable>().is_err());
    assert!("=b".parse::<Variable>().is_err());
}

#[test]
fn flags_after_the_box_belong_to_the_command() {
    for line in [
        "deltabox exec -d work -- python3 -u /srv/c.py",
        "deltabox exec -d work python3 -u /srv/c.py",
    ] {
        let Command::Exec(exec) = parse(line) else {
            panic!("{line}")
        };
        assert!(exec.streams.detach);
        assert_eq!(
            (exec.sandbox.as_str(), exec.argv.join(" ").as_str()),
            ("work", "python3 -u /srv/c.py")
        );
        assert_eq!(exec.user, None);
    }
    let Command::Run(run) = parse("deltabox run --rm -i --mem 1G -- sh -c true") else {
        panic!()
    };
    assert!(run.rm && run.streams.interactive && !run.streams.tty);
    assert_eq!(run.create.mem, Some(Size(1 << 30)));
    assert_eq!(run.argv, ["sh", "-c", "true"]);
}

#[test]
fn the_lines_of_the_readme() {
    let Command::Rollback(rollback) = parse("deltabox rollback work HEAD~3 --json") else {
        panic!()
    };
    assert_eq!(rollback.sandbox.unwrap().sandbox.as_deref(), Some("work"));
    assert_eq!(rollback.revision.as_deref(), Some("HEAD~3"));
    for line in [
        "deltabox create --name work",
        "deltabox cp counter.py work:/srv/",
        "deltabox shell work",
        "deltabox checkpoint work -m before",
        "deltabox commit",
        "deltabox rollback work @{-1} --discard",
        "deltabox log work",
        "deltabox diff work HEAD~1 HEAD",
        "deltabox ls",
        "deltabox ps -q",
        "deltabox inspect work@HEAD",
        "deltabox tag -d work v1",
        "deltabox rm -f work other",
        "deltabox doctor",
        "deltabox demo --rounds 3",
        "deltabox completion bash",
        "deltabox bench rewind --heap-mb 100 --dirty-mb 4 --files 20 --file-kb 16 --processes 1 --threads 4 --rounds 200 --json",
        "deltabox bench files --json",
        "deltabox bench steady --pairs 7 --json",
        "deltabox bench files --database-mb 1 --made-files 20 --deleted-files 20 --rounds 1",
    ] {
        parse(line);
    }
}

#[test]
fn wrong_usage_is_said() {
    assert!(refused("deltabox").contains("Usage"));
    assert!(refused("deltabox exec work").contains("COMMAND"));
    assert!(refused("deltabox exec -d -t work sh").contains("cannot be used with"));
    assert!(refused("deltabox create --mem lots").contains("is not a size"));
    assert!(refused("deltabox create --net host").contains("none"));
    assert!(refused("deltabox rolback").contains("rollback"));
    assert!(refused("deltabox rm").contains("BOX"));
}
