#!/usr/bin/env python3
"""What a result says of the machine that it was measured on (bench/lib/machine.py)."""

import importlib.metadata
import pathlib
import sys
import unittest
import unittest.mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "bench" / "lib"))
from machine import machine  # noqa: E402
from summary import machine_text  # noqa: E402


def installed(versions):
    def version(name):
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]
    return unittest.mock.patch("importlib.metadata.version", version)


class Machine(unittest.TestCase):
    def test_frameworks_have_their_versions(self):
        with installed({"torch": "2.1", "jax": "0.4"}):
            block = machine()
        self.assertEqual(block["frameworks"], "torch 2.1, jax 0.4")
        self.assertIn("; torch 2.1, jax 0.4; ", machine_text(block))

    def test_without_frameworks_nothing_is_said(self):
        with installed({}):
            block = machine()
        self.assertNotIn("frameworks", block)
        self.assertNotIn("; ;", machine_text(block))


if __name__ == "__main__":
    unittest.main()
