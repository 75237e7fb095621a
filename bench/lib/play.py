"""The order of scenarios: rounds, alternating systems, a time limit, and continuing an earlier run.

A part is a group of scenarios in a round, under all systems; it is measured completely or not at all, so that the
systems are compared within minutes. Systems take turns (native, MPS, frmps, frmps, MPS, native, …): the drift
of a machine affects all. The result is a dictionary, and the file of a run after each part.
"""

import json
import os
import sys
import time

import scenarios as known
from machine import machine
from measure import Failed, Session, last_lines

FORMAT = 1


def new_result(command, backend, scale, rounds, names, systems, notes):
    return {"format": FORMAT, "command": command, "backend": backend, "scale": scale, "rounds": rounds, "names": names,
            "systems": systems, "notes": notes, "machines": [], "done": [], "missing": {}, "runs": []}


def in_turn(systems, number):
    return systems[::-1] if number % 2 else list(systems)


def parts(result):
    """All parts of a run, (round, group), in their order."""
    chosen = {known.BY_NAME[name].group for name in result["names"]}
    groups = [group.name for group in known.GROUPS if group.name in chosen]
    return [(number, group) for number in range(result["rounds"]) for group in groups]


def left(result):
    done = {tuple(part) for part in result["done"]}
    return [part for part in parts(result) if part not in done]


def save(path, result):
    """The file is always complete."""
    text = json.dumps(result, separators=(",", ":"), ensure_ascii=False)
    # A line for each run: the change of a run changes a single line.
    text = text.replace('{"scenario":', '\n{"scenario":')
    path.with_suffix(".tmp").write_text(text + "\n")
    os.replace(path.with_suffix(".tmp"), path)


class Progress:
    """A single line that is rewritten on a terminal, else a line for each measurement."""

    def __init__(self, total, stream=sys.stderr):
        self.total, self.stream, self.done = total, stream, 0
        self.begin = time.monotonic()
        self.is_terminal = stream.isatty()

    def say(self, text):
        passed = time.monotonic() - self.begin
        line = f"[{self.done:>{len(str(self.total))}}/{self.total}] {int(passed) // 60}:{int(passed) % 60:02}  {text}"
        if self.is_terminal:
            self.stream.write(f"\r\x1b[K{line[:os.get_terminal_size(self.stream.fileno()).columns - 1]}")
        else:
            self.stream.write(line + "\n")
        self.stream.flush()

    def step(self, count=1):
        self.done += count

    def end(self):
        if self.is_terminal:
            self.stream.write("\r\x1b[K")
            self.stream.flush()


