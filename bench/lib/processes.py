"""Processes and their descendants."""

import contextlib
import pathlib


def with_children(pids):
    """These processes and their descendants, at any depth. A process that has ended has none."""
    found = list(pids)
    for pid in found:
        with contextlib.suppress(OSError):
            for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                found += [child for child in map(int, path.read_text().split()) if child not in found]
    return found
