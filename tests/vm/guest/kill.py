"""SBX-5 on a host of its own: no process of a run survives the death of any of anet's.

    kill.py own|without PROCESS WHEN [STOPPED]

WHEN: "running", or milliseconds after the start. STOPPED: another process, which is stopped before. `own` and `without`: see
start.py. Prints what is left; nothing: status 0. With "nothing" for PROCESS nothing is killed, so everything has to be left.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time

from start import USER, start

# Ignores what can be ignored, leaves its session, loses its parent.
NASTY = """trap '' TERM HUP INT
(setsid sleep 1001 &)
(setsid sh -c 'trap "" TERM HUP; sleep 1002; sleep 1003' &)
echo up
sleep 1004"""
# How long what is to end may take, in seconds: the emulated processor is slow.
PATIENCE = 10


def processes():
    """pid -> (name, is it process 1 of a namespace), of the run's user."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/status") as file:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        except OSError:
            continue
        if status["Uid"].split("\t")[0] == str(USER) and status["State"][0] not in "ZX":
            found[int(pid)] = (status["Name"], status["NSpid"].split("\t")[-1] == "1")
    return found


def main(mode, target, when, stopped=None):
    before = set(processes())

    def ours():
        return {pid: name for pid, name in sorted(processes().items()) if pid not in before}

    def find(name):
        # Of the two bwraps the outer one, by its number.
        return next((pid for pid, (found, _) in ours().items() if found == name), None)

    guard = start(
        mode, ["anet", "run", "--", "sh", "-c", NASTY], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if when == "running":
        line = guard.stdout.readline().decode()
        while line.startswith("anet: warning: "):
            line = guard.stdout.readline().decode()
        if line != "up\n":
            sys.exit(f"the run did not start: {line}")
        launcher = [first for name, first in ours().values() if name == "anet-launcher"]
        if launcher != [mode == "own"]:
            sys.exit(f"the launcher is process 1 of a namespace of its own: {launcher}, expected for {mode}")
    else:
        time.sleep(int(when) / 1000)
    still = find(stopped) if stopped else None
    if still:
        os.kill(still, signal.SIGSTOP)
    victim = find(target)
    if victim:
        os.kill(victim, signal.SIGKILL)
    elif when == "running" and target != "nothing":
        sys.exit(f"there is no {target}")
    elif target != "nothing":
        guard.kill()  # not there yet, or no more: whatever is has to go all the same

    def left():
        # Who waits for a stopped process of anet's waits as long as it is stopped: the run must be gone all the same.
        return {
            pid: name for pid, name in ours().items()
            if not still or name[0] == "anet-init" or not name[0].startswith("anet")
        }

    deadline = time.monotonic() + (1 if target == "nothing" else PATIENCE)
    while left() and time.monotonic() < deadline:
        time.sleep(0.05)
    survivors = left()
    for pid, (name, _) in survivors.items():
        print("left:", pid, name, flush=True)
    for pid in ours():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    guard.wait()
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
