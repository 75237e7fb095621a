"""Processes and what they have started."""

import contextlib
import pathlib


def with_children(pids):
    """These, and all that they have started, at any depth. One that is gone has started nothing."""
    found = list(pids)
    for pid in found:
        with contextlib.suppress(OSError):
            for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
                found += [child for child in map(int, path.read_text().split()) if child not in found]
    return found
