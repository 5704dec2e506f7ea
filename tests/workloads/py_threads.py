# //! Python threads that wait on a queue, a lock, an event; ended and begun since.
# // fault: skip:threads
import queue
import threading

from workload import run, want

THREADS = 6
requests = [queue.Queue() for _ in range(THREADS)]
replies = queue.Queue()
threads = []


def serve(number):
    total = number * 1000
    while True:
        more = requests[number].get()
        if more is None:
            return
        total += more
        replies.put((number, total, threading.get_native_id()))


def ask(number, more):
    requests[number].put(more)
    return replies.get(timeout=5)


def setup():
    for number in range(THREADS):
        threads.append(threading.Thread(target=serve, args=(number,), daemon=True))
        threads[-1].start()
        ask(number, 1)


def check():
    want("threads", THREADS + 1, threading.active_count())
    for number in range(THREADS):
        want("a thread lives", True, threads[number].is_alive())
        want("total and id of a thread", (number, number * 1000 + 1, threads[number].native_id), ask(number, 0))
    want("replies that wait", 0, replies.qsize())


def disturb(round):
    for number in range(THREADS):
        if not threads[number].is_alive():
            continue
        if number % 2 == round % 2:
            requests[number].put(None)
            threads[number].join()
        else:
            ask(number, 100 * round)
    threading.Thread(target=threading.Event().wait, daemon=True).start()


run(setup, check, disturb)
