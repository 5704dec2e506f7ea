# //! A Python heap: dicts, strings, cycles, generators half way, an object with a finalizer.
# // fault: skip:pages
import gc
import itertools

from workload import run, want

table, half_way, finalized = {}, None, []


class Node:
    def __init__(self, number):
        self.number, self.self = number, self

    def __del__(self):
        finalized.append(self.number)


def make(seed):
    return {f"key-{seed}-{i}": [i * seed, str(i) * (i % 50), {"in": (i, seed)}] for i in range(3000)}


def squares():
    for i in itertools.count():
        yield i * i


def setup():
    global half_way
    table.update(make(1))
    table["nodes"] = [Node(i) for i in range(50)]
    half_way = squares()
    for _ in range(7):
        next(half_way)


def check():
    global half_way
    nodes = table.pop("nodes")
    same = table == make(1)
    table["nodes"] = nodes
    want("the table is as made", True, same)
    want("nodes", list(range(50)), [node.number for node in nodes])
    want("nodes that point to themselves", True, all(node.self is node for node in nodes))
    want("finalized nodes", [], finalized)
    want("next of the generator", 49, next(half_way))
    half_way = squares()
    for _ in range(7):
        next(half_way)
    gc.collect()


def disturb(round):
    for key in list(table)[::2]:
        del table[key]
    table.update(make(10 + round))
    table["nodes"] = [Node(-i) for i in range(round)]
    gc.collect()
    for _ in range(round):
        next(half_way)


run(setup, check, disturb)
