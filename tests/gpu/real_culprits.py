#!/usr/bin/env python3
"""Culprits as people write them, natively and through the service: the same error and the same text, beside survivors.

usage: real_culprits.py [--build BUILD] [--only CASE,...] [--list] [--loop LOOP] [--out FILE.json]

The culprits are those of culprits.py (PyTorch, Triton, CuPy) and culprits.cu (CUDA C). Each runs natively twice, then
once through one service, beside a program with kernels of 100 us and a loop of PyTorch (framework_survivor.py). All
culprits are started ahead; they fault one after the other. Compared are
  code        what the driver answers afterwards
  text        what the program caught; where two native runs differ, without addresses and paths
  assertions  lines of standard error that name a failed assertion, without block and thread: the same texts, and at
              least one line. Which blocks print is another one in each run
  status      how the program ended
The endless kernel is ended by max_kernel_seconds; natively the script kills it, and nothing is compared. A survivor is
exact if no call failed and all its results are those of a run without faults. The pause is the longest time between two
results, less the ordinary time of the loop, from before the fault until further results have come.

A case whose framework is missing is skipped by name; without PyTorch and torchvision there is no loop. All cases take
some three minutes on a GPU machine with 16 processors; most of that is the start of PyTorch and the native run of the
loop. One case takes about a minute.

Exit status: 1 if any of these differs, if a survivor is not exact, if the log does not blame the culprit or blames
somebody else, or if an iteration of the loop that is done twice is not noticed; 77 without a GPU.
"""

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
import culprits  # noqa: E402
import framework_faults  # noqa: E402
import matrix  # noqa: E402
from framework_faults import LOOPS, PATIENCE  # noqa: E402
from matrix_systems import Broken, System  # noqa: E402
from program import Program  # noqa: E402
from stage import Stage, Survivor, main, make_parser, save, until, words  # noqa: E402

ENDLESS = "cuda-endless"
CUDA_CASES = ("cuda-recursion-many", "cuda-recursion-one", "cuda-null", "cuda-misaligned", ENDLESS)
CASES = (*culprits.CASES, *CUDA_CASES)
NATIVE_RUNS = 2
SMALL = "100us"  # the survivor of small kernels


def missing(name):
    """Return: the frameworks that a case needs and that are not installed."""
    needs = culprits.CASES[name][0].split() if name in culprits.CASES else []
    return [framework for framework in needs if not importlib.util.find_spec(framework)]


def start(system, name, programs):
    """@programs: what culprits.cu was built as"""
    command = [str(programs), name.removeprefix("cuda-")] if name in CUDA_CASES else \
        [sys.executable, "-B", str(HERE / "culprits.py"), name]
    return Program(command, system.environment("fail"))


def answer(program):
    """What a culprit caught; after its end."""
    result = program.result or {"code": None, "text": "".join(program.errors)[-500:]}
    lines = [re.sub(r"(block|thread): \[[^]]*\]", r"\1: [*]", line.strip()) for line in program.errors
             if re.search(r"Assertion .* failed", line)]
    return {**result, "assertions": {line: lines.count(line) for line in dict.fromkeys(lines)},
            "status": program.process.returncode}


def without_places(text):
    return re.sub(r"(/[\w.+-]+)+", "PATH", re.sub(r"0x[0-9a-fA-F]+", "ADDRESS", text))


def differences(natively, served):
    """Between what a culprit caught in native runs, and through the service. Return: the names of what differs."""
    found, texts = [], {one["text"] for one in natively}
    if served["code"] not in [one["code"] for one in natively]:
        found.append("code")
    as_compared = (lambda text: text) if len(texts) == 1 else without_places
    if as_compared(served["text"]) not in {as_compared(text) for text in texts}:
        found.append("text")
    known = {line for one in natively for line in one["assertions"]}
    if not set(served["assertions"]) <= known or bool(served["assertions"]) != bool(known):
        found.append("assertions")
    if served["status"] not in [one["status"] for one in natively]:
        found.append("status")
    return found


def native_answers(options, names, programs):
    """Return: of each case, what it caught in each of its native runs."""
    system, running, found = System(options.build, {}), {}, {}
    for name in names:
        running[name] = [start(system, name, programs) for _ in range(1 if name == ENDLESS else NATIVE_RUNS)]
    for name, runs in running.items():
        for program in runs:
            if not program.hear("ready", until(PATIENCE)):
                raise SystemExit(f"real_culprits.py: {name} does not start natively: {''.join(program.errors)[-2000:]}")
            program.say("go")
            if not program.hear("launched" if name == ENDLESS else "done", until(PATIENCE)):
                raise SystemExit(f"real_culprits.py: {name} does not end natively: {''.join(program.errors)[-2000:]}")
            if name == ENDLESS:
                program.kill()
    for name, runs in running.items():
        for program in runs:
            program.end(until(PATIENCE))
            program.close()
        found[name] = [answer(program) for program in runs if name != ENDLESS]
        if any(not one["code"] for one in found[name]):
            raise SystemExit(f"real_culprits.py: {name} does not fault natively: {found[name]}")
    system.down()
    return found


