#!/usr/bin/env python3
"""Writes a routing trace of traffic without memory: every token draws its experts anew from one Zipf law. The
opposite of text, for judging what a policy loses where the past says nothing but how popular an expert is.

  zipf_trace.py OUT [--experts 32] [--top-k 4] [--exponent 0.8] [--tokens 8000] [--seed 1]
"""
import argparse
import random
import struct


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--top-k", type=int, default=4)
    parser.add_argument("--exponent", type=float, default=0.8)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=1)
    a = parser.parse_args()
    if not 1 <= a.top_k <= a.experts <= 256 or a.tokens < 1:
        parser.error("1 <= top-k <= experts <= 256 and at least one token are needed")
    draw = random.Random(a.seed)
    experts = list(range(a.experts))
    weights = [(1 + rank) ** -a.exponent for rank in experts]
    draw.shuffle(experts)
    out = bytearray(b"WEIRROUT" + struct.pack("<IQIIIQ", 1, 0, 1, a.top_k, a.experts, 1 << 20))
    for _ in range(a.tokens):
        row = set()
        while len(row) < a.top_k:
            row.add(draw.choices(experts, weights)[0])
        out += bytes([1, 1, 2, 0, 1] + sorted(row))  # a decode round; layer 0, one row
    out += struct.pack("<BQ", 0, a.tokens)
    with open(a.out, "wb") as f:
        f.write(out + struct.pack("<Q", fnv1a(out)))


if __name__ == "__main__":
    main()
