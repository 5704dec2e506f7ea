"""The work that is timed on the host and in sandboxes: real programs on real files, the same everywhere.

usage: steady.py DIR [IN OUT]
Requests come a line at a time on IN (standard input when not given), answers go to OUT, each one line of JSON.
"prepare WORK" -> {"missing": [PROGRAM...], "input": HASH} after the input lies in DIR; "ready WORK" -> {} after what the
last run made is gone, which is not timed; "run WORK" -> {"ms": TIME}: the time of the programs alone, by the monotonic
clock, from before the first starts until the last was waited for; "look WORK" -> {"made": HASH} of what they made. An
answer {"error": TEXT} says what went wrong. It knows nothing of checkpoints.
"""

import glob
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time

ROOT = os.path.abspath(sys.argv[1])
PYTHON = sys.executable
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": ROOT,
    "LANG": "C.UTF-8",
    # Compilers write between their passes: here, so that it is the same file system everywhere.
    "TMPDIR": ROOT,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@example.invalid",
}


def path(*names):
    return os.path.join(ROOT, *names)


def read_line(source):
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(source, 256)
        if not got:
            os._exit(0)
        line += got
    return line.decode()


def call(argv, **more):
    with open(path("stderr"), "w+") as said:
        done = subprocess.run(argv, env=ENVIRONMENT, cwd="/", stdout=subprocess.DEVNULL, stderr=said, **more)
        if done.returncode != 0:
            said.seek(0)
            raise RuntimeError(f"{argv[0]}: exit {done.returncode}: {said.read()[-500:]}")


def hash_of(directory):
    """A hash of the names and contents of all files."""
    found = hashlib.sha256()
    for top, directories, files in os.walk(directory):
        directories.sort()
        for name in sorted(files):
            file = os.path.join(top, name)
            found.update(f"{os.path.relpath(file, directory)} {os.path.getsize(file)}\n".encode())
            with open(file, "rb") as opened:
                found.update(opened.read())
    return found.hexdigest()


def text_of(seed, lines):
    return "".join(f"line {line} of {seed}: {(seed * 7919 + line * 104729) % 1000003}\n" for line in range(lines))


class Compileall:
    """The `.py` of a part of the interpreter's own library, compiled by one process, twice over."""

    needs = []
    packages = ("asyncio", "collections", "concurrent", "email", "http", "importlib", "json", "logging")
    packages += ("multiprocessing", "unittest", "urllib", "xml")
    times = 2

    def prepare(self):
        library = sysconfig.get_paths()["stdlib"]
        only_sources = shutil.ignore_patterns("__pycache__", "test", "tests")
        os.mkdir(path("compileall"))
        for module in glob.glob(os.path.join(library, "*.py")):
            shutil.copy2(module, path("compileall"))
        for package in self.packages:
            shutil.copytree(os.path.join(library, package), path("compileall", package), ignore=only_sources)
        return hash_of(path("compileall"))

    def ready(self):
        for top, directories, _ in os.walk(path("compileall")):
            if "__pycache__" in directories:
                shutil.rmtree(os.path.join(top, "__pycache__"))
                directories.remove("__pycache__")

    def commands(self):
        # Without -s the compiled files would hold the name of this place, and not be the same everywhere.
        return [[PYTHON, "-m", "compileall", "-q", "-f", "-s", ROOT, path("compileall")]] * self.times

    def made(self):
        return hash_of(path("compileall"))


class Clone:
    """A repository of 3,000 files and 20 commits, cloned from this disk, five times over."""

    needs = ["git"]
    files, commits, times = 3000, 20, 5

    def prepare(self):
        stream = []
        for commit in range(self.commits):
            stream.append(f"commit refs/heads/main\ncommitter b <b@example.invalid> {1700000000 + commit} +0000\n")
            stream.append("data 6\nchange\n")
            for file in range(commit, self.files, 1 if commit == 0 else self.commits):
                text = text_of(file + commit, 10 + file % 60)
                stream.append(f"M 100644 inline d{file // 50}/f{file}.txt\ndata {len(text)}\n{text}")
        call(["git", "init", "-q", "--bare", "-b", "main", path("origin")])
        call(["git", "-C", path("origin"), "fast-import", "--quiet"], input="".join(stream).encode())
        refs = subprocess.run(["git", "-C", path("origin"), "rev-parse", "main"], env=ENVIRONMENT, capture_output=True)
        return refs.stdout.decode().strip()

    def ready(self):
        shutil.rmtree(path("clone"), ignore_errors=True)
        os.mkdir(path("clone"))

    def commands(self):
        return [["git", "clone", "-q", path("origin"), path("clone", str(number))] for number in range(self.times)]

    def made(self):
        trees = [os.path.join(path("clone"), tree) for tree in sorted(os.listdir(path("clone")))]
        for tree in trees:
            shutil.rmtree(os.path.join(tree, ".git"))
        return hash_of(path("clone"))


