"""Measurements of scenarios: programs of the build folder, started under a system, that print their results.

A measurement is a generator: for a session and the wanted points it yields (point, values), or (point,
Failed). Values are numbers by name: a number, or the summary of a distribution as a program printed it ("median",
"p99", …). values["detail"] has data for the report that are no numbers.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from program import Program

BENCH = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 120  # seconds that a program may take to get ready, or to end
AHEAD_NS = 100_000_000  # a common start is announced so long ahead
WORKLOAD = [sys.executable, "-B", str(BENCH / "workload.py")]
LAST_LINES = 6
RANKS = 2  # GPUs of a program that needs several


class Failed(RuntimeError):
    """A failed measurement, with the last lines of the failed program."""


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def last_lines(text):
    return "\n".join(text.strip().splitlines()[-LAST_LINES:])


class Child:
    """A program that prints JSON lines. For a common start it prints {"name": "ready"} and reads the time."""

    def __init__(self, command, environment):
        self.name = " ".join([pathlib.Path(command[0]).name, *command[1:]])
        self.said = b""
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE)

    def expect_ready(self, until):
        while b"\n" not in self.said:
            poll = select.poll()
            poll.register(self.process.stdout, select.POLLIN)
            if not poll.poll(max(0, until - time.monotonic()) * 1000):
                raise Failed(f"{self.name}: not ready after {PATIENCE} s")
            piece = os.read(self.process.stdout.fileno(), 65536)
            if not piece:
                self.finish()
                raise Failed(f"{self.name} ended before it was ready")
            self.said += piece

    def begin(self, moment_ns):
        with contextlib.suppress(OSError):
            self.process.stdin.write(b"%d\n" % moment_ns)
            self.process.stdin.flush()

    def finish(self, also=()):
        """Waits for the program's end. @also: exit statuses that are no failure

        Return: its JSON lines by name, the last of each."""
        try:
            out, err = self.process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired as late:
            self.close()
            raise Failed(f"{self.name}: no end after {PATIENCE} s") from late
        text = (self.said + out).decode(errors="replace")
        status = self.process.returncode
        if status and status not in also:
            raise Failed(last_lines(f"{self.name} ended with {status}\n{err.decode(errors='replace')}"))
        values = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        return {value["name"]: value for value in values}

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


class Session:
    """A scenario under a system; all its processes have ended when the context ends."""

    def __init__(self, system, quick=False, image=None):
        """@image: a module of many kernels, or None"""
        self.system, self.quick, self.image = system, quick, image
        self.children = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.close()

    def start(self, program, *arguments, background=False, called=None, settings=None, **variables):
        """@background: the system may lower the program's priority; called: the program's name; settings: more of its
        environment"""
        environment = {**self.system.environment(background), **(settings or {})}
        environment.update({f"FRMPS_BENCH_{name}": str(value) for name, value in variables.items()})
        command = [str(self.system.executable(program, called)), *map(str, arguments)]
        self.children.append(Child(command, environment))
        return self.children[-1]

    @staticmethod
    def together(children, later=None):
        """Starts programs at the same time. @later: ns of a later start, by child. Return: the start time, ns."""
        until = time.monotonic() + PATIENCE
        for child in children:
            child.expect_ready(until)
        begin = now_ns() + AHEAD_NS
        for child in children:
            child.begin(begin + (later or {}).get(child, 0))
        return begin


def point_by_point(measure):
    """Makes a measurement of a function of a session and a point that returns values."""

    def measure_all(session, points):
        for point in points:
            try:
                yield point, measure(session, point)
            except (Failed, OSError, ValueError, KeyError) as problem:
                yield point, Failed(str(problem))

    return measure_all


# Programs of bench/.


def summaries(program, *arguments, **variables):
    """A program that prints summaries; each is a number."""

    @point_by_point
    def measure(session, _):
        return dict(session.start(program, *arguments, **variables).finish())

    return measure


@point_by_point
def first_kernel(session, _):
    found = session.start("driver_path", "first", START_NS=now_ns()).finish()["first_kernel"]
    return {"first_kernel_ms": found["ms"]}


def copies(session, points):
    """A single program copies all sizes; points are bytes."""
    try:
        found = session.start("driver_path", "copies").finish()
    except Failed as problem:
        yield from ((point, problem) for point in points)
        return
    for point in points:
        yield point, {name: found[f"copy_{name}_{point}"] for name in
                      ("pinned_htod", "pinned_dtoh", "pageable_htod", "pageable_dtoh")}


@point_by_point
def launching_clients(session, count):
    """So many programs launch for the same time."""
    seconds = 1 if session.quick else 2 if count <= 32 else 4
    children = [session.start("driver_path", "rate-for", SECONDS=seconds) for _ in range(count)]
    begin = session.together(children)
    time.sleep(max(0, begin - now_ns()) / 1e9)
    cpu = session.system.service_cpu()
    found = [child.finish()["rate_for"] for child in children]
    cpu = session.system.service_cpu() - cpu
    late = max(one["late_seconds"] for one in found)
    if late > 0.15 * seconds:
        raise Failed(f"a program began {late:.2f} s late: they did not all launch at the same time")
    launches = [one["launches"] / one["seconds"] for one in found]
    total = sum(one["launches"] for one in found)
    return {"rate_k": sum(launches) / 1000, "evenness": min(launches) / max(launches) if max(launches) else 0.0,
            "cpu_us": (sum(one["cpu_seconds"] for one in found) + cpu) / total * 1e6}


@point_by_point
def idle_clients(session, count):
    """A single program works; the others are connected, have a context and do nothing."""
    others = [session.start("driver_path", "rate-for", SECONDS=0) for _ in range(count - 1)]
    until = time.monotonic() + PATIENCE
    for child in others:
        child.expect_ready(until)
    found = session.start("driver_path", "wait", WAITS=5000).finish()
    session.together(others)
    for child in others:
        child.finish()
    return {"launch_and_wait": found["launch_and_wait"]}


@point_by_point
def idle_service(session, count):
    """Processor time of the service while so many programs are connected and do nothing, percent of a processor."""
    children = [session.start("driver_path", "rate-for", SECONDS=0) for _ in range(count)]
    until = time.monotonic() + PATIENCE
    for child in children:
        child.expect_ready(until)
    time.sleep(0.5)
    before, begin = session.system.service_cpu(), time.monotonic()
    time.sleep(2)
    used, took = session.system.service_cpu() - before, time.monotonic() - begin
    session.together(children)
    for child in children:
        child.finish()
    return {"idle_cpu": used / took * 100}


def scale(kind):
    """@kind: the kind of objects, in scale.c's words"""

    @point_by_point
    def measure(session, count):
        found = session.start("scale", kind, count).finish(also=(3,))
        if "limit" in found:
            raise Failed(f"refused behind {found['limit']['made']} {kind} (error {found['limit']['code']})")
        return {name: value if name == "launch_and_wait" else value["us"] for name, value in found.items()}

    return measure


