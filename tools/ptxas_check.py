#!/usr/bin/python3
"""Reads what ptxas said of every kernel of a build (tools/ptxas_log.sh) and holds the kernels to it. Standard library.

  ptxas_check.py DIRECTORY           prints a line per problem, exit status 1 where there is any
  ptxas_check.py --table DIRECTORY   registers, stack and spills of every kernel

Problems: a kernel that spills or keeps a stack frame (SPILLS_ALLOWED names those that may, with the reason); a build
without any kernel.
"""
import pathlib
import re
import subprocess
import sys

# Part of a kernel's name: why it may keep a stack frame or spill. No kernel of decode is among them.
SPILLS_ALLOWED = {
    "large::": "sums of segments past the first (inputs over 2,048 wide), touched once in eight stages",
    "fast_walk_kernel": "prompts: three blocks a multiprocessor are worth a few spilled words",
    "portable_chunks_kernel": "the portable arithmetic with the rotation inside: 8 bytes",
}

ENTRY = re.compile(r"Compiling entry function '([^']+)' for")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")


def kernels(directory):
    """name -> (registers, stack, spilled), names mangled."""
    found = {}
    for log in sorted(pathlib.Path(directory).glob("*.log")):
        name = None
        for line in log.read_text(errors="replace").splitlines():
            if match := ENTRY.search(line):
                name = match.group(1)
                found[name] = [0, 0, 0]
            elif name and (match := FRAME.search(line)):
                stack, stores, loads = map(int, match.groups())
                found[name][1] = max(found[name][1], stack)
                found[name][2] = max(found[name][2], stores + loads)
            elif name and (match := USED.search(line)):
                found[name][0] = int(match.group(1))
    return found


def demangled(names):
    try:
        out = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
        return {n: t.replace("(anonymous namespace)::", "") for n, t in zip(names, out.splitlines())}
    except OSError:
        return {n: n for n in names}


def problems(found, readable):
    if not found:
        yield "no kernel was found: expected the logs of a build with CUDA"
    for name, (registers, stack, spilled) in found.items():
        text = readable[name].split("(")[0]
        if (stack or spilled) and not any(p in text for p in SPILLS_ALLOWED):
            yield f"{text}: {spilled} bytes spilled, {stack} bytes of stack: expected none"


def main():
    table = "--table" in sys.argv
    directory = [a for a in sys.argv[1:] if not a.startswith("--")]
    if len(directory) != 1:
        sys.exit(__doc__)
    found = kernels(directory[0])
    readable = demangled(list(found))
    if table:
        for name, (registers, stack, spilled) in found.items():
            print(f"{registers:4} registers {stack:5} stack {spilled:5} spilled  {readable[name].split('(')[0]}")
        return
    lines = list(problems(found, readable))
    for line in lines:
        print(f"ptxas_check.py: {line}")
    if lines:
        sys.exit(1)
    print(f"{len(found)} kernels, no spills")


if __name__ == "__main__":
    main()
