"""Print the terminal's size, then what it is at the first change of it."""
import os
import signal
import sys
import time


def size():
    s = os.get_terminal_size(0)
    return f"{s.lines}x{s.columns}"


def changed(*_):
    print("changed", size(), flush=True)
    sys.exit(0)


signal.signal(signal.SIGWINCH, changed)
print("start", size(), flush=True)
for _ in range(150):
    time.sleep(0.1)
sys.exit(1)