class Life(Stage):
    """Of one service, with the survivors and all culprits that are left."""

    def __init__(self, options, kernels, work):
        super().__init__(matrix.service(options, kernels), PATIENCE)
        self.options, self.work = options, work
        self.left, self.loops, self.bad = {}, [], []
        self.is_begun = False

    def gather(self):
        """Starts the survivors that are not there."""
        new = {}
        if SMALL not in self.survivors:
            new[SMALL] = Survivor(self.system.start(["survivor", "--kernel-us", "100"]), patience=PATIENCE)
        if self.options.loop and self.options.loop not in self.survivors:
            new[self.options.loop] = framework_faults.Loop(self.system, self.options.loop, self.work)
            self.loops.append(new[self.options.loop])
        self.enter(new)

    def begin(self, names):
        """Return: what is wrong with those culprits that do not start."""
        self.system.up()
        for name in names:
            self.left[name] = start(self.system, name, self.options.programs)
        self.gather()
        failed = {}
        for name, culprit in list(self.left.items()):
            if not culprit.hear("ready", until(PATIENCE)):
                self.left.pop(name).close()
                failed[name] = f"does not start: {''.join(culprit.errors)[-2000:]}"
        self.is_begun = True
        return failed

    def fault(self, name):
        """Return: what the culprit caught, and its process."""
        culprit = self.left.pop(name)
        try:
            culprit.say("go")
            culprit.end(until(PATIENCE))
        finally:
            culprit.close()
        return answer(culprit), culprit.pid

    def survived(self, found):
        """Adds what became of the survivors. Whether a loop is exact is known at the end of all."""
        more = self.measured()
        found["pauses_ms"] = {name: measured[0] if measured else None for name, measured in more.items()}
        found["survivors"] = {name: "went on" for name in more}
        if more[SMALL]:
            self.survivors[SMALL].program.say("check")
            more[SMALL] = self.survivors[SMALL].expect("checked")
            found["survivors"][SMALL] = "exact"
        for name in [name for name, answer in more.items() if not answer]:
            found[f"end of {name}"] = self.survivors.pop(name).end()
            found["survivors"][name] = found[f"end of {name}"]["outcome"]

    def play(self, name):
        self.gather()
        self.quiet(len(self.left))
        found = {"case": name}
        position = self.system.log.position()
        self.watch()
        loop = self.survivors.get(self.options.loop)
        found["served"], pid = self.fault(name)
        self.survived(found)
        found["run"], found["iterations"] = loop, loop.iterations() if loop else 0
        self.quiet(len(self.left))
        lines = self.system.log.since(position)
        blamed = self.system.blamed(lines)
        found["blamed"] = "somebody else" if blamed - {pid} else "culprit" if blamed else "nobody"
        found["crash"] = self.system.crash()
        found["log"] = lines
        return found

    def end(self):
        for culprit in self.left.values():
            culprit.close()
        small = self.leave().get(SMALL, {"outcome": "exact"})
        self.bad += [f"{SMALL} ends: {small}"] if small["outcome"] != "exact" else []
        self.system.down()


def one_line(answered):
    lines = answered["assertions"]
    text = " | ".join(line for line in answered["text"].splitlines() if line)
    return f"{answered['code']} {text} (status {answered['status']})" + \
        "".join(f"; {count} lines: {line}" for line, count in lines.items())


def judge(found, natively):
    """Adds what is wrong, and tells it."""
    found["natively"], bad = natively, []
    served = found["served"]
    found["differs"] = differences(natively, served) if natively else [] if served["code"] else ["code"]
    bad += [f"not as natively: {what}" for what in found["differs"]]
    bad += [f"blamed: {found['blamed']}"] if found["blamed"] != "culprit" else []
    bad += [f"{name} is {how}" for name, how in found["survivors"].items() if how not in ("exact", "went on")]
    bad += [found["crash"]] if found["crash"] else []
    found["bad"] = bad
    print(f"{found['case']}: " + ("; ".join(bad) if bad else "equal" if natively else "ended by the service"))
    for i, one in enumerate(natively):
        if not i or (one["code"], one["text"]) != (natively[0]["code"], natively[0]["text"]):
            print(f"  natively  {one_line(one)}")
    print(f"  served    {one_line(served)}")
    survivors = ", ".join(f"{name} {how}, pause " + ("-" if found["pauses_ms"][name] is None else
                                                    f"{found['pauses_ms'][name]:.1f} ms")
                          for name, how in found["survivors"].items())
    print(f"  blamed {found['blamed']}; {survivors}", flush=True)
    for line in found.pop("log") if bad else []:
        print("  | " + line)
    found.pop("log", None)


