# Makes, changes and removes things. A thing is a file FOLDER/things/RESOURCE with its outputs in it. Every run is
# noted in FOLDER/ledger when it begins and when it ends, and shows that it lives in FOLDER/beats/RUN.
#
# Parameters: note (kept with the thing), takes and deleteTakes (seconds), breaks (fail, saying this), busy (exit 75
# so many times), secret (make up a password, a sensitive output), says (a line for the log), lines (so many of
# them), wide (each padded with so many letters), pin (carelessly logged, and put into what breaks says for PIN), stubborn (take no notice of SIGTERM),
# watched (can be looked at).
#
# The world can be against it: while FOLDER/held is there nothing ends (or nothing with the note in it), while
# FOLDER/broken is there nothing is made or changed, while FOLDER/jammed is there nothing goes; what these hold is the
# reason.
import json
import os
import signal
import sys
import time
import uuid

step = sys.argv[1]
order = json.load(sys.stdin)
asked = order["parameters"]
world = asked["world"]
resource = order["resource"]["id"]
thing = f"{world}/things/{resource}"
run = uuid.uuid4().hex

if step == "observe" and asked.get("watched"):
    found = None
    if os.path.exists(thing):
        with open(thing) as file:
            found = json.load(file)
    print(json.dumps({"exists": found is not None, "outputs": found or {}}))
    sys.exit(0)
if step in ("observe", "plan"):
    sys.exit(64)
if asked.get("stubborn"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def note(event):
    entry = {
        "event": event,
        "at": time.time(),
        "run": run,
        "step": step,
        "resource": resource,
        "note": asked.get("note", ""),
        "operation": order["operation"]["id"],
        "attempt": order["operation"]["attempt"],
    }
    if event == "begin":
        entry |= {"given": asked, "handed": order["dependencies"]}
    ledger = os.open(f"{world}/ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(ledger, (json.dumps(entry) + "\n").encode())
    os.close(ledger)


def beat():
    with open(f"{world}/beats/{run}.new", "w") as file:
        file.write(repr(time.time()))
    os.rename(file.name, f"{world}/beats/{run}")


def log(text):
    print(text, file=sys.stderr, flush=True)


def end(how, code, text=None):
    if text:
        log(text)
    note(how)
    sys.exit(code)


def trouble(name):
    try:
        with open(f"{world}/{name}") as file:
            return file.read()
    except FileNotFoundError:
        return None


note("begin")
log(f"{step} of {order['resource']['name']}")
if "says" in asked:
    log(f"somebody says: {asked['says']}")
if "pin" in asked:
    log(f"the pin is {asked['pin']}, do not tell")
for number in range(asked.get("lines", 0)):
    log(f"line {number}" + asked.get("wide", 0) * "w")
until = time.time() + float(asked.get("deleteTakes" if step == "delete" else "takes", 0))
beat()
while time.time() < until or trouble("held") in ("", asked.get("note", "-")):
    time.sleep(0.02)
    beat()

if step == "delete":
    if trouble("jammed"):
        end("failed", 1, trouble("jammed"))
    if os.path.exists(thing):
        os.remove(thing)
    note("done")
    print("{}")
    sys.exit(0)
if trouble("broken"):
    end("failed", 1, trouble("broken"))
if "breaks" in asked:
    end("failed", 1, asked["breaks"].replace("PIN", asked.get("pin", "PIN")))
if "busy" in asked:
    tries = os.path.getsize(f"{thing}.tries") if os.path.exists(f"{thing}.tries") else 0
    if tries < asked["busy"]:
        with open(f"{thing}.tries", "a") as file:
            file.write("x")
        end("busy", 75, "come back later")

outputs = {"place": thing, "note": asked.get("note", "")}
if asked.get("secret"):
    outputs["password"] = "hush" + uuid.uuid4().hex
with open(f"{world}/beats/{run}.thing", "w") as file:
    json.dump(outputs, file)
os.rename(file.name, thing)
note("done")
print(json.dumps({"outputs": outputs, "sensitive": ["password"] if asked.get("secret") else [], "externalId": thing}))
