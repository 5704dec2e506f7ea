# //! git in the middle of a rebase that has stopped at a conflict: it can be resolved and goes on to its end.
# // needs: python3 git
import os
import shutil
import subprocess

from driver import find
from workload import run, want

GIT = find("git")


def git(*argv, fine=(0,)):
    who = {"HOME": os.getcwd(), "GIT_CONFIG_NOSYSTEM": "1", "GIT_EDITOR": "true", "LC_ALL": "C"}
    for role in ("AUTHOR", "COMMITTER"):
        who |= {f"GIT_{role}_NAME": "A", f"GIT_{role}_EMAIL": "a@example.invalid", f"GIT_{role}_DATE": "1700000000 +0000"}
    done = subprocess.run([GIT, "-C", "tree", *argv], env=dict(os.environ, **who), capture_output=True, text=True)
    want(f"git {argv[0]} ends with one of {fine} ({done.stderr.strip()[:200]})", True, done.returncode in fine)
    return done.stdout.strip()


def commit(name, text, message):
    with open(f"tree/{name}", "w") as file:
        file.write(text)
    git("add", "-A")
    git("commit", "-qm", message)


def setup():
    os.mkdir("tree")
    git("init", "-q", "-b", "main")
    commit("file", "one\n", "base")
    git("checkout", "-qb", "topic")
    for i in range(3):
        commit(f"topic-{i}", f"{i}\n", f"topic {i}")
    commit("file", "one\nours\n", "conflicting")
    commit("last", "last\n", "last of topic")
    git("checkout", "-q", "main")
    commit("file", "one\ntheirs\n", "on main")
    git("checkout", "-q", "topic")
    git("rebase", "main", fine=(1,))


def check():
    want("a rebase is under way", True, os.path.isdir("tree/.git/rebase-merge"))
    want("the conflicting file", "UU file", git("status", "--porcelain"))
    with open("tree/file") as file:
        want("conflict marks", True, "<<<<<<<" in file.read())
    git("fsck", "--strict")
    with open("tree/file", "w") as file:
        file.write("one\ntheirs\nours\n")
    git("add", "file")
    git("rebase", "--continue")
    log = git("log", "--format=%s").split("\n")
    want("the log", ["last of topic", "conflicting", "topic 2", "topic 1", "topic 0", "on main", "base"], log)
    want("the tree is clean", "", git("status", "--porcelain"))


def disturb(round):
    if round % 2:
        git("rebase", "--abort")
        commit("file", "another\n", "another")
        git("gc", "-q", "--prune=now")
    else:
        shutil.rmtree("tree/.git")
        os.rename("tree", "gone")
        os.mkdir("tree")


run(setup, check, disturb)
