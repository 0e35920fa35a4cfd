"""Starts anet as an ordinary user, on a host that gives the launcher namespaces of its own or does not.

    start.py own|without COMMAND...

`without`: the host refuses them to the guard and grants them to bubblewrap, as Ubuntu's policy does. No Debian kernel has that
policy, so the limit on user namespaces is 0 until the guard has gone on without, and usual again before bubblewrap asks.
"""

import subprocess
import sys

LIMIT = "/proc/sys/user/max_user_namespaces"
USER = 1000
ENVIRONMENT = {"HOME": "/home/tester", "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": f"/run/user/{USER}"}


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [name_of(child) for child in file.read().split()]
    except OSError:
        return []


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def start(mode, argv, **more):
    with open(LIMIT) as file:
        usual = file.read()
    if mode == "without":
        write(LIMIT, "0")
    try:
        guard = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, cwd="/", user=USER, group=USER, extra_groups=[], env=ENVIRONMENT, **more)
        while mode == "without" and "anet-launcher" not in children(guard.pid) and guard.poll() is None:
            pass
    finally:
        write(LIMIT, usual)
    return guard


if __name__ == "__main__":
    sys.exit(start(sys.argv[1], sys.argv[2:]).wait())