def play_all(options, kernels, natively, work):
    """Plays all cases; a service that did not do what every run needs is replaced.

    Return: what was found of each case, all runs of the loop, and what else is wrong."""
    found, loops, bad, left = [], [], [], list(natively)

    def fails(name, problem):
        found.append({"case": name, "bad": [problem]})
        print(f"{name}: {problem}", flush=True)
        left.remove(name)

    while left:
        life, name = Life(options, kernels, work), left[0]
        try:
            for name, problem in life.begin(left).items():
                fails(name, problem)
            for name in list(left):
                found.append(life.play(name))
                judge(found[-1], natively[name])
                left.remove(name)
        except Broken as problem:
            for name in [name] if life.is_begun else list(left):
                fails(name, str(problem))
        finally:
            life.end()
        loops += life.loops
        bad += life.bad
    return found, loops, bad


def judge_loops(options, kernels, found, loops, work):
    """What a native run without faults says of the loop. Return: what is wrong with that run, and with the loop."""
    options.loops = [options.loop]
    known, bad = framework_faults.references(options, kernels, loops, work)
    if bad:
        return bad
    reference, states = known[options.loop]
    for survivor in loops:
        survivor.judge(reference, states)
        if survivor.ending != "exact":
            bad.append(f"{options.loop} ends {survivor.ending}: {survivor.found()}")
    for one in found:
        if one.get("run") and one["survivors"][options.loop] == "went on":
            size = 8 * one["iterations"]
            same = one["run"].log.read_bytes()[:size] == reference[:size]
            one["survivors"][options.loop] = "exact" if same else "WRONG"
            bad += [] if same else [f"{one['case']}: {options.loop} is WRONG then, or was before"]
    return bad


def summary(found, natively):
    print(f"\n{'case':22}{'natively':>10}{'served':>8}  {'differs':24}{'blamed':15}survivors")
    for one in found:
        if "served" not in one:
            print(f"{one['case']:22}{'':20}{one['bad'][0].splitlines()[0]}")
            continue
        code = natively[one["case"]][0]["code"] if natively[one["case"]] else "-"
        survivors = ", ".join(f"{name} {how} " + ("" if one["pauses_ms"][name] is None else
                                                 f"({one['pauses_ms'][name]:.1f} ms)")
                              for name, how in one["survivors"].items())
        print(f"{one['case']:22}{code:>10}{one['served']['code'] or 'none':>8}  "
              f"{', '.join(one['differs']) or '-':24}{one['blamed']:15}{survivors}")


def run(options, work):
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    options.programs = pathlib.Path(work, "culprits")
    building = subprocess.Popen([nvcc, "-std=c++17", "-arch=sm_90", "-o", options.programs, HERE / "culprits.cu"])
    kernels = matrix.device_kernels(work)
    if building.wait():
        raise SystemExit("real_culprits.py: culprits.cu cannot be built")
    natively = native_answers(options, options.cases, options.programs)
    found, loops, bad = play_all(options, kernels, natively, work)
    bad += judge_loops(options, kernels, found, loops, work) if loops else []
    summary(found, natively)
    for line in bad:
        print("BAD: " + line)
    for one in found:
        one.pop("run", None)
    save(options.out, {"cases": found, "bad": bad})
    return not bad and not any(one["bad"] for one in found)


def arguments():
    parser = make_parser(__doc__)
    parser.add_argument("--only", type=words(CASES), default=list(CASES), metavar="CASE,...")
    parser.add_argument("--list", action="store_true", help="the names of the cases, and which frameworks they miss")
    parser.add_argument("--loop", choices=LOOPS, default="graph", help="of PyTorch, that survives (graph)")
    options = parser.parse_args()
    options.backend = "cuda"
    return options


def play_those_that_can(options):
    """Return: exit status"""
    lacks = {name: missing(name) for name in options.only}
    if options.list:
        for name, frameworks in lacks.items():
            print(name + (f" (no {', '.join(frameworks)})" if frameworks else ""))
        return 0
    options.cases = [name for name, frameworks in lacks.items() if not frameworks]
    for name, frameworks in lacks.items():
        if frameworks:
            print(f"skip  {name}: no {', '.join(frameworks)}")
    if not importlib.util.find_spec("torch") or not importlib.util.find_spec("torchvision"):
        print(f"skip  the loop {options.loop}: no PyTorch with torchvision")
        options.loop = None
    return main(lambda work: run(options, work))


if __name__ == "__main__":
    sys.exit(play_those_that_can(arguments()))
