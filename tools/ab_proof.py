#!/usr/bin/python3
"""How often weir ab errs on real arms: experiments with identical arms, and with a true difference of 5 %. Standard
library only; run it on an otherwise idle machine.

  ab_proof.py MODEL FOLDER [--kinds engine,commands] [--identical 60] [--different 20] [--device cuda:0]
              [--expert-slots 8] [--pairs 12] [--runs 1] [-n 48] [--seed 1] [--prompt prompts/short.txt]

The kinds are arms of options in one process ("engine") and whole commands ("commands"). --pairs 0 leaves the numbers of
pairs and runs to each experiment's pilot. The true difference is a spin in the role head, in about half of B's rounds,
as long as a tenth of a round of A; where there is a ledger, the table has what it came to. FOLDER gets the observations
of each experiment; those that are there are judged again and not made again, so an interrupted proof goes on. Prints a
Markdown table. Exit status 1 where the false verdicts are more than the nominal 5 % gives in 97.5 % of such proofs, or a
true difference is found (or refused with a reason) in fewer
than 16 of 20, or found with the wrong sign.
"""
import argparse
import json
import math
import pathlib
import shlex
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOMINAL = 0.05
DIFFERENCE = 0.05
LEAST_FOUND = 0.8
VERDICTS = {0: "faster", 10: "slower", 11: "unresolved", 12: "refused"}


def most_false(n):
    """The largest count that n experiments at the nominal rate stay at or under with 97.5 %."""
    total = 0.0
    for k in range(n + 1):
        total += math.comb(n, k) * NOMINAL**k * (1 - NOMINAL) ** (n - k)
        if total >= 0.975:
            return k
    return n


