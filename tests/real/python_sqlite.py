# //! Python with threads, an asyncio loop and an SQLite transaction that is open: rows, locks, what others see.
# // needs: python3
import asyncio
import sqlite3
import threading
import time

from workload import run, want

state = {"thread": 0, "loop": 0}
lock = threading.Condition()


def tick_in_thread():
    while True:
        with lock:
            lock.wait(0.01)
            state["thread"] += 1


async def tick_in_loop():
    while True:
        await asyncio.sleep(0.01)
        state["loop"] += 1


def begin():
    state["database"].execute("BEGIN IMMEDIATE")
    state["database"].executemany("INSERT INTO rows VALUES (?, ?)", [(i, "open") for i in range(100, 110)])


def setup():
    state["database"] = sqlite3.connect("base.db", isolation_level=None, check_same_thread=False, timeout=0.2)
    state["database"].execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
    state["database"].execute("BEGIN")
    state["database"].executemany("INSERT INTO rows VALUES (?, ?)", [(i, "kept") for i in range(100)])
    state["database"].execute("COMMIT")
    begin()
    threading.Thread(target=tick_in_thread, daemon=True).start()
    threading.Thread(target=lambda: asyncio.run(tick_in_loop()), daemon=True).start()
    while state["thread"] < 2 or state["loop"] < 2:
        time.sleep(0.005)


def rows(database, text):
    return database.execute("SELECT count(*) FROM rows WHERE text = ?", (text,)).fetchone()[0]


def check():
    mine = state["database"]
    want("in a transaction", True, mine.in_transaction)
    want("rows, and open ones, as seen inside", (100, 10), (rows(mine, "kept"), rows(mine, "open")))
    other = sqlite3.connect("file:base.db?mode=rw", uri=True, isolation_level=None, timeout=0.1)
    want("rows, and open ones, as seen outside", (100, 0), (rows(other, "kept"), rows(other, "open")))
    other.close()
    before = dict(state)
    time.sleep(0.4)
    want("thread and loop tick on", (True, True), (state["thread"] > before["thread"], state["loop"] > before["loop"]))
    mine.execute("COMMIT")
    want("rows that came with the commit", 10, rows(mine, "open"))
    want("integrity", ("ok",), mine.execute("PRAGMA integrity_check").fetchone())
    mine.execute("DELETE FROM rows WHERE text = 'open'")
    begin()


def disturb(round):
    mine = state["database"]
    if round % 2:
        mine.execute("COMMIT")
        mine.execute("DELETE FROM rows WHERE number % 2 = 0")
    else:
        mine.execute("ROLLBACK")
        mine.execute("DROP TABLE rows")
        mine.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, text TEXT)")
        mine.execute("VACUUM")


run(setup, check, disturb)
