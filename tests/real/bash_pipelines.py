# //! A bash that answers with pipelines, and a bash loop beside it that counts into a file.
# // needs: python3 bash sed tr
import time

from driver import Talk, find
from workload import run, want

SCRIPT = r"""
mkfifo never
(
  exec 9<>never
  i=0
  while :; do
    i=$((i + 1))
    echo "$i" >> counted
    read -t 0.02 -u 9 || :
  done
) >/dev/null 0</dev/null &
loop=$!
trap 'kill $loop' EXIT
declare -A seen
total=0
while read -r word number; do
  case $word in
    add) total=$((total + number)); seen[$number]=$total ;;
    # It has waited for the pipeline before: a process that ends cannot come back yet.
    rest) echo resting; continue ;;
  esac
  echo "$total" >> totals
  echo "$total ${#seen[@]} $(seq "$total" | tail -n 2 | tr '\n' ,)" | sed 's/^/total /' | tr a-z A-Z
done
"""
state = {}


def setup():
    state["bash"] = Talk(find("bash"), "-c", SCRIPT)
    for number in range(1, 11):
        state["bash"].ask(f"add {number}")
    state["bash"].ask("rest")


def counted():
    with open("counted") as file:
        lines = file.read().split("\n")[:-1]
    want("lines of the loop, none lost, none twice", [str(i + 1) for i in range(len(lines))], lines)
    return len(lines)


def check():
    want("bash's answer", "TOTAL 55 10 54,55,", state["bash"].ask("tell"))
    with open("totals") as file:
        want("the file of totals", [sum(range(i + 1)) for i in range(1, 11)] + [55], [int(line) for line in file][:11])
    before = counted()
    time.sleep(0.5)
    if counted() <= before:
        raise AssertionError("the loop stands still")
    state["bash"].ask("rest")


def disturb(round):
    for number in range(20, 20 + 5 * round):
        state["bash"].ask(f"add {number}")
    with open("totals", "w") as file:
        file.write("gone\n" * round)
    time.sleep(0.1)


run(setup, check, disturb)