class Proof:
    def __init__(self, a):
        self.a = a
        self.folder = pathlib.Path(a.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.common = ["--device", a.device] if a.device else []
        if a.expert_slots:
            self.common += ["--expert-slots", str(a.expert_slots)]
        self.round_us = None

    def ab(self, name, arguments):
        """One experiment: its report, and how long it took (None where it was there already)."""
        out = self.folder / (name + ".json")
        took = None
        if not out.exists():
            partial = self.folder / (name + ".partial")
            partial.unlink(missing_ok=True)
            begin = time.monotonic()
            run = subprocess.run([self.a.weir, "ab", *arguments, "--json", "--out", str(partial)], capture_output=True, text=True)
            took = time.monotonic() - begin
            if run.returncode not in VERDICTS:
                sys.exit(f"ab_proof.py: {name}: weir ab ended with {run.returncode}: {run.stderr.strip()[-300:]}")
            partial.rename(out)
        run = subprocess.run([self.a.weir, "ab", "--from", str(out), "--json"], capture_output=True, text=True)
        if run.returncode not in VERDICTS:
            sys.exit(f"ab_proof.py: {out}: weir ab --from ended with {run.returncode}: {run.stderr.strip()[-300:]}")
        return json.loads(run.stdout), took

    def engine(self, seed, spin):
        a = self.a
        numbers = ["--pairs", str(a.pairs), "--runs", str(a.runs)] if a.pairs else []
        return ["-m", a.model, *self.common, "--a", "", "--b", spin, "--prompts", a.prompt, "-n", str(a.n), *numbers, "--seed", str(seed)]

    def commands(self, seed, spin):
        a = self.a
        bench = [a.weir, "bench", "-m", a.model, *self.common, "-p", "0", "-n", str(a.n), "-r", "1", "--json", "--ledger", "1000000"]
        arm = shlex.join(bench)
        return ["--a-command", arm, "--b-command", f"{arm} {spin}".strip(), "--figure", r'"tokens_per_second":([0-9.]+)', "--better",
                "higher", *(["--pairs", str(a.pairs)] if a.pairs else []), "--seed", str(seed)]

    def spin(self):
        """The options that make B slower by DIFFERENCE: from what a round of A takes."""
        if self.round_us is None:
            report, _ = self.ab("round", self.engine(self.a.seed, ""))
            runs = [o for o in report["experiment"]["observations"] if o["kind"] == "pair"]
            ordered = sorted(o["metric_ns"] for o in runs)
            self.round_us = ordered[len(ordered) // 2] / 1e3 / (self.a.n - 1)
        return f"--inject-role head --inject-us {max(1, round(2 * DIFFERENCE * self.round_us))}"

    def series(self, kind, different):
        count = self.a.different if different else self.a.identical
        spin = self.spin() if different and count else ""
        result = {"count": count, "reasons": {}, "truths": [], "seconds": []}
        result.update({verdict: 0 for verdict in VERDICTS.values()})
        for i in range(count):
            seed = self.a.seed + i
            name = f"{kind}-{'different' if different else 'identical'}-{seed}"
            report, took = self.ab(name, getattr(self, kind)(seed, spin))
            result[report["verdict"]] += 1
            if took is not None:
                result["seconds"].append(took)
            for check in report["checks"]:
                if check["state"] == "failed":
                    result["reasons"][check["check"]] = result["reasons"].get(check["check"], 0) + 1
            truth = injected(report) if different else None
            if truth is not None:
                result["truths"].append(truth)
            print(f"{name}: {report['verdict']}", file=sys.stderr, flush=True)
        return result


def injected(report):
    """What the spin came to, as a share of A's time: by the ledger, where no refusal hides it."""
    if not report["roles"]:
        return None
    whole = report["roles"]["whole"]["a_ns"]
    return sum(r["difference_ns"] for r in report["roles"]["rows"] if r["role"] == "head") / whole if whole else None


def judged(result, different):
    """Whether the series keeps the promise, and what was allowed, in words."""
    n = result["count"]
    if not different:
        most = most_false(n)
        return result["faster"] + result["slower"] <= most, f"at most {most} false"
    least = math.ceil(LEAST_FOUND * n)
    return result["slower"] + result["refused"] >= least and result["faster"] <= most_false(n), f"at least {least} slower or refused"


def row(kind, result, different):
    kept, allowed = judged(result, different)
    what = "identical"
    if different:
        what = f"B {100 * DIFFERENCE:.0f} % slower"
        if result["truths"]:
            what += f" (by the ledger {100 * sum(result['truths']) / len(result['truths']):.1f} %)"
    reasons = ", ".join(f"{name} {count}" for name, count in sorted(result["reasons"].items())) or "-"
    each = f"{sum(result['seconds']) / len(result['seconds']):.0f} s" if result["seconds"] else "-"
    cells = [kind, what, result["count"], *(result[v] for v in VERDICTS.values()), reasons, allowed, "yes" if kept else "NO", each]
    return "| " + " | ".join(str(c) for c in cells) + " |", kept


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("folder")
    p.add_argument("--weir", default=str(ROOT / "build" / "weir"))
    p.add_argument("--kinds", default="engine,commands")
    p.add_argument("--identical", type=int, default=60)
    p.add_argument("--different", type=int, default=20)
    p.add_argument("--device")
    p.add_argument("--expert-slots", type=int)
    p.add_argument("--pairs", type=int, default=12)
    p.add_argument("--runs", type=int, default=1)
    p.add_argument("-n", type=int, default=48)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--prompt", default=str(ROOT / "prompts" / "short.txt"))
    a = p.parse_args()
    kinds = a.kinds.split(",")
    for kind in kinds:
        if kind not in ("engine", "commands"):
            p.error(f"--kinds {kind}: expected engine or commands")
    proof = Proof(a)
    print("| arms | truth | experiments | faster | slower | unresolved | refused | refused for | allowed | kept | each took |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    every = True
    for kind in kinds:
        for different in (False, True):
            if not (a.different if different else a.identical):
                continue
            line, kept = row(kind, proof.series(kind, different), different)
            print(line, flush=True)
            every = every and kept
    sys.exit(0 if every else 1)


if __name__ == "__main__":
    main()
