# //! A Python parent with a child that it talks to over pipes; the child's memory and the pipes' bytes go back together.
# // fault: skip:pages
import select
import subprocess
import sys

from workload import run, want

CHILD = """
import sys
total = 0
for line in sys.stdin:
    total += int(line)
    print(total, flush=True)
"""
state = {}


def tell(number):
    state["child"].stdin.write(f"{number}\n".encode())
    state["child"].stdin.flush()


def hear():
    ready, _, _ = select.select([state["child"].stdout], [], [], 5)
    return state["child"].stdout.readline() if ready else None


def setup():
    state["child"] = subprocess.Popen([sys.executable, "-uc", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    for number in range(10):
        tell(number)
        hear()
    tell(1000)  # its answer waits in the pipe
    select.select([state["child"].stdout], [], [])


def check():
    want("the child runs", None, state["child"].poll())
    want("the answer that waits", b"1045\n", hear())
    tell(0)
    want("the next answer", b"1045\n", hear())
    tell(0)  # for the next check
    select.select([state["child"].stdout], [], [])


def disturb(round):
    hear()
    for number in range(round):
        tell(7)
        hear()


run(setup, check, disturb)