class Player:
    """@systems: those of systems.py; limit: seconds from `begin` (of time.monotonic(); now) on, or None; image: that of
    Session"""

    def __init__(self, result, systems, path, limit=None, image=None, begin=None, progress=None):
        self.result, self.systems, self.path, self.limit, self.image = result, systems, path, limit, image
        self.took = {}  # seconds of each group, so far
        self.begin = time.monotonic() if begin is None else begin
        self.names = [name for name in result["names"] if name not in result["missing"]]
        self.progress = progress or Progress(sum(self.steps(group) for _, group in left(result)))
        self.machine = self.machine_index()

    def machine_index(self):
        block = machine()
        if block not in self.result["machines"]:
            self.result["machines"].append(block)
        return self.result["machines"].index(block)

    def of_group(self, group):
        return [known.BY_NAME[name] for name in self.names if known.BY_NAME[name].group == group]

    def points(self, scenario, system, scale=None):
        wanted = known.points(scenario, scale or self.result["scale"], self.result["backend"])
        return known.points_of(scenario, system.name, wanted)

    def steps(self, group):
        fresh = next(each.fresh for each in known.GROUPS if each.name == group)
        counts = [len(self.points(scenario, system)) for scenario in self.of_group(group) for system in self.systems]
        return sum(counts) if fresh else sum(map(bool, counts))

    def expected(self, group):
        """Seconds of the group's next part: as long as the last part, or, if a full round measures more than a quick
        one, as much longer."""
        quick = sum(len(self.points(scenario, system, "quick")) for scenario in known.BY_NAME.values()
                    if scenario.group == group.name for system in self.systems)
        this = sum(len(self.points(scenario, system)) for scenario in self.of_group(group.name)
                   for system in self.systems)
        return self.took.get(group.name, group.seconds * max(1, this / quick) if quick else group.seconds)

    def has_time(self, group):
        return self.limit is None or time.monotonic() - self.begin + self.expected(group) <= self.limit

    def play(self):
        """Return: True if all parts are done. An interrupt ends the run; finished parts count."""
        groups = {group.name: group for group in known.GROUPS}
        try:
            for number, name in left(self.result):
                if not self.has_time(groups[name]):
                    continue
                begin = time.monotonic()
                runs = self.part(number, groups[name])
                self.took[name] = time.monotonic() - begin
                self.result["runs"] += runs
                self.result["done"].append([number, name])
                save(self.path, self.result)
        except KeyboardInterrupt:
            self.progress.say("interrupted")
        self.progress.end()
        save(self.path, self.result)
        return not left(self.result)

    def part(self, number, group):
        runs = []
        for system in in_turn(self.systems, number):
            chosen = [(scenario, self.points(scenario, system)) for scenario in self.of_group(group.name)]
            chosen = [(scenario, points) for scenario, points in chosen if points]
            if group.fresh:
                lives = [[(scenario, (point,))] for scenario, points in chosen for point in points]
            else:
                lives = [chosen] if chosen else []
            for life in lives:
                while life:
                    found, life = self.life(number, system, life, group.devices)
                    runs += found
        return runs

    def life(self, number, system, chosen, devices):
        """Of one system: it serves scenarios, up to the first that fails, since what a failure leaves behind is not to
        be measured. @chosen: (scenario, points) of each

        Return: their runs, and what is left of @chosen."""
        runs, left_over = [], list(chosen)
        try:
            self.progress.say(f"round {number + 1}  {system.name} starts")
            with system.up(devices):
                while left_over and not any("failed" in run for run in runs):
                    scenario, points = left_over[0]
                    self.progress.say(f"round {number + 1}  {scenario.title}, {system.name}")
                    runs += self.scenario(number, system, scenario, points)
                    left_over.pop(0)
                    self.progress.step()
        except (RuntimeError, OSError) as problem:
            text = Failed(last_lines(f"{system.name}: {problem}"))
            runs += [self.run(number, system, scenario, point, text, 0)
                     for scenario, points in left_over for point in points]
            self.progress.step(len(left_over))
            left_over = []
        return runs, left_over

    def scenario(self, number, system, scenario, wanted):
        runs, begin = [], time.monotonic()
        with Session(system, self.result["scale"] == "quick", self.image) as session:
            try:
                for point, values in scenario.measure(session, wanted):
                    runs.append(self.run(number, system, scenario, point, values, time.monotonic() - begin))
                    begin = time.monotonic()
            except Exception as problem:  # pylint: disable=broad-except  # after any failure the others continue
                been = [run["point"] for run in runs]
                text = Failed(last_lines(f"{type(problem).__name__}: {problem}"))
                runs += [self.run(number, system, scenario, point, text, 0) for point in wanted if point not in been]
        return runs

    def run(self, number, system, scenario, point, values, seconds):
        run = {"scenario": scenario.name, "point": point, "system": system.name, "round": number,
               "machine": self.machine, "seconds": round(seconds, 2)}
        if isinstance(values, Failed):
            return {**run, "failed": str(values)}
        numbers = {number.name: values[number.name] for number in scenario.numbers if number.name in values}
        return {**run, "values": numbers, **({"detail": values["detail"]} if "detail" in values else {})}
