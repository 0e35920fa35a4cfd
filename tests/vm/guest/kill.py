"""SBX-5 on a host of its own: no process of a run survives the death of any of anet's.

    kill.py own|without PROCESS WHEN    WHEN: "running", or milliseconds after the start

`own`: the launcher has namespaces of its own. `without`: the host refuses them to the guard and grants them to bubblewrap, as
Ubuntu's policy does. No Debian kernel has that policy, so the limit on user namespaces is 0 until the guard has gone on
without, and usual again before bubblewrap asks. Runs as root, the run as uid 1000. Prints what is left; nothing: status 0.
"""

import os
import signal
import subprocess
import sys
import time

LIMIT = "/proc/sys/user/max_user_namespaces"
USER = 1000
# Ignores what can be ignored, leaves its session, loses its parent.
NASTY = """trap '' TERM HUP INT
(setsid sleep 1001 &)
(setsid sh -c 'trap "" TERM HUP; sleep 1002; sleep 1003' &)
echo up
sleep 1004"""


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return file.read().split()
    except OSError:
        return []


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


def main(mode, target, when):
    before = set(processes())
    with open(LIMIT) as file:
        usual = file.read()
    if mode == "without":
        write(LIMIT, "0")
    try:
        guard = subprocess.Popen(
            ["anet", "run", "--", "sh", "-c", NASTY], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd="/", user=USER, group=USER, extra_groups=[],
            env={"HOME": "/home/tester", "PATH": "/usr/bin:/bin"})
        while mode == "without" and not children(guard.pid) and guard.poll() is None:
            pass
    finally:
        write(LIMIT, usual)
    if when == "running":
        line = guard.stdout.readline().decode()
        if line != "up\n":
            sys.exit(f"the run did not start: {line}")
        launcher = [first for name, first in processes().values() if name == "anet-launcher"]
        if launcher != [mode == "own"]:
            sys.exit(f"the launcher is process 1 of a namespace of its own: {launcher}, expected for {mode}")
    else:
        time.sleep(int(when) / 1000)
    # bwrap: the outer one, by its number
    victims = [pid for pid, (name, _) in sorted(processes().items()) if name == target and pid not in before]
    if victims:
        os.kill(victims[0], signal.SIGKILL)
    elif when == "running":
        sys.exit(f"there is no {target}")
    else:
        guard.kill()  # not there yet, or no more: whatever is has to go all the same
    for _ in range(100):
        left = {pid: name for pid, name in processes().items() if pid not in before}
        if not left:
            break
        time.sleep(0.1)
    for pid, (name, _) in left.items():
        print("left:", pid, name, flush=True)
        os.kill(pid, signal.SIGKILL)
    guard.wait()
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
