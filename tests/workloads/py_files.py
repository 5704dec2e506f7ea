# //! Python's buffered files: what is written and not flushed, what is read ahead, positions; the file on disk beside.
# // fault: skip:files.content
import os

from workload import run, want

files = {}


def line(number, seed):
    return f"line {number} of {seed}\n"


def setup():
    with open("read", "w") as made:
        made.writelines(line(i, 1) for i in range(2000))
    files["reading"] = open("read")
    for _ in range(100):
        files["reading"].readline()
    files["writing"] = open("written", "w")
    files["writing"].writelines(line(i, 2) for i in range(50))
    files["writing"].flush()
    files["writing"].write(line(50, 2))


def check():
    here = files["reading"].tell()
    want("the next line", line(100, 1), files["reading"].readline())
    files["reading"].seek(here)
    with open("written") as flushed:
        want("lines on disk", [line(i, 2) for i in range(50)], flushed.readlines())
    files["writing"].flush()
    with open("written") as flushed:
        want("lines after a flush", [line(i, 2) for i in range(51)], flushed.readlines())
    with open("read") as again:
        want("the file that is read", [line(i, 1) for i in range(2000)], again.readlines())
    want("files", ["read", "written"], sorted(os.listdir(".")))


def disturb(round):
    for _ in range(10 * round):
        files["reading"].readline()
    files["writing"].writelines(line(i, 30 + round) for i in range(500))
    files["writing"].close()
    with open("read", "r+") as other:
        other.write("changed" * round)
    if round % 2:
        os.rename("written", "elsewhere")
        files["writing"] = open("written", "w")
    else:
        files["writing"] = open("read", "a")


run(setup, check, disturb)
