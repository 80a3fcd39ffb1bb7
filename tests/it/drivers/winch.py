"""Print the terminal's size, then what it is at the first change of it."""
import os
import signal
import sys
import time

changes = []
signal.signal(signal.SIGWINCH, lambda *_: changes.append(1))


def size():
    s = os.get_terminal_size(0)
    return f"{s.lines}x{s.columns}"


print("start", size(), flush=True)
for _ in range(300):
    if changes and size() != "24x80":
        print("changed", size(), flush=True)
        sys.exit(0)
    time.sleep(0.05)
sys.exit(1)
