"""The program a bench rewinds: a Python with a heap, files, threads and children, that answers requests.

usage: agent.py HEAP_MB DIRTY_MB FILES FILE_KB PROCESSES THREADS DIR [IN OUT]
Sizes are totals over the tree, threads are per process. Requests come a line at a time on IN (standard input when not
given), answers go to OUT: "ping" -> "pong"; "dirty SEED" -> "ok" after every thread wrote new bytes to its share of
scattered pages and the files were rewritten; "hash" -> a hash of the heap of every process and of all files.
It knows nothing of checkpoints.
"""

import hashlib
import mmap
import os
import queue
import random
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

    def dirty_share(self, number, seed):
        where = random.Random(seed * 1000 + self.index)
        for i in range(dirty_pages):
            start = where.randrange(heap_bytes // PAGE) * PAGE
            if i % thread_count == number:
                self.heap[start : start + PAGE] = os.urandom(PAGE)

    def dirty(self, seed):
        for requests in self.requests:
            requests.put(seed)
        self.dirty_share(0, seed)
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


def main():
    children = []
    for index in range(1, process_count):
        to_child, from_child = os.pipe(), os.pipe()
        if os.fork() == 0:
            serve_child(index, to_child[0], from_child[1])
        children.append((to_child[1], from_child[0]))
    worker = Worker(0)
    rewrite_files()
    for _, source in children:
        read_line(source)
    source, target = 0, 1
    if len(sys.argv) > 8:
        source, target = os.open(sys.argv[8], os.O_RDONLY), os.open(sys.argv[9], os.O_WRONLY)
    while True:
        line = read_line(source)
        request = line.split()
        answer = "pong"
        if request[0] != b"ping":
            for to_child, _ in children:
                os.write(to_child, line)
            if request[0] == b"dirty":
                worker.dirty(int(request[1]))
                rewrite_files()
                answers = ["ok"]
            else:
                answers = [worker.hash()]
            answers += [read_line(from_child).decode().strip() for _, from_child in children]
            answer = answers[0]
            if request[0] == b"hash":
                total = hashlib.sha256("".join(answers).encode())
                for index in range(file_count):
                    with open(file_name(index), "rb") as file:
                        total.update(file.read())
                answer = total.hexdigest()
        os.write(target, answer.encode() + b"\n")


main()
