# //! Node with a timer that ticks, one that is to fire, and a worker thread with a count of its own.
# // needs: python3 node
import time

from driver import Talk, find
from workload import run, want

SCRIPT = r"""
const { Worker } = require('worker_threads');
const worker = new Worker(`
  const { parentPort } = require('worker_threads');
  let total = 0;
  parentPort.on('message', (number) => { total += number; parentPort.postMessage(total); });
`, { eval: true });
let total = 0, ticks = 0, fired = 0;
setInterval(() => { ticks += 1; }, 10);
const cache = new Map();
worker.on('message', (theirs) => console.log([total, theirs, cache.size, fired, ticks].join(' ')));
require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
  const number = Number(line);
  total += number;
  if (number) cache.set(total, Buffer.alloc(10000, number));
  if (number < 0) setTimeout(() => { fired += 1; }, 30);
  worker.postMessage(number);
}).on('close', () => process.exit(0));
"""
state = {}


def ask(number):
    return [int(word) for word in state["node"].ask(str(number)).split()]


def setup():
    state["node"] = Talk(find("node"), "-e", SCRIPT, env={"UV_USE_IO_URING": "0"})
    for number in range(1, 21):
        ask(number)


def check():
    answer = ask(0)
    want("totals of both, entries, timers that fired", [210, 210, 20, 0], answer[:4])
    time.sleep(0.3)
    if ask(0)[4] <= answer[4]:
        raise AssertionError("the ticks stand still")


def disturb(round):
    for number in range(30, 30 + 10 * round):
        ask(number)
    ask(-5)
    while ask(0)[3] == 0:
        time.sleep(0.01)


run(setup, check, disturb)
