#!/usr/bin/python3
"""Tables of tools/gpu_check.sh, from the JSON of weir bench. Standard library only.

  gpu_table.py bench BENCH.json                 speed of each test
  gpu_table.py ledger LEDGER.json               the ledger's coverage, and each role of decode with GB/s
  gpu_table.py cost COST.json WHAT              what the ledger costs, beside what two recordings without it differ by
"""
import json
import statistics
import sys


def row(what, value):
    print(f"{what:<46} {value}")


def bench(path):
    for test in json.load(open(path))["tests"]:
        samples = test["samples"]
        row(test["test"], f"{test['tokens_per_second']:9.1f} tok/s  ({min(samples):.1f} to {max(samples):.1f}, {len(samples)} runs)")


def student_t(freedom):
    """The two-sided 95 % quantile of Student's t (Abramowitz and Stegun 26.7.5, within 0.5 % from 4 degrees on)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))


def cost(path, what):
    """On over the mean of the two that are off, by round; their interval is judged against what was asked."""
    low, high = 0.995, 1.005
    c = json.load(open(path))["ledger_cost"]
    ratios = [2 * on / (off + again) for on, off, again in zip(c["on"], c["off"], c["off_again"])]
    null = [again / off for off, again in zip(c["off"], c["off_again"])]
    mean, half = statistics.mean(ratios), student_t(len(ratios) - 1) * statistics.stdev(ratios) / len(ratios) ** 0.5
    judged = "within" if low <= mean - half and mean + half <= high else "NOT within"
    row(
        f"ledger on over off, {what}",
        f"{mean:.4f} [{mean - half:.4f}, {mean + half:.4f}], {judged} {low} to {high}; off again over off {statistics.mean(null):.4f}",
    )
    return judged == "within"


def ledger(ledger_path):
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
    elif len(sys.argv) == 3 and sys.argv[1] == "ledger":
        ledger(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "cost":
        sys.exit(0 if cost(sys.argv[2], sys.argv[3]) else 1)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
