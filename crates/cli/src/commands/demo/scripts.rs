//! The parts of the demo that other programs play, where this machine has them: bash with variables and a loop, Python
//! with objects, a generator and an open SQLite transaction.

use super::asking::{self, Program};
use super::private::Private;
use crate::error::Result;

/// A program of somebody else that answers.
#[derive(Debug)]
pub(crate) struct Script {
    /// What it is called.
    pub(crate) name: &'static str,
    /// What it holds.
    pub(crate) what: &'static str,
    pub(crate) program: Program,
    last_word: Option<(&'static str, &'static str, &'static str)>,
}

/// A script: name, what it holds, how it is found, how it is started, what is asked of it in the end.
struct Part {
    name: &'static str,
    what: &'static str,
    needs: &'static [&'static str],
    argv: &'static [&'static str],
    /// A last question, its right answer, and what that proves.
    last_word: Option<(&'static str, &'static str, &'static str)>,
}

const BASH: &str = r#"
n=7 words=(one two three); cd /srv
while read -r question; do
  case $question in
    destroy) n=0 words=(); cd /; echo destroyed ;;
    state) echo "n=$n words=${words[*]} in=$(readlink /proc/$$/cwd)" ;;
    next) n=$((n + 1)); echo "n=$n" ;;
  esac
done
"#;

const PYTHON: &str = r#"
import sqlite3, sys, threading
db = sqlite3.connect("/srv/demo.db", isolation_level=None)
db.execute("create table t (n integer)")
db.execute("begin")
db.executemany("insert into t values (?)", [(n,) for n in range(1000)])
things = {"list": list(range(10000)), "text": "naive caf\u00e9"}
squares = (n * n for n in range(10**9)); next(squares); next(squares)
lock = threading.Lock(); lock.acquire()
for question in sys.stdin:
    question = question.strip()
    if question == "destroy":
        db.execute("rollback"); db.close(); things.clear(); squares.close(); lock.release()
        db = sqlite3.connect(":memory:"); answer = "destroyed"
    elif question == "state":
        try: rows = db.execute("select count(*), sum(n) from t").fetchone()
        except sqlite3.Error as error: rows = str(error)
        answer = f"rows {rows} in transaction {db.in_transaction} list {sum(things.get('list', []))} lock {lock.locked()}"
    elif question == "commit":
        import os
        db.execute("commit"); square = next(squares)
        rows = sqlite3.connect("/srv/demo.db").execute("select count(*) from t").fetchone()[0]
        answer = f"committed {rows} rows, square {square}"
    else:
        answer = "?"
    print(answer, flush=True)
"#;

const PARTS: [Part; 2] = [
    Part {
        name: "bash",
        what: "variables, an array, its directory",
        needs: &["bash", "-c", ":"],
        argv: &["bash", "-c", BASH],
        last_word: Some(("next", "n=8", "bash goes on counting")),
    },
    Part {
        name: "python",
        what: "objects, a generator, a held lock, an open SQLite transaction",
        needs: &["python3", "-c", "import sqlite3, threading"],
        argv: &["python3", "-u", "-c", PYTHON],
        last_word: Some((
            "commit",
            "committed 1000 rows, square 4",
            "python commits the transaction that was undone",
        )),
    },
];

impl Script {
    /// Lets it go on from where it was: what that proves, what was expected, what it said.
    pub(crate) fn drive_on(&mut self) -> Result<Option<(String, String, String)>> {
        let Some((question, expected, proves)) = self.last_word else {
            return Ok(None);
        };
        let said = self.program.ask(question)?;
        Ok(Some((proves.to_owned(), expected.to_owned(), said)))
    }
}

/// Starts those that this machine has, and says of the others why not.
pub(crate) fn start_all(private: &Private, sandbox: &str) -> Result<(Vec<Script>, Vec<String>)> {
    let mut client = private.connect()?;
    let (mut scripts, mut absent) = (Vec::new(), Vec::new());
    for part in PARTS {
        match asking::run(&mut client, sandbox, part.needs) {
            Ok((0, _)) => {}
            Ok((code, text)) => {
                let why = text.lines().last().unwrap_or_default();
                absent.push(format!("no {} part: it ended with {code} here {why}", part.name));
                continue;
            }
            Err(error) if error.is(api::Code::NotFound) || error.is(api::Code::Refused) => {
                absent.push(format!("no {} part: it is not on this machine", part.name));
                continue;
            }
            Err(error) => return Err(error),
        }
        let mut program = Program::start(private, sandbox, part.argv)?;
        program.ask("state")?;
        scripts.push(Script {
            name: part.name,
            what: part.what,
            program,
            last_word: part.last_word,
        });
    }
    Ok((scripts, absent))
}

/// Asks all the same.
pub(crate) fn ask_all(scripts: &mut [Script], question: &str) -> Result<Vec<String>> {
    scripts.iter_mut().map(|script| script.program.ask(question)).collect()
}
