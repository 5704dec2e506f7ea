# //! An asyncio loop in epoll_wait: a timer that runs on with what was left, tasks half way, a pipe between them.
# // fault: skip:epoll
import asyncio
import os
import time

import workload
from workload import answer, begin, read_line, say, want, want_between

AFTER_S, WAITED_S = 1.8, 0.7
state = {}


async def count_to(name, stop):
    while state[name] < stop:
        await state["tokens"].get()
        state[name] += 1


async def echo(reader_fd):
    loop, arrived = asyncio.get_running_loop(), state["arrived"]
    loop.add_reader(reader_fd, lambda: arrived.append(os.read(reader_fd, 100)))


async def setup():
    loop = asyncio.get_running_loop()
    state.update(one=0, two=0, tokens=asyncio.Queue(), arrived=[], fired=None, timers=0)
    state["tasks"] = [asyncio.create_task(count_to(name, 100)) for name in ("one", "two")]
    state["ends"] = os.pipe()
    await echo(state["ends"][0])
    for _ in range(10):
        state["tokens"].put_nowait(None)
    await asyncio.sleep(0.02)
    state["began"] = time.monotonic()
    state["timer"] = loop.call_later(AFTER_S, fire)
    await asyncio.sleep(WAITED_S)


def fire():
    state["fired"] = time.monotonic()
    state["timers"] += 1


async def check():
    want("steps of both tasks", 10, state["one"] + state["two"])
    want("tasks that are done", [False, False], [task.done() for task in state["tasks"]])
    want("what came through the pipe", [], state["arrived"])
    os.write(state["ends"][1], b"hello")
    for _ in range(200):
        if state["arrived"]:
            break
        await asyncio.sleep(0.005)
    want("what came through the pipe once written", [b"hello"], state["arrived"])
    state["arrived"].clear()
    while state["fired"] is None and time.monotonic() < state["began"] + 6:
        await asyncio.sleep(0.01)
    want("times the timer fired", 1, state["timers"])
    # asyncio keeps deadlines, not remaining times: a clock that ran on over a rollback ends them sooner, never twice.
    took = (state["fired"] - state["began"]) * 1000
    want_between("milliseconds", AFTER_S * 1000 - 20, AFTER_S * 1000 + workload.undone_ms[1] + 400, took)


async def disturb(round):
    state["timer"].cancel()
    loop = asyncio.get_running_loop()
    for _ in range(5 * round):
        state["tokens"].put_nowait(None)
    os.write(state["ends"][1], b"noise")
    await asyncio.sleep(0.02)
    if round % 2:
        loop.remove_reader(state["ends"][0])
        state["tasks"][0].cancel()
    await asyncio.sleep(0.01)


async def main():
    """The protocol beside the loop: lines are read by a thread, answered in the loop."""
    begin()
    await setup()
    say("READY")
    loop = asyncio.get_running_loop()
    while (line := await loop.run_in_executor(None, read_line)) is not None:
        pending = []
        reply = answer(line, lambda: None, lambda round: pending.append(disturb(round)))
        if reply is None:
            break
        if reply == "OK":
            try:
                await check()
            except Exception as error:
                reply = f"FAIL {error!r}"
        for each in pending:
            await each
        say(reply)
    os._exit(0)


asyncio.run(main())