@point_by_point
def graphs(session, count):
    """Launches of a graph of so many nodes; some nodes are changed before each launch."""
    return session.start("graphs", count).finish()


@point_by_point
def loading(session, _):
    """A program with 1 ms kernels while another program loads a module and launches its kernel, ten times."""
    busy = session.start("driver_path", "gap", SECONDS=3)
    loader = session.start("driver_path", "loads", IMAGE=session.image, KERNEL="k7")
    session.together([busy, loader], {loader: 1_000_000_000})
    loads = loader.finish()
    gap = busy.finish()["gap"]
    return {"gap": gap, "gap_max": gap["max"], "load": loads["load"], "use": loads["use"]}


ENDLESS = 600_000  # ms: a kernel that ends with its program


@point_by_point
def loading_beside(session, kernel_ms):
    """A program loads a module, launches its kernel and unloads the module, three times, beside another's kernels.
    @kernel_ms: 0: alone; ENDLESS: the other program is killed afterwards"""
    loader = session.start("driver_path", "loads", IMAGE=session.image, KERNEL="k7", LOADS=3)
    children = [loader]
    if kernel_ms:
        children.append(session.start("driver_path", "gap", KERNEL_NS=kernel_ms * 1_000_000, SECONDS=max(2, kernel_ms / 1000)))
    session.together(children, {loader: 500_000_000})
    loads = loader.finish()
    for busy in children[1:]:
        if kernel_ms == ENDLESS:
            busy.close()
        else:
            busy.finish()
    return {"beside_load": loads["load"], "beside_use": loads["use"], "beside_release": loads["release"],
            "beside_worst": loads["load"]["max"] + loads["use"]["max"]}


