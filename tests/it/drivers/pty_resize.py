"""pty_resize.py CMD...: run CMD under a 24x80 terminal, resize it to 50x120 once CMD says `start`, end with its output."""
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time


def resize(fd, lines, columns):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))


pid, fd = pty.fork()
if pid == 0:
    resize(0, 24, 80)
    os.execvp(sys.argv[1], sys.argv[1:])
seen, resized, limit = b"", False, time.time() + 20
while time.time() < limit:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    if b"start" in seen and not resized:
        resize(fd, 50, 120)
        resized = True
else:
    os.kill(pid, 9)
sys.stdout.write(seen.decode().replace("\r", ""))
os.waitpid(pid, 0)
