#!/usr/bin/python3
"""Reads disassembled kernels (cuobjdump --dump-sass) and holds the instrument to its word: outside the stamped variants
(whose last template argument is true) and the kernels that are about time (spin, finish, measure_tick), no machine
code reads the device's clock; each stamped variant has a plain one that does not; and between the wait for the kernel
before and the clock no stamped variant reads indices of threads or blocks, which every warp would wait for.

  stamp_check.py SASS.txt       exit status 1 and a line per problem
"""
import re
import subprocess
import sys

CLOCK = re.compile(r"SR_GLOBALTIMER")
ABOUT_TIME = re.compile(r"spin|finish|tick")
WAIT = re.compile(r"\bACQBULK\b")
INDEX = re.compile(r"\bS2U?R\b.*SR_(TID|CTAID)")


def functions(text):
    name, body = None, []
    for line in text.splitlines():
        match = re.match(r"\s*Function : (\S+)", line)
        if match:
            if name:
                yield name, body
            name, body = match.group(1), []
        elif name:
            body.append(line)
    if name:
        yield name, body


def index_after_wait(body):
    clock = next((i for i, line in enumerate(body) if CLOCK.search(line)), 0)
    waits = [i for i in range(clock) if WAIT.search(body[i])]
    return bool(waits) and any(INDEX.search(line) for line in body[waits[-1] : clock])


def main():
    bodies = list(functions(open(sys.argv[1]).read()))
    found = [(name, any(CLOCK.search(line) for line in body)) for name, body in bodies]
    if not found:
        sys.exit("stamp_check.py: no kernels")
    reads_clock, late = dict(found), {name for name, body in bodies if index_after_wait(body)}
    names = subprocess.run(["c++filt"], input="\n".join(reads_clock), capture_output=True, text=True).stdout.splitlines()
    readable = {n: t.replace("(anonymous namespace)::", "").split("(")[0] for n, t in zip(reads_clock, names)}
    stamped, problems = 0, []
    for name, reads in reads_clock.items():
        if not reads or ABOUT_TIME.search(readable[name]):
            continue
        stamped += 1
        plain = "Lb0EEE".join(name.rsplit("Lb1EEE", 1))
        if plain == name:
            problems.append(f"{readable[name]}: reads the clock and is no stamped variant")
        elif reads_clock.get(plain, True):
            problems.append(f"{readable[name]}: its plain variant is missing or reads the clock too")
        if name in late:
            problems.append(f"{readable[name]}: reads an index between the wait and the clock")
    for line in problems:
        print(f"stamp_check.py: {line}")
    if problems or not stamped:
        sys.exit(1)
    print(f"{len(found)} kernels, {stamped} stamped variants read the clock, no other does")


if __name__ == "__main__":
    main()
