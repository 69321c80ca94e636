"""Runs a command and says what it cost: wall time, CPU time, memory.

CPU seconds are those of the whole process tree, from wait4. Memory is watched in
runs of its own, because looking at it costs the watched process time.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import threading
import time

INTERVAL_SECONDS = 0.05


@dataclasses.dataclass
class Cost:
    """One run. Memory is 0 unless it was watched; `report` is the program's own word."""

    wall_s: float
    cpu_s: float
    rss_mib: float
    pss_mib: float
    exit_code: int
    report: dict


def process_tree(pid):
    found, waiting = [], [pid]
    while waiting:
        at = waiting.pop()
        found.append(at)
        try:
            for task in os.listdir(f"/proc/{at}/task"):
                text = pathlib.Path(f"/proc/{at}/task/{task}/children").read_text()
                waiting += [int(child) for child in text.split()]
        except OSError:
            pass
    return found


def memory_mib(pid):
    """Resident and proportional set size, summed over the process tree."""
    sums = {"Rss:": 0, "Pss:": 0}
    for at in process_tree(pid):
        try:
            with open(f"/proc/{at}/smaps_rollup", encoding="ascii") as file:
                for line in file:
                    name, _, rest = line.partition(" ")
                    if name in sums:
                        sums[name] += int(rest.split()[0])
        except OSError:
            pass
    return sums["Rss:"] / 1024, sums["Pss:"] / 1024


def run(command, *, cwd=None, env=None, watch=False, report=None, allowed=(0,), cores=None):
    """Runs `command`. Its report is the JSON file `report`, or its last line of output.

    With `cores` it is held to so many of them.
    """
    if report is not None:
        pathlib.Path(report).unlink(missing_ok=True)
    peak = [0.0, 0.0]
    ended = threading.Event()

    def watcher(pid):
        while not ended.is_set():
            for at, value in enumerate(memory_mib(pid)):
                peak[at] = max(peak[at], value)
            ended.wait(INTERVAL_SECONDS)

    started = time.perf_counter()
    if cores is not None:
        command = ["taskset", "--cpu-list", f"0-{cores - 1}", *command]
    process = subprocess.Popen(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    errors = []
    drain = threading.Thread(target=lambda: errors.append(process.stderr.read()))
    drain.start()
    thread = threading.Thread(target=watcher, args=(process.pid,))
    if watch:
        thread.start()
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    drain.join()
    if watch:
        thread.join()
    if process.returncode not in allowed:
        text = errors[0].decode(errors="replace")[-4000:]
        raise SystemExit(f"bench: exit code {process.returncode}: {' '.join(command)}\n{text}")
    said = {}
    if report is not None:
        said = json.loads(pathlib.Path(report).read_text())
    else:
        lines = output.decode(errors="replace").strip().splitlines()
        if lines and lines[-1].startswith("{"):
            said = json.loads(lines[-1])
    return Cost(wall, usage.ru_utime + usage.ru_stime, peak[0], peak[1], process.returncode, said)
