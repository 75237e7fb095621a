"""A program that reads commands and prints answers, line by line; its last line is a JSON object."""

import contextlib
import json
import queue
import subprocess
import threading
import time


class Program:
    """Threads of this process read its output, so that neither side waits for the other's pipe."""

    def __init__(self, arguments, environment):
        self.process = subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.lines = queue.Queue()
        self.errors = []
        self.result = None  # of the last line, a JSON object
        self.threads = [threading.Thread(target=self._read, daemon=True),
                        threading.Thread(target=self._read_errors, daemon=True)]
        for thread in self.threads:
            thread.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.strip())
        self.lines.put(None)

    def _read_errors(self):
        self.errors.extend(self.process.stderr)

    def say(self, text):
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(text + "\n")

    def say_no_more(self):
        """Ends the program's input."""
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()

    def hear(self, word, until):
        """The next line if it begins with `word`; None if the program ended (self.result has the last line, if any) or
        printed nothing in time (then it still runs)."""
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            if line is None:
                self.lines.put(None)
                return None
            if line.startswith("{"):
                self.result = json.loads(line)
            elif line.startswith(word):
                return line

    def end(self, until):
        """Waits for the program's end. Return: its last line; None without one, or if the program had to be killed."""
        self.hear("nothing else is said", until)
        try:
            self.process.wait(timeout=max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        return self.result

    def kill(self):
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.kill()
        for thread in self.threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(OSError):
                stream.close()
