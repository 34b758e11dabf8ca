#!/usr/bin/python3
"""Tables of tools/gpu_check.sh, from the JSON of weir bench. Standard library only.

  gpu_table.py bench BENCH.json                 speed of each test
  gpu_table.py ledger COST.json LEDGER.json     the ledger's cost, its coverage, and each role of decode with GB/s
"""
import json
import statistics
import sys


def row(what, value):
    print(f"{what:<46} {value}")


def interval(values):
    """Order statistics whose sign-test coverage is at least 95 %."""
    n, ordered = len(values), sorted(values)
    tail, k, choose = 0.0, 0, 1
    for i in range(n):
        tail += choose * 0.5**n
        if 2 * tail > 0.05:
            break
        k = i + 1
        choose = choose * (n - i) // (i + 1)
    return f"[{ordered[k - 1]:.4f}, {ordered[n - k]:.4f}]" if k else "(too few pairs)"


def bench(path):
    for test in json.load(open(path))["tests"]:
        samples = test["samples"]
        row(test["test"], f"{test['tokens_per_second']:9.1f} tok/s  ({min(samples):.1f} to {max(samples):.1f}, {len(samples)} runs)")


def ledger(cost_path, ledger_path):
    cost = json.load(open(cost_path)).get("ledger_cost")
    if cost:
        ratios = [a / b for a, b in zip(cost["on"], cost["off"])]
        row("ledger on over off, decode", f"{statistics.median(ratios):.4f} {interval(ratios)}, {len(ratios)} pairs")
    report = json.load(open(ledger_path))
    if report.get("device_clock"):
        row("device clock", json.dumps(report["device_clock"]))
    for name, phase in report["phases"].items():
        row(f"{name}: coverage", f"{100 * phase['coverage']:.3f} % of {phase['wall_ns'] / 1e6:.2f} ms in {phase['rounds']} rounds")
        for role, figures in phase["roles"].items():
            if figures["ns"] or role == "unattributed":
                row(
                    f"  {role}",
                    f"{figures['us_per_round']:9.2f} us a round  {100 * figures['share']:5.1f} %  {figures['gb_per_second']:8.1f} GB/s",
                )


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "bench":
        bench(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "ledger":
        ledger(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
