"""A program that is told what to do in lines and answers in lines; its last words are a JSON object."""

import contextlib
import json
import queue
import subprocess
import threading
import time


class Program:
    """Its output is read by threads of ours, so that neither side waits for the other's pipe."""

    def __init__(self, arguments, environment):
        self.process = subprocess.Popen(arguments, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.lines = queue.Queue()
        self.errors = []
        self.result = None  # of its last words, a JSON object
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
        """The end of its orders."""
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()

    def hear(self, word, until):
        """The next line if it begins with `word`; None if the program ended (self.result has its last words, if any) or
        did not say anything in time (then it still runs)."""
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
        """Waits for its end. Return: its last words; None if there are none, or if it had to be killed."""
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
