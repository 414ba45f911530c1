# What somebody would try who has written a template and wants more than it gives. `tries` says what; whatever is
# achieved is an output.
import ctypes
import glob
import json
import os
import platform
import signal
import socket
import sys
import time

step = sys.argv[1]
asked = json.load(sys.stdin)["parameters"]
if step in ("observe", "plan"):
    sys.exit(64)
if step == "delete":
    print("{}")
    sys.exit(0)
achieved = []


def attempt(name, deed):
    try:
        if deed():
            achieved.append(name)
    except (OSError, ValueError) as error:
        print(f"{name}: {error}", file=sys.stderr, flush=True)


def read(path):
    return bool(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))


def environments():
    return [e for e in glob.glob("/proc/[0-9]*/environ") if readable(e) and b"CONDUCTOR_" in open(e, "rb").read()]


def readable(path):
    try:
        return bool(open(path, "rb").read(1))
    except OSError:
        return False


def connect(port):
    return socket.create_connection(("127.0.0.1", port), 2)


def trace(pid):
    number = {"x86_64": 101, "aarch64": 117}[platform.machine()]
    attach = 16
    return ctypes.CDLL(None).syscall(number, attach, pid, 0, 0) == 0


def survive():
    """A child of a child in a session of its own, deaf to every polite word."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            os.closerange(0, 3)
            while True:
                with open(asked["beats"], "a") as file:
                    file.write("x")
                time.sleep(0.02)
        os._exit(0)


def reach():
    for path in asked["secrets"]:
        attempt(f"read {path}", lambda: read(path))
    for path in glob.glob(asked["others"]):
        attempt(f"saw {path}", lambda: True)
    attempt("read environments", environments)
    attempt("planted a file", lambda: open(asked["plant"], "w"))
    attempt("connected", lambda: connect(asked["port"]))
    for pid in {os.getppid(), *asked["pids"]}:
        attempt(f"traced {pid}", lambda: trace(pid))
        attempt(f"killed {pid}", lambda: os.kill(pid, signal.SIGKILL) is None)
    survive()
    time.sleep(0.3)


def fork():
    made = 0
    while made < 1000:
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
        except OSError:
            print(f"held at {made}", file=sys.stderr, flush=True)
            os._exit(1)
        made += 1
    time.sleep(60)
    achieved.append("a thousand processes")


def allocate():
    kept = []
    while len(kept) < 2000:
        kept.append(os.urandom(1 << 20))
    achieved.append("two thousand megabytes")


def fill():
    for number in range(2000):
        with open(f"file-{number}", "wb") as file:
            file.write(bytes(1 << 20))
        time.sleep(0.01)
    achieved.append("two thousand megabytes on disk")


{"reach": reach, "fork": fork, "allocate": allocate, "fill": fill}[asked["tries"]]()
print(json.dumps({"outputs": {"achieved": achieved}}))
