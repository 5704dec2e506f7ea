"""A real program at the other end of two pipes: one line there, one line back."""

import os
import select
import shutil
import subprocess

from workload import say


def find(*names):
    """The first of these programs that is here; ends with SKIP when none is."""
    for name in names:
        # Not from PATH: a shim of the developer's is not what a box has.
        found = shutil.which(name, path="/usr/bin:/bin")
        if found:
            return found
    say(f"SKIP no {' or '.join(names)} here")
    os._exit(0)


class Talk:
    """Ends with us: its input does."""

    def __init__(self, *argv, env=None):
        everything = dict(os.environ, **(env or {}))
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, env=everything)

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    def hear(self, seconds=10):
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            byte = os.read(self.process.stdout.fileno(), 1) if ready else b""
            if not byte:
                return f"nothing after {line!r}"
            line += byte
        return line.decode().rstrip("\n")

    def ask(self, line):
        self.tell(line)
        return self.hear()