@point_by_point
def urgent(session, _):
    """A program whose stream has the highest priority waits for small kernels beside one that fills the device."""
    flood = session.start("driver_path", "flood", SECONDS=4, background=True)
    patient = session.start("driver_path", "urgent", SECONDS=2.5, WAITS=20000)
    session.together([flood, patient], {patient: 500_000_000})
    waits = patient.finish()["launch_and_wait"]
    found = flood.finish()["flood"]
    return {"urgent": waits, "urgent_p99": waits["p99"], "flood_rate": found["kernels"] / found["seconds"]}


@point_by_point
def mix(session, count):
    """So many heavy programs at a time. Each checks all its results, so a program that ends was served exactly."""
    children = [session.start("mix", SEED=seed + 1, IMAGE=session.image, KERNEL="k7") for seed in range(count)]
    session.together(children)
    found = [child.finish()["mix"] for child in children]
    return {"mix_all": max(one["seconds"] for one in found),
            "mix_beyond": max(one["seconds"] - one["kernel_seconds"] for one in found)}


# Suspending.

SWAPS = 3  # out and in


def swap_gbps(session, verb, number, mib):
    """Return: the rate at which a program's memory goes or comes, GB/s, with all that frmpsctl takes"""
    begin = now_ns()
    session.system.order(verb, number)
    return mib * 2**20 / (now_ns() - begin)


def session_of(session, child):
    """Return: the number that frmpsctl knows a program by"""
    for domain in json.loads(session.system.order("status", "--json"))["domains"]:
        for client in domain["clients"]:
            if client["pid"] == child.process.pid:
                return str(client["session"])
    raise Failed("the service does not know the program")


def swap_times(session):
    """Return: what the threads that copied in the latest suspend spent their time with, percent, as the service says"""
    said = [event["text"] for event in json.loads(session.system.order("events", "--json"))["events"] if "is suspended" in event["text"]]
    times = [float(ms) for ms in re.search(r"pages (\d+) ms, device (\d+) ms, files (\d+) ms", said[-1]).groups()]
    return [100 * ms / max(1.0, sum(times)) for ms in times]


