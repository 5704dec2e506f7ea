"""The program a bench rewinds: a Python with a heap, files, threads and children, that answers requests.

usage: agent.py HEAP_MB DIRTY_MB FILES FILE_KB PROCESSES THREADS DIR [IN OUT]
Sizes are totals over the tree, threads are per process. Requests come a line at a time on IN (standard input when not
given), answers go to OUT: "ping" -> "pong"; "dirty SEED" -> "ok" after every thread wrote new bytes to its share of
scattered pages and the files were rewritten; "hash" -> a hash of the heap of every process and of all files;
"dirty_first SEED", "hash_first": the same for the first process alone, which makes all the changes; "spawn N" -> "ok"
after N children were born that wait for ever; "children" -> how many children the first process has.
It knows nothing of checkpoints.
"""

import hashlib
import mmap
import os
import queue
import random
import signal
import sys
import threading

PAGE = 4096
heap_mb, dirty_mb, file_count, file_kb, process_count, thread_count = map(int, sys.argv[1:7])
directory = sys.argv[7]
heap_bytes = heap_mb * 1048576 // process_count // PAGE * PAGE
dirty_pages = dirty_mb * 256 // process_count


def file_name(index):
    return os.path.join(directory, f"file-{index}")


def read_line(source):
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(source, 256)
        if not got:
            os._exit(0)
        line += got
    return line


class Worker:
    """The heap of one process and the threads that write to it."""

    def __init__(self, index):
        self.index = index
        self.heap = mmap.mmap(-1, heap_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        for start in range(0, heap_bytes, 1048576):
            self.heap[start : start + 1048576] = os.urandom(min(1048576, heap_bytes - start))
        self.requests = [queue.SimpleQueue() for _ in range(1, thread_count)]
        self.done = queue.SimpleQueue()
        for number, requests in enumerate(self.requests, 1):
            threading.Thread(target=self.serve, args=(number, requests), daemon=True).start()

    def serve(self, number, requests):
        while True:
            self.dirty_share(number, requests.get())
            self.done.put(number)

    def dirty_share(self, number, work):
        seed, page_count = work
        where = random.Random(seed * 1000 + self.index)
        for i in range(page_count):
            start = where.randrange(heap_bytes // PAGE) * PAGE
            if i % thread_count == number:
                self.heap[start : start + PAGE] = os.urandom(PAGE)

    def dirty(self, seed, page_count=dirty_pages):
        for requests in self.requests:
            requests.put((seed, page_count))
        self.dirty_share(0, (seed, page_count))
        for _ in self.requests:
            self.done.get()

    def hash(self):
        return hashlib.sha256(self.heap).hexdigest()


def serve_child(index, source, target):
    worker = Worker(index)
    os.write(target, b"ready\n")
    while True:
        request = read_line(source).split()
        if request[0] == b"dirty":
            worker.dirty(int(request[1]))
        answer = worker.hash() if request[0] == b"hash" else "ok"
        os.write(target, answer.encode() + b"\n")


def rewrite_files():
    for index in range(file_count):
        with open(file_name(index), "wb") as file:
            file.write(os.urandom(file_kb * 1024))


def spawn(count):
    for _ in range(count):
        if os.fork() == 0:
            while True:
                signal.pause()


class Tree:
    """The first process, its children, and the files."""

    def __init__(self):
        os.makedirs(directory, exist_ok=True)
        self.children = []
        for index in range(1, process_count):
            to_child, from_child = os.pipe(), os.pipe()
            if os.fork() == 0:
                serve_child(index, to_child[0], from_child[1])
            self.children.append((to_child[1], from_child[0]))
        self.worker = Worker(0)
        rewrite_files()
        for _, source in self.children:
            read_line(source)

    def ask_children(self, line):
        for to_child, _ in self.children:
            os.write(to_child, line)

    def children_say(self):
        return [read_line(source) for _, source in self.children]

    def hash(self, theirs):
        total = hashlib.sha256(self.worker.hash().encode() + b"".join(theirs))
        for index in range(file_count):
            with open(file_name(index), "rb") as file:
                total.update(file.read())
        return total.hexdigest()

    def answer(self, line):
        request = line.split()
        name = request[0]
        if name == b"ping":
            return "pong"
        if name == b"spawn":
            spawn(int(request[1]))
        elif name == b"children":
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                return str(len(file.read().split()))
        elif name == b"hash_first":
            return self.hash([])
        elif name == b"dirty_first":
            self.worker.dirty(int(request[1]), dirty_pages * process_count)
            rewrite_files()
        elif name == b"hash":
            self.ask_children(line)
            return self.hash(self.children_say())
        elif name == b"dirty":
            self.ask_children(line)
            self.worker.dirty(int(request[1]))
            rewrite_files()
            self.children_say()
        else:
            return "unknown request"
        return "ok"


def main():
    tree = Tree()
    source, target = 0, 1
    if len(sys.argv) > 8:
        source, target = os.open(sys.argv[8], os.O_RDONLY), os.open(sys.argv[9], os.O_WRONLY)
    while True:
        os.write(target, tree.answer(read_line(source)).encode() + b"\n")


main()
