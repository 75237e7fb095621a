#!/usr/bin/env python3
"""PyTorch programs whose device is drained and refilled at random moments compute what they compute undisturbed, to the bit.

usage: drained.py [--build BUILD] [--times N] [--seed SEED]

A training, a decoder in a CUDA graph, and two processes that share tensors run once undisturbed. Then they run side by
side, and the device is drained and refilled N times (12) at random moments. In between no process of the service has a file of the driver open, or is among
those that nvidia-smi lists, and every other time the daemon is killed. The programs are those of suspended_training.py.
Exit status: 1 if a checksum differs, a program or an order fails, or something is open; 77 without a GPU or without
PyTorch.
"""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "bench" / "lib"), str(HERE)]
from processes import with_children  # noqa: E402
from suspended_training import STEPS, Failed, disturbed, go, parser_of, result, start  # noqa: E402

PATIENCE = 60


def order(system, verb):
    """Return: seconds that it took"""
    begin = time.monotonic()
    done = subprocess.run([str(system.build / "server" / "frmpsctl"), "--socket", system.socket, verb],
                          capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{verb}: {done.stderr.strip()}")
    return time.monotonic() - begin


def opened(pid):
    """Files of the driver that a process has open or mapped."""
    files = set()
    with contextlib.suppress(OSError):
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                files.add(os.readlink(link))
        files |= {line.split()[-1] for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()}
    return sorted(file for file in files if file.startswith("/dev/nvidia"))


def listed():
    """Processes with a context, as far as nvidia-smi knows them by their numbers here."""
    done = subprocess.run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"], capture_output=True, text=True)
    return {int(line) for line in done.stdout.split() if line.isdigit()}


def expect_left(system):
    status = system.status()
    if status["device"]["state"] != "drained" or status["keeper"] or any(one["executors"] for one in status["domains"]):
        raise Failed(f"the device is {status['device']['state']}, and workers are there")
    pids = with_children([system.server.pid])
    for pid in pids:
        if opened(pid):
            raise Failed(f"process {pid} has {' '.join(opened(pid))}")
    if listed() & set(pids):
        raise Failed("nvidia-smi lists a process of the service")


def kill_daemon(system):
    position = system.log.position()
    os.kill(system.status()["pid"], signal.SIGKILL)
    if not system.log.wait(lambda: any("the daemon is back" in line for line in system.log.since(position)),
                           time.monotonic() + PATIENCE):
        raise Failed("the daemon does not come back")


def disturb(system, number):
    """Return: whether somebody was there to be disturbed"""
    clients = [client for domain in system.status()["domains"] for client in domain["clients"]]
    if not clients:
        return False
    out = order(system, "drain")
    expect_left(system)
    away = system.status()["swap"]
    if number % 2:
        kill_daemon(system)
        expect_left(system)
    back = order(system, "refill")
    print(f"      {len(clients)} programs, {(away['bytes'] + away['directory_bytes']) >> 20} MiB: drained in {out:.3f} s, "
          f"refilled in {back:.3f} s", flush=True)
    return True


def play(system, times):
    expected = {name: result(name, start(system, name)) for name in STEPS}
    programs = {name: start(system, name) for name in STEPS}
    go(programs)
    done = 0
    for number in range(times):
        time.sleep(random.random() * 0.5)
        done += disturb(system, number)
    for name, program in programs.items():
        if result(name, program) != expected[name]:
            raise Failed(f"{name} has computed something else than undisturbed")
    if not done:
        raise Failed("the programs were over before anything happened")
    print(f"ok    the device was drained {done} times beneath {', '.join(STEPS)}")
    # Nobody has it: drained and refilled all the same.
    order(system, "drain")
    expect_left(system)
    order(system, "refill")
    if result("decode", start(system, "decode")) != expected["decode"]:
        raise Failed("decode has computed something else after all")


def main():
    return disturbed(parser_of(__doc__, 12, 7).parse_args(), play)


if __name__ == "__main__":
    sys.exit(main())
