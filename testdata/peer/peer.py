#!/usr/bin/env python3
"""Another program that counts agents by the same slot files.

It follows the rules of the source decision record (D2, D3) and nothing of
ours: seven fields in a record, flock on <pool>/<index>.lock, one admission
lock in each pool, blocking, and no line of waiters. Tests run it side by side
with handsel on one directory (S6).

    peer.py DIR hold POOLS CAP -- CMD...   one agent: admit, start CMD in its own
                                           session, record it, wait, end its group,
                                           release; exits as CMD did
    peer.py DIR once POOLS CAP             admit, say where, release
    peer.py DIR count POOL                 one line of JSON: held, limit, holders
    peer.py DIR storm POOLS CAP N SECONDS LOG
                                           N workers that hold again and again;
                                           their children write LOG themselves:
                                           "S id ns pid peer" and "E ..." lines

POOLS is a list with commas; CAP is one number for all of them or a list of the
same length. Exit status 75: refused, with one line on stderr.

Variables: PEER_WAIT seconds to wait for a slot (600, once: 0), PEER_POLL
seconds between looks (2), PEER_ENGINE (peer), PEER_WORKLOAD (heavy),
PEER_CRASH percentage of holders in a storm that die without releasing (10),
PEER_HOLD longest life of a child in a storm, in seconds (0.05).

Only the standard library is used.
"""

import fcntl
import json
import os
import signal
import sys
import time

LONGEST = 64 * 1024  # a longer record is no record
READS = 25  # looks at a slot that is locked and has no record
TOLERANCE = 2.0  # seconds between two readings of one start
GRACE = 5.0  # seconds from TERM to KILL


class Refused(Exception):
    pass


class Full(Exception):
    """A pool has no room; unclear when a slot without a record is part of why."""

    def __init__(self, pool, cap, holders, unclear):
        super().__init__(pool)
        self.pool, self.cap, self.holders, self.unclear = pool, cap, holders, unclear


# Processes


def start_of(pid):
    """Seconds since the epoch as psutil computes them, None if unreadable."""
    try:
        state, ticks = stat_of(pid)
    except OSError:
        return None
    if state in "ZX":
        return None
    return boot_time() + ticks / os.sysconf("SC_CLK_TCK")


def stat_of(pid):
    with open(f"/proc/{pid}/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[19])


def boot_time():
    with open("/proc/stat", "rb") as f:
        for line in f:
            if line.startswith(b"btime "):
                return float(line.split()[1])
    raise OSError("no btime in /proc/stat")


def alive(pid, started):
    """Whether a recorded child still runs. A probe that cannot look says yes."""
    try:
        state, ticks = stat_of(pid)
        if state in "ZX":
            return False
        return abs(boot_time() + ticks / os.sysconf("SC_CLK_TCK") - started) <= TOLERANCE
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True


# Records


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def read_record(fd):
    """The record of a slot, or None when there is none that can be read."""
    try:
        text = os.pread(fd, LONGEST + 1, 0)
        if not text or len(text) > LONGEST:
            return None
        record = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def write_record(fd, record):
    text = json.dumps(record, sort_keys=True).encode()
    os.ftruncate(fd, 0)
    if os.pwrite(fd, text, 0) != len(text):
        raise OSError("record written only in part")


def names_living_child(record):
    if not record:
        return False
    pid, started = record.get("child_pid"), record.get("child_started")
    if not whole(pid) or pid <= 0 or isinstance(started, bool) or not isinstance(started, (int, float)):
        return False
    return alive(pid, started)


# Slots


def open_slot(path, flags=0):
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)


