"""pty_send.py WORD BYTES CMD...: run CMD under a new terminal, send BYTES once it printed WORD, print all, exit with CMD's status."""
import os
import pty
import select
import sys
import time

word = sys.argv[1].encode()
data = sys.argv[2].encode().decode("unicode_escape").encode("latin1")
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[3], sys.argv[3:])
seen, sent, limit = b"", False, time.time() + 20
while time.time() < limit:
    if select.select([fd], [], [], 0.1)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        seen += more
    if word in seen and not sent:
        os.write(fd, data)
        sent = True
else:
    os.kill(pid, 9)
sys.stdout.write(seen.decode().replace("\r", ""))
status = os.waitpid(pid, 0)[1]
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