@point_by_point
def suspending(session, mib):
    """A program's device memory goes to host memory and comes back, beside another one's 1 ms kernels."""
    quiet = session.start("driver_path", "gap", SECONDS=2)
    session.together([quiet])
    alone = quiet.finish()["gap"]
    seconds = 4 + mib / 2000
    child = session.start("suspend", MIB=mib, PIECE_MIB=min(1024, mib // 2))
    busy = session.start("driver_path", "gap", SECONDS=seconds)
    session.together([child, busy])
    number = session_of(session, child)
    out, back = [], []
    for _ in range(SWAPS):
        out.append((swap_gbps(session, "suspend", number, mib), swap_times(session)))
        back.append(swap_gbps(session, "resume", number, mib))
    beside = busy.finish()["gap"]
    child.finish()
    out_gbps, times = max(out)
    return {"out_gbps": out_gbps, "in_gbps": max(back), "out_s": mib * 2**20 / 1e9 / out_gbps, "in_s": mib * 2**20 / 1e9 / max(back),
            "out_pages": times[0], "out_device": times[1], "out_files": times[2],
            "beside_gap": beside["max"], "alone_gap": alone["max"],
            "beside_loss": 100 * (1 - beside["n"] / seconds / (alone["n"] / 2))}


# Saving.


def criu_lack():
    """Return: why no program can be saved here; None if one can"""
    if os.geteuid() or not shutil.which("criu"):
        return "there is no criu, or it is not run by root"
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL,
                                                                   start_new_session=True) as sleeper:
        done = subprocess.run(["criu", "dump", "--tree", str(sleeper.pid), "--images-dir", folder, "--leave-running",
                               "--shell-job"], capture_output=True)
        sleeper.kill()
    return "criu cannot save a process here" if done.returncode else None


@point_by_point
def checkpoint(session, mib):
    """A program with 1 ms kernels is saved and goes on."""
    quiet = session.start("driver_path", "gap", SECONDS=2)
    session.together([quiet])
    alone = quiet.finish()["gap"]
    child = session.start("driver_path", "gap", SECONDS=5 + mib / 4000, MIB=mib)
    session.together([child])
    time.sleep(1)
    with tempfile.TemporaryDirectory() as folder:
        begin = now_ns()
        session.system.order("checkpoint", session_of(session, child), folder + "/saved")
        took = now_ns() - begin
    said = [event["text"] for event in json.loads(session.system.order("events", "--json"))["events"] if "has been saved" in event["text"]]
    return {"stall": child.finish()["gap"]["max"], "alone_gap": alone["max"],
            "stood": float(re.search(r"stood still for (\d+)", said[-1])[1]), "saved_s": took / 1e9}


class Parted:
    """A program whose input and output are files, so that it can end and be restored."""

    def __init__(self, command, environment, folder):
        self.output, orders = folder / "output", folder / "orders"
        os.mkfifo(orders)
        self.input = os.open(orders, os.O_RDWR)
        with orders.open("rb", buffering=0) as given, self.output.open("w") as output:
            self.process = subprocess.Popen(command, env=environment, stdin=given, stdout=output, stderr=subprocess.STDOUT,
                                            start_new_session=True)

    def say(self, line):
        os.write(self.input, line)

    def say_no_more(self):
        os.close(self.input)

    def hear(self, name):
        """Waits until the latest line has this name. Return: the line"""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            lines = self.output.read_text().splitlines()
            with contextlib.suppress(ValueError, IndexError, TypeError):
                if (said := json.loads(lines[-1]))["name"] == name:
                    return said
            time.sleep(0.001)
        raise Failed(f"the program does not say {name}: {self.output.read_text()[-1000:]}")


@point_by_point
def restoring(session, mib):
    """A program is saved and ends, and comes back from files in memory."""
    environment = {**session.system.environment(), "FRMPS_BENCH_MIB": str(mib), "FRMPS_BENCH_PIECE_MIB": str(min(1024, mib // 2))}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        child = Parted([str(session.system.executable("suspend"))], environment, pathlib.Path(name))
        child.hear("ready")
        child.say(b"0\n")
        session.system.order("checkpoint", session_of(session, child), name + "/saved", "--end")
        child.process.wait(timeout=PATIENCE)
        begin = now_ns()
        session.system.order("restore", name + "/saved")
        took = now_ns() - begin
        child.say(b"\n")
        child.hear("answer")
        answered = now_ns() - begin
        child.say_no_more()
        if child.hear("suspended")["mib"] != mib:
            raise Failed("the program has other memory than before")
    return {"restored_s": took / 1e9, "answered_s": answered / 1e9, "restored_gbps": mib * 2**20 / answered}


# Faults.

SURVIVOR_SECONDS = 1.5
WINDOW_MS = (50, 250)  # that the report shows, before and behind the fault
SHOWN = 4  # survivors, at most


def survivor_found(found, launched_ms, kernel_ms):
    """The result of a survivor. @found: the survivor's last line, or None without output"""
    if not found:
        return {"outcome": "no answer", "pause_ms": None, "before_ms": None, "ended_per_ms": []}
    first = max(0, int(launched_ms) - WINDOW_MS[0])
    behind = [ms for at, ms in found["gaps"] if at + ms > launched_ms]
    before = [ms for at, ms in found["gaps"] if at + ms <= launched_ms]
    went_on = found["outcome"] == "exact"
    return {"outcome": found["outcome"], "code": found["code"], "call": found["call"], "kernels": found["kernels"],
            "pause_ms": max(0.0, max(behind, default=0.0) - kernel_ms) if went_on else None,
            "before_ms": max(0.0, max(before, default=0.0) - kernel_ms), "from_ms": first - launched_ms,
            "ended_per_ms": found["ended_per_ms"][first:int(launched_ms) + WINDOW_MS[1]]}


def fault(kind, survivors, kernel_us=100):
    """A fault beside so many survivors. The point, if any, is the number of large modules that each has loaded."""

    @point_by_point
    def measure(session, modules):
        more = {"IMAGE": session.image, "KERNEL": "k7"} if modules else {}
        children = [session.start("fault", "survivor", "--kernel-us", kernel_us, "--modules", modules or 0,
                                  SECONDS=SURVIVOR_SECONDS, **more) for _ in range(survivors)]
        culprit = session.start("fault", "culprit", kind)
        session.together([*children, culprit])
        told = culprit.finish(also=(-signal.SIGKILL,))["culprit"]
        found = [survivor_found(answer(child), told["launched_ms"], kernel_us / 1000) for child in children]
        exact = [one for one in found if one["outcome"] == "exact"]
        for one in found[SHOWN:]:
            one.pop("ended_per_ms")
        values = {"survived": 100 * len(exact) / len(found), "quiet": max((one["before_ms"] or 0 for one in found)),
                  "detail": {"culprit": told, "survivors": found}}
        if len(exact) == len(found):
            values["pause"] = max(one["pause_ms"] for one in exact)
        if told["code"]:
            values["told"] = told["after_ms"]
        return values

    return measure


def answer(survivor):
    """The program's last line; None if it crashed or hangs."""
    try:
        return survivor.finish().get("survivor")
    except Failed:
        return None


# PyTorch.


def has_torch():
    return bool(importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision"))


def dismiss(programs):
    for program in programs:
        program.say_no_more()
    until = time.monotonic() + PATIENCE
    for program in programs:
        program.end(until)
        program.close()


def ask_all(programs, order, word):
    """Return: the answers, or an exception with the last lines of the first that gave none."""
    for program in programs:
        program.say(order)
    answers = [program.hear(word, time.monotonic() + PATIENCE) for program in programs]
    if not all(answers):
        raise Failed(f"{order}: " + last_lines("".join(programs[answers.index(None)].errors) or "no answer"))
    return answers


def torch_workload(session, programs, name):
    checksums = {line.split()[2] for line in ask_all(programs, f"prepare {name}", "ready")}
    cpu = session.system.service_cpu()
    answers = ask_all(programs, f"run {1 if session.quick else 2}", "ran")
    cpu = session.system.service_cpu() - cpu
    found = [json.loads(line[3:]) for line in answers]
    cpu += sum(one["cpu_seconds"] for one in found)
    return {"per_s": sum(one["items"] / one["seconds"] for one in found),
            "cpu_ms": cpu / sum(one["steps"] for one in found) * 1000, "detail": {"checksums": sorted(checksums)}}


def torch_programs(count):
    """So many programs at a time do workload after workload; points are the workloads' names."""

    def measure(session, points):
        programs = [Program(WORKLOAD, session.system.environment()) for _ in range(count)]
        try:
            for point in points:
                try:
                    yield point, torch_workload(session, programs, point)
                except Failed as problem:
                    yield point, problem
        finally:
            dismiss(programs)

    return measure


def device_mib():
    """Device memory in use by all processes, MiB."""
    found = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"],
                           capture_output=True, text=True, check=True)
    return int(found.stdout)


@point_by_point
def torch_memory(session, count):
    """Memory of programs. The system's own memory, of executor and standby for instance, is in use before them."""
    before = device_mib()
    programs = [Program(WORKLOAD, session.system.environment()) for _ in range(count)]
    try:
        ask_all(programs, "prepare resnet50_batch8", "ready")
        return {"memory_gib": device_mib() / 1024, "memory_more_gib": (device_mib() - before) / 1024}
    finally:
        dismiss(programs)


@point_by_point
def torch_first(session, _):
    environment = {**session.system.environment(), "FRMPS_BENCH_START_NS": str(time.monotonic_ns())}
    found = subprocess.run([*WORKLOAD, "--first"], env=environment, capture_output=True, text=True, timeout=PATIENCE)
    if found.returncode:
        raise Failed(last_lines(found.stderr))
    value = json.loads(found.stdout.splitlines()[-1])
    return {"torch_first_ms": value["ms"], "torch_first_after_import_ms": value["after_import_ms"]}


# Several GPUs: a rank of PyTorch on each of two.


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def ranks(session, *words):
    """Return: by name of what is measured, what each rank says"""
    port = free_port()
    for rank in range(RANKS):
        command = [sys.executable, "-B", str(BENCH / "ranks.py"), *map(str, (rank, RANKS, port, *words))]
        session.children.append(Child(command, session.system.environment()))
    found = [child.finish() for child in session.children[-RANKS:]]
    return {name: [one[name] for one in found] for name in found[0]}


def all_reduce(session, points):
    for name, found in ranks(session, "all_reduce", *points).items():
        slowest, mib = max(one["us"] for one in found), int(name.split()[0])
        yield mib, {"reduce_us": slowest, "reduce_gbps": (mib << 20) / slowest / 1000}


@point_by_point
def data_parallel(session, _):
    found = ranks(session, "training")["training"]
    return {"steps": 1e6 / max(one["us"] for one in found), "detail": {"checksums": sorted({one["checksum"] for one in found})}}