class Build:
    """24 files of C, each compiled by a gcc of its own, then linked."""

    needs = ["gcc"]
    files, functions = 24, 18

    def prepare(self):
        os.mkdir(path("build"))
        for file in range(self.files):
            text = ["#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"]
            for number in range(self.functions):
                salt = file * 101 + number * 13
                text.append(
                    f"struct row_{number} {{ int key; long sum; char name[{16 + number}]; }};\n"
                    f"static long work_{number}(struct row_{number} *rows, int count) {{\n"
                    f"    long sum = {salt};\n"
                    f"    for (int i = 0; i < count; i++) {{\n"
                    f'        snprintf(rows[i].name, sizeof rows[i].name, "r%d", i * {salt % 7 + 1});\n'
                    f"        rows[i].key = (int)strlen(rows[i].name) ^ (i << {number % 5});\n"
                    f"        switch (rows[i].key % 4) {{\n"
                    f"        case 0: sum += rows[i].key * {salt}; break;\n"
                    f"        case 1: sum ^= rows[i].key + i; break;\n"
                    f"        default: sum -= i / {number + 1}; break;\n"
                    f"        }}\n"
                    f"        rows[i].sum = sum;\n"
                    f"    }}\n    return sum;\n}}\n"
                )
            calls = "".join(
                f"    struct row_{n} *r{n} = calloc({n + 2}, sizeof *r{n});\n"
                f"    sum += work_{n}(r{n}, {n + 2}); free(r{n});\n"
                for n in range(self.functions)
            )
            text.append(f"long part_{file}(void) {{\n    long sum = 0;\n{calls}    return sum;\n}}\n")
            with open(path("build", f"part_{file}.c"), "w") as source:
                source.write("".join(text))
        declared = "".join(f"long part_{file}(void);\n" for file in range(self.files))
        summed = " + ".join(f"part_{file}()" for file in range(self.files))
        with open(path("build", "main.c"), "w") as source:
            source.write(f'#include <stdio.h>\n{declared}int main(void) {{ printf("%ld\\n", {summed}); }}\n')
        return hash_of(path("build"))

    def ready(self):
        for name in os.listdir(path("build")):
            if not name.endswith(".c"):
                os.remove(path("build", name))

    def commands(self):
        names = [f"part_{file}" for file in range(self.files)] + ["main"]
        objects = [path("build", f"{name}.o") for name in names]
        compile = [["gcc", "-O1", "-c", path("build", f"{name}.c"), "-o", path("build", f"{name}.o")] for name in names]
        return [*compile, ["gcc", *objects, "-o", path("build", "program")]]

    def made(self):
        return subprocess.run([path("build", "program")], env=ENVIRONMENT, capture_output=True, check=True).stdout.decode()


class Files:
    """5,000 empty files made in one directory, then deleted, five times over."""

    needs = []
    program = """
import os, sys
os.chdir(sys.argv[1])
names = [f"file-{number}" for number in range(5000)]
for time in range(5):
    for name in names: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    for name in names: os.unlink(name)
"""

    def prepare(self):
        os.mkdir(path("files"))
        return hashlib.sha256(self.program.encode()).hexdigest()

    def ready(self):
        pass

    def commands(self):
        return [[PYTHON, "-c", self.program, path("files")]]

    def made(self):
        return f"{len(os.listdir(path('files')))} left"


WORK = {"compileall": Compileall(), "git_clone": Clone(), "c_build": Build(), "files": Files()}


def answer(verb, work):
    if verb == "prepare":
        missing = [name for name in work.needs if shutil.which(name, path=ENVIRONMENT["PATH"]) is None]
        return {"missing": missing, "input": "" if missing else work.prepare()}
    if verb == "ready":
        work.ready()
        return {}
    if verb == "look":
        return {"made": work.made()}
    commands = work.commands()
    start = time.monotonic_ns()
    for argv in commands:
        call(argv)
    return {"ms": (time.monotonic_ns() - start) / 1e6}


def main():
    os.makedirs(ROOT, exist_ok=True)
    if len(sys.argv) > 3:
        source, target = os.open(sys.argv[2], os.O_RDONLY), os.open(sys.argv[3], os.O_WRONLY)
    else:
        source, target = 0, 1
    while True:
        verb, work = read_line(source).split()
        try:
            said = answer(verb, WORK[work])
        except Exception as error:
            said = {"error": f"{verb} {work}: {error!r}"}
        os.write(target, json.dumps(said).encode() + b"\n")


main()
