"""The protocol of workload.h for programs in Python: `run(setup, check, disturb)`. Reads standard input one byte at a
time, so that nothing waits in a buffer of ours when the state is taken."""

import os
import signal
import sys

undone_ms = (0, 0)  # how much of our time the last rollback undid, at least and at most


class Fail(Exception):
    """What, wanted, got."""


def want(what, wanted, got):
    if wanted != got:
        raise Fail(f"{what}: wanted {wanted!r}, got {got!r}")


def want_between(what, lo, hi, got):
    if not lo <= got <= hi:
        raise Fail(f"{what}: wanted {lo} to {hi}, got {got}")


def say(line):
    os.write(1, (line.replace("\n", "?")[:500] + "\n").encode("utf-8", "backslashreplace"))


def read_line():
    line = b""
    while True:
        byte = os.read(0, 1)
        if not byte:
            return None
        if byte == b"\n":
            return line.decode()
        line += byte


def answer(line, check, disturb):
    """One line of the protocol; the reply, or None for `quit`."""
    global undone_ms
    words = line.split()
    if words[0] == "check":
        undone_ms = tuple(int(word) for word in words[1:3]) or (0, 0)
        try:
            check()
        except Exception as error:  # a check that breaks has found something, too
            return f"FAIL {error!r}"
        return "OK"
    if words[0] == "disturb":
        disturb(int(words[1]))
        return "DISTURBED"
    return None


def begin():
    os.umask(0o022)
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def run(setup, check, disturb):
    begin()
    setup()
    say("READY")
    while (line := read_line()) is not None:
        reply = answer(line, check, disturb)
        if reply is None:
            break
        say(reply)
    os._exit(0)
