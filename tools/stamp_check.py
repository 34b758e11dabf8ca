#!/usr/bin/python3
"""Reads disassembled kernels (cuobjdump --dump-sass) and holds the instrument to its word: outside the stamped variants
(a template whose first argument is true) and the kernels that are about time (spin, finish, measure_tick), no machine
code reads the device's clock; every stamped variant does.

  stamp_check.py SASS.txt       exit status 1 and a line per problem
"""
import re
import subprocess
import sys

CLOCK = re.compile(r"SR_GLOBALTIMER")
ABOUT_TIME = re.compile(r"spin|finish|tick")


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


def main():
    found = [(name, any(CLOCK.search(line) for line in body)) for name, body in functions(open(sys.argv[1]).read())]
    if not found:
        sys.exit("stamp_check.py: no kernels")
    readable = subprocess.run(["c++filt"], input="\n".join(n for n, _ in found), capture_output=True, text=True).stdout.splitlines()
    stamped, problems = 0, []
    for (name, reads), text in zip(found, readable):
        text = text.split("(")[0]
        if ABOUT_TIME.search(text):
            continue
        is_stamped = re.search(r"ILb1E", name) is not None
        stamped += is_stamped
        if reads and not is_stamped:
            problems.append(f"{text}: reads the clock and is no stamped variant")
        if is_stamped and not reads:
            problems.append(f"{text}: a stamped variant that does not read the clock")
    for line in problems:
        print(f"stamp_check.py: {line}")
    if problems or not stamped:
        sys.exit(1)
    print(f"{len(found)} kernels, {stamped} stamped variants, no other reads the clock")


if __name__ == "__main__":
    main()