def try_lock(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def indexes(pool_dir):
    found = []
    for name in os.listdir(pool_dir):
        stem, _, ext = name.partition(".")
        if ext == "lock" and stem.isascii() and stem.isdigit():
            found.append(int(stem))
    return sorted(found)


def survey(pool_dir):
    """Every slot on disk: (index, record, unclear) of the held ones, and the
    free ones as a list of (index, locked descriptor)."""
    held, free = [], []
    for index in indexes(pool_dir):
        fd = open_slot(os.path.join(pool_dir, f"{index}.lock"))
        locked = try_lock(fd)
        record = read_record(fd)
        if not locked:
            held.append((index, record, record is None))
        elif names_living_child(record):
            held.append((index, record, False))
        else:
            free.append((index, fd))
            continue
        os.close(fd)
    return held, free


def limit(cap, held):
    """The smallest cap in play: ours and those the holders recorded."""
    caps = [r["cap"] for _, r, _ in held if r and whole(r.get("cap")) and r["cap"] > 0]
    return min([cap] + caps) if cap else min(caps, default=0)


def take(pool_dir, pool, cap):
    """One slot of a pool whose admission lock is held: (index, descriptor)."""
    held, free = survey(pool_dir)
    chosen = None
    most = limit(cap, held)
    if len(held) < most:
        taken = {index for index, _, _ in held}
        index = next(i for i in range(cap) if i not in taken)
        fd = next((fd for i, fd in free if i == index), None)
        if fd is None:
            fd = open_slot(os.path.join(pool_dir, f"{index}.lock"), os.O_CREAT)
            if not try_lock(fd):
                os.close(fd)
                fd = None
        chosen = (index, fd) if fd is not None else None
    for _, fd in free:
        if chosen is None or fd != chosen[1]:
            os.close(fd)
    if chosen is None:
        unclear = any(u for _, _, u in held) or len(held) < most
        raise Full(pool, most, [r for _, r, _ in held], unclear)
    return chosen


class Lease:
    def __init__(self, slots, engine, workload):
        self.slots = slots  # (pool, cap, index, descriptor)
        self.engine, self.workload, self.since = engine, workload, time.time()
        self.record(None, None)

    def record(self, pid, started):
        for _, cap, _, fd in self.slots:
            write_record(fd, {
                "cap": cap, "child_pid": pid, "child_started": started, "engine": self.engine,
                "holder_pid": os.getpid(), "since": self.since, "workload": self.workload,
            })

    def release(self):
        for _, _, _, fd in self.slots:
            os.ftruncate(fd, 0)  # first, so that a free slot names nobody
            os.close(fd)
        self.slots = []


def try_admit(root, caps):
    """One slot in each pool, or none."""
    guards, slots = [], []
    try:
        for pool in sorted(caps):
            directory = os.path.join(root, pool)
            os.makedirs(directory, 0o700, exist_ok=True)
            guard = open_slot(os.path.join(directory, ".admission"), os.O_CREAT)
            guards.append(guard)
            fcntl.flock(guard, fcntl.LOCK_EX)
        for attempt in range(READS + 1):
            try:
                for pool in sorted(caps):
                    index, fd = take(os.path.join(root, pool), pool, caps[pool])
                    slots.append((pool, caps[pool], index, fd))
                return Lease(slots, os.environ.get("PEER_ENGINE", "peer"), os.environ.get("PEER_WORKLOAD", "heavy"))
            except Full as full:
                for _, _, _, fd in slots:
                    os.close(fd)
                slots = []
                if not full.unclear or attempt == READS:
                    raise
                time.sleep(0.002)
    finally:
        for guard in guards:
            os.close(guard)


def admit(root, caps, wait):
    poll = float(os.environ.get("PEER_POLL", "2"))
    began = time.monotonic()
    while True:
        try:
            return try_admit(root, caps)
        except Full as full:
            left = began + wait - time.monotonic()
            if left <= 0:
                by = ", ".join(f"pid {(r or {}).get('holder_pid')} (child {(r or {}).get('child_pid')})" for r in full.holders)
                raise Refused(f"refused: pool {full.pool!r} is at its cap of {full.cap}, held by {by}") from None
            jitter = 0.75 + int.from_bytes(os.urandom(2), "big") / 65535 / 2
            time.sleep(min(left, poll * jitter))


# Runs


def spawn(lease, argv):
    """Start argv in its own session and name it in every slot."""
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, setsid=True)
    except OSError as e:
        lease.release()
        print(f"peer: {argv[0]}: {e.strerror}", file=sys.stderr)
        sys.exit(127)
    started = start_of(pid) or start_of(pid)
    if started is None and not ended(pid):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        lease.release()
        raise Refused("refused: the start of the child cannot be read")
    try:
        lease.record(pid, started)
    except OSError as e:
        end_group(pid)
        lease.release()
        raise Refused(f"refused: slot cannot be written: {e}") from None
    return pid


def ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def end_group(pid):
    """End what is left of the child's group and reap the child."""
    status = None
    for sig, patience in ((signal.SIGTERM, GRACE), (signal.SIGKILL, GRACE)):
        end = time.monotonic() + patience
        try:
            os.killpg(pid, sig)
            while time.monotonic() < end:
                if status is None:
                    done, code = os.waitpid(pid, os.WNOHANG)
                    status = code if done else None
                os.killpg(pid, 0)
                time.sleep(0.005)
        except (ProcessLookupError, PermissionError):
            break
    if status is None:
        status = os.waitpid(pid, 0)[1]
    return status


def hold(root, caps, argv):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    lease = admit(root, caps, float(os.environ.get("PEER_WAIT", "600")))
    pid, status = None, None
    try:
        pid = spawn(lease, argv)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    finally:
        if pid is not None:
            status = end_group(pid)
        lease.release()
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def look(root, pool):
    """The held slots of a pool, counted under its admission lock."""
    directory = os.path.join(root, pool)
    if not os.path.isdir(directory):
        return []
    guard = open_slot(os.path.join(directory, ".admission"), os.O_CREAT)
    try:
        fcntl.flock(guard, fcntl.LOCK_EX)
        held, free = survey(directory)
        for _, fd in free:
            os.close(fd)
        return held
    finally:
        os.close(guard)


def count(root, pool):
    held = look(root, pool)
    print(json.dumps({
        "pool": pool, "held": len(held), "limit": limit(0, held),
        "holders": [{"slot": index, "record": record} for index, record, _ in held],
    }))


def chance():
    return int.from_bytes(os.urandom(4), "big") / 2**32


def child(log, ident, seconds):
    """The agent of a storm: proves its own life."""
    def note(kind):
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        os.write(fd, f"{kind} {ident} {time.monotonic_ns()} {os.getpid()} peer\n".encode())
        os.close(fd)

    note("S")
    time.sleep(seconds)
    note("E")


def worker(root, caps, until, log):
    longest = float(os.environ.get("PEER_HOLD", "0.05"))
    crash = float(os.environ.get("PEER_CRASH", "10")) / 100
    turn = 0
    while time.monotonic() < until:
        try:
            lease = admit(root, caps, until - time.monotonic())
        except Refused:
            return
        turn += 1
        argv = [sys.executable, "-S", "-E", os.path.abspath(__file__), root, "child", log, f"peer-{os.getpid()}-{turn}", str(chance() * longest)]
        pid = spawn(lease, argv)
        if chance() < crash:
            os._exit(1)  # the child lives on and keeps the slot
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        end_group(pid)
        lease.release()


def storm(root, caps, workers, seconds, log):
    os.environ.setdefault("PEER_POLL", "0.02")
    until = time.monotonic() + seconds
    running = set()
    while running or time.monotonic() < until:
        while len(running) < workers and time.monotonic() < until:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    worker(root, caps, until, log)
                    status = 0
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            running.add(pid)
        pid, _ = os.wait()
        running.discard(pid)
    mine = os.environ.get("PEER_ENGINE", "peer")
    for pool in caps:  # children of crashed holders are still to end
        while any(r and r.get("engine") == mine for _, r, _ in look(root, pool)):
            time.sleep(0.01)


def caps_of(pools, numbers):
    names, values = pools.split(","), [int(n) for n in numbers.split(",")]
    if len(values) == 1:
        values *= len(names)
    if len(values) != len(names) or min(values) < 1:
        raise ValueError(f"{pools} and {numbers} do not fit")
    return dict(zip(names, values))


def main(argv):
    if len(argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    root, verb, rest = argv[1], argv[2], argv[3:]
    try:
        if verb == "hold" and len(rest) > 3 and rest[2] == "--":
            return hold(root, caps_of(rest[0], rest[1]), rest[3:])
        if verb == "once" and len(rest) == 2:
            lease = admit(root, caps_of(*rest), float(os.environ.get("PEER_WAIT", "0")))
            print("admitted", *(f"{pool}/{index}" for pool, _, index, _ in lease.slots))
            lease.release()
            return 0
        if verb == "count" and len(rest) == 1:
            count(root, rest[0])
            return 0
        if verb == "storm" and len(rest) == 5:
            storm(root, caps_of(rest[0], rest[1]), int(rest[2]), float(rest[3]), rest[4])
            return 0
        if verb == "child" and len(rest) == 3:
            child(rest[0], rest[1], float(rest[2]))
            return 0
    except Refused as e:
        print(f"peer: {e}", file=sys.stderr)
        return 75
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv))
