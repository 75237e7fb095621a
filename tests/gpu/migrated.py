#!/usr/bin/env python3
"""PyTorch programs that go to another device of the service, and back, at random moments compute what they compute
undisturbed, to the bit.

usage: migrated.py [--build BUILD] [--times N] [--seed SEED] [--devices LIST]

A training, a decoder in a CUDA graph, two processes that share tensors, which go together, and a program that only counts
its steps run once undisturbed. Then they run side by side, and each goes there and back N times (10) at random moments; beside some of them a program faults on either device,
and every fifth time a daemon is killed on the way. --devices: the service's key `devices` (default: 0,1 where there are
two GPUs, and 0,0 besides). Prints for each way its bytes and how long the order took, and the longest step of the program
that counts. Exit status: 1 if a checksum differs or a program or an order fails; 77 without a GPU or without PyTorch.
"""

import importlib.util
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
from matrix_systems import Frmps  # noqa: E402
from program import Program  # noqa: E402
from suspended_training import PATIENCE, STEPS, Failed, checksum, go, parser_of, result, start, wait_for_go  # noqa: E402
from systems import is_gpu_here  # noqa: E402

BEATS = 200000
# What an order says when a program, or one that shares with it, has come to its end meanwhile.
OVER = ("refuses: it ends", "has ended", "ends; try again", "begun or ceased to share")


def beat():
    """Small steps beside 2 GiB that nothing touches. The longest step is the program's pause."""
    import torch

    values = torch.ones(1 << 20, device="cuda")
    ballast = torch.arange(1 << 29, dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    wait_for_go()
    longest = 0
    for _ in range(BEATS):
        begin = time.monotonic()
        values.mul_(1.0001).remainder_(3)
        torch.cuda.synchronize()
        longest = max(longest, time.monotonic() - begin)
    print(f"longest step {1e3 * longest:.1f} ms", file=sys.stderr, flush=True)
    checksum([values, ballast])


class Service(Frmps):
    """With several devices."""

    def up(self):
        super().up()
        if not self.log.wait(lambda: any("ready: 2 devices" in line for line in self.log.since(0)), time.monotonic() + 60):
            raise Failed("the service has not two devices")

    def order(self, *words):
        return subprocess.run([str(self.build / "server" / "frmpsctl"), "--socket", self.socket, *words], capture_output=True,
                              text=True)

    def place(self, program):
        """Return: (number of the device, the program's entry in its status); None: it has none, or both have it"""
        found = [(number, client) for number, status in enumerate(self.status()) for domain in status["domains"]
                 for client in domain["clients"] if client["pid"] == program.pid]
        return found[0] if len(found) == 1 else None


def begin(system, name):
    if name != "beat":
        return start(system, name)
    program = Program([sys.executable, "-B", __file__, "--program", name], system.environment("fail"))
    if not program.hear("ready", time.monotonic() + PATIENCE):
        raise Failed(f"{name} does not start: {''.join(program.errors)[-2000:]}")
    return program


def kill_a_daemon(system):
    position = system.log.position()
    os.kill(random.choice(system.status())["pid"], signal.SIGKILL)
    if not system.log.wait(lambda: any("the daemon is back" in line for line in system.log.since(position)),
                           time.monotonic() + PATIENCE):
        raise Failed("the daemon does not come back")


def settled(system, program):
    until = time.monotonic() + PATIENCE
    while not (place := system.place(program)):
        if time.monotonic() > until or program.process.poll() is not None:
            raise Failed("a program is on no device, or on both")
        time.sleep(0.01)
    return place


def disturb(system, name, program, number):
    """Return: whether it went to the other device"""
    if program.process.poll() is not None or not system.place(program):
        return False
    here, client = system.place(program)
    culprit = start(system, "fault") if number % 4 == 1 else None
    begin_s = time.monotonic()
    order = subprocess.Popen([str(system.build / "server" / "frmpsctl"), "--socket", system.socket, "migrate",
                              str(client["session"]), str(1 - here)], stderr=subprocess.PIPE, text=True)
    if number % 5 == 4:
        time.sleep(random.random() * 0.5)
        kill_a_daemon(system)
    _, text = order.communicate(timeout=PATIENCE)
    took = time.monotonic() - begin_s
    if culprit:
        culprit.end(time.monotonic() + PATIENCE)
        culprit.close()
    if program.process.poll() is not None or any(part in text for part in OVER):
        return False
    there, _ = settled(system, program)
    if order.returncode and number % 5 != 4:
        raise Failed(f"{name} does not go to device {1 - here}: {text.strip()}")
    print(f"      {name}: {client['memory_bytes'] >> 20} MiB, device {here} to {there}, {took:.3f} s", flush=True)
    return there != here


def play(system, times):
    names = [*STEPS, "beat"]
    expected = {name: result(name, begin(system, name)) for name in names}
    programs = {name: begin(system, name) for name in names}
    go(programs)
    done = dict.fromkeys(names, 0)
    for number in range(2 * times):
        for name, program in programs.items():
            time.sleep(random.random() * 0.3)
            done[name] += disturb(system, name, program, number)
    for name, program in programs.items():
        if result(name, program) != expected[name]:
            raise Failed(f"{name} has computed something else than undisturbed")
        if not done[name]:
            raise Failed(f"{name} was over before anything happened")
        print(f"ok    {name}: {done[name]} ways")
    print("     ", "".join(programs["beat"].errors).strip().splitlines()[-1])
    for line in system.log.since(0):
        if "is on the device again" in line or "goes on on device" in line:
            print("     ", line.split("info: ")[-1].strip())


def has_two_gpus():
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return done.stdout.count("GPU ") > 1


def main():
    parser = parser_of(__doc__, 10, 11)
    parser.add_argument("--devices", action="append")
    parser.add_argument("--program", choices=("beat",))
    options = parser.parse_args()
    if options.program:
        return beat()
    if not is_gpu_here() or not importlib.util.find_spec("torch"):
        print("no GPU, or no PyTorch")
        return 77
    random.seed(options.seed)
    for devices in options.devices or ["0,0", *(["0,1"] if has_two_gpus() else [])]:
        print(f"devices = {devices}")
        system = Service(options.build.resolve(), {}, "cuda", devices=devices)
        try:
            system.up()
            play(system, options.times)
        except Failed as problem:
            print(f"FAIL  {problem}")
            print("\n".join(system.log.since(0)[-20:]) if system.log else "")
            return 1
        finally:
            system.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
