#!/usr/bin/python3
"""Reads disassembled kernels (cuobjdump --dump-sass) and holds the instrument to its word: the kernels that can begin a
role read the device's clock, and so do those that are about time; no other machine code does. Between the wait for the
kernel before and the clock none reads indices of threads or blocks, which every warp would wait for.

  stamp_check.py SASS.txt       exit status 1 and a line per problem
"""
import re
import subprocess
import sys

CLOCK = re.compile(r"SR_GLOBALTIMER")
ABOUT_TIME = re.compile(r"spin_kernel|finish_kernel|tick_kernel")
# By the name without namespaces; a kernel of several rows that is made from the same template begins no role.
BEGINS_A_ROLE = re.compile(
    r"(embed|rms_norm|quantise|norm_quantise|gather|copy|dense|gate_up|route_few|route_one|one_row_matmul|one_row_gate_up|few_rows_gate_up)_kernel\b"
    r"|small_matmul_kernel<.*, true>"
)
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
    readable = {n: re.sub(r"\(anonymous namespace\)::|weir::cuda::", "", t).split("(")[0] for n, t in zip(reads_clock, names)}
    stamping, problems = 0, []
    for name, reads in reads_clock.items():
        text = readable[name]
        if ABOUT_TIME.search(text):
            continue
        begins = BEGINS_A_ROLE.match(text.removeprefix("void ")) is not None
        stamping += begins
        if reads and not begins:
            problems.append(f"{text}: reads the clock and begins no role")
        if begins and not reads:
            problems.append(f"{text}: begins a role and does not read the clock")
        if name in late:
            problems.append(f"{text}: reads an index between the wait and the clock")
    for line in problems:
        print(f"stamp_check.py: {line}")
    if problems or not stamping:
        sys.exit(1)
    print(f"{len(found)} kernels, {stamping} that can begin a role read the clock, no other does")


if __name__ == "__main__":
    main()
