#!/usr/bin/env python3
"""Takes the figures of docs/measurements.md. Standard library only; run it on an otherwise idle machine.

  measure.py coverage MODEL [--slots 4,12,32]          unattributed share of prefill and decode at each number of slots
  measure.py ledger-cost MODEL [--pairs 12]            fastest of the runs with the ledger on over off, interleaved pairs
  measure.py peer MODEL LLAMA_BENCH [--rounds 5]       speed over llama-bench's, interleaved, both resident
  measure.py cgroup MODEL [--limit 3GiB]               decode in a memory cgroup: lived, peak, speed, hit rate (root)
  measure.py levers MODEL --memory 20MiB               what each memory lever of weir profile predicts, and what its setting brings

Ratios are per pair; the median is shown with the exact sign-test interval of at least 95 % where there are six or more.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile

WEIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "weir")


def weir(*arguments, prefix=()):
    run = subprocess.run([*prefix, WEIR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if run.returncode != 0:
        sys.exit(f"measure.py: weir {' '.join(arguments)} ended with {run.returncode}: {run.stderr.strip().splitlines()[-1:]}")
    return json.loads(run.stdout)


def bench(model, *arguments, prefix=(), best=False):
    """Median speed of each test, or its fastest run: what disturbs a run only slows it."""
    result = weir("bench", "-m", model, "--json", *arguments, prefix=prefix)
    return {t["test"].split()[0]: (max(t["samples"]) if best else t["tokens_per_second"]) for t in result["tests"]}, result


def interval(ratios):
    """Order statistics (k-th from either end) whose sign-test coverage is at least 95 %."""
    n, ordered = len(ratios), sorted(ratios)
    tail, k, probability = 0.0, 0, 0.5**n
    choose = 1
    for i in range(n):
        tail += choose * probability
        if 2 * tail > 0.05:
            break
        k = i + 1
        choose = choose * (n - i) // (i + 1)
    return f"[{ordered[k - 1]:.4f}, {ordered[n - k]:.4f}]" if k else "(too few pairs for an interval)"


def report(what, ratios):
    print(f"{what}: median ratio {statistics.median(ratios):.4f} {interval(ratios)}, {len(ratios)} pairs")


def coverage(a):
    for slots in a.slots.split(","):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ledger.json")
            weir("run", "-m", a.model, "-p", a.prompt, "-n", str(a.n), "--ignore-eos", "--seed", "1", "--expert-slots", slots,
                 "--ledger-json", path, "--json")
            ledger = json.load(open(path))
        for name, phase in ledger["phases"].items():
            print(f"{slots} slots, {name}: unattributed {100 * (1 - phase['coverage']):.4f} % of {phase['wall_ns'] / 1e6:.1f} ms")


def ledger_cost(a):
    ratios = {"prompt": [], "decode": []}
    common = [a.model, "-p", str(a.p), "-n", str(a.n), "-r", str(a.runs)]
    for pair in range(a.pairs):
        order = (True, False) if pair % 2 else (False, True)
        speed = {on: bench(*common, *(["--ledger", "1000000"] if on else []), best=True)[0] for on in order}
        for test in ratios:
            ratios[test].append(speed[True][test] / speed[False][test])
        print(f"pair {pair + 1}: prompt {ratios['prompt'][-1]:.4f}, decode {ratios['decode'][-1]:.4f}", file=sys.stderr)
    for test, values in ratios.items():
        report(f"{test}, ledger on over off", values)


def peer(a):
    ratios = {"prompt": [], "decode": []}
    speeds = {("weir", t): [] for t in ratios} | {("llama-bench", t): [] for t in ratios}
    for pair in range(a.rounds):
        for who in ("weir", "llama-bench") if pair % 2 else ("llama-bench", "weir"):
            if who == "weir":
                ours = bench(a.model, "-p", str(a.p), "-n", str(a.n), "-r", str(a.runs))[0]
            else:
                run = subprocess.run([a.llama_bench, "-m", a.model, "-t", str(a.threads), "-p", str(a.p), "-n", str(a.n), "-r",
                                      str(a.runs), "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
                theirs = {"prompt" if t["n_prompt"] else "decode": t["avg_ts"] for t in json.loads(run.stdout)}
        for test in ratios:
            ratios[test].append(ours[test] / theirs[test])
            speeds["weir", test].append(ours[test])
            speeds["llama-bench", test].append(theirs[test])
        print(f"round {pair + 1}: prompt {ratios['prompt'][-1]:.3f}, decode {ratios['decode'][-1]:.3f}", file=sys.stderr)
    for test, values in ratios.items():
        print(f"{test}: weir {statistics.median(speeds['weir', test]):.2f}, llama-bench {statistics.median(speeds['llama-bench', test]):.2f} tok/s")
        report(f"{test}, weir over llama-bench", values)


def cgroup(a):
    group = "/sys/fs/cgroup/memory/weir-measure"
    if not os.path.isdir("/sys/fs/cgroup/memory"):
        group = "/sys/fs/cgroup/weir-measure"
    os.makedirs(group, exist_ok=True)
    limit = int(a.limit.removesuffix("GiB")) << 30
    v1 = os.path.exists(f"{group}/memory.limit_in_bytes")
    with open(f"{group}/{'memory.limit_in_bytes' if v1 else 'memory.max'}", "w") as f:
        f.write(str(limit))
    if v1:
        open(f"{group}/memory.max_usage_in_bytes", "w").write("0")
    enter = ["bash", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "bash"]
    memory = [] if a.memory is None else ["--memory", a.memory]
    speeds, result = bench(a.model, "-p", str(a.p), "-n", str(a.n), "-r", str(a.runs), *memory, prefix=enter)
    peak = int(open(f"{group}/{'memory.max_usage_in_bytes' if v1 else 'memory.peak'}").read())
    os.rmdir(group)
    budget = result["memory"]["budget_bytes"]
    print(f"limit {limit / 2**30:.2f} GiB, budget {budget / 2**30:.3f} GiB, peak of the process and its page cache "
          f"{result['memory']['peak_bytes'] / 2**30:.3f} GiB, of the cgroup {peak / 2**30:.3f} GiB")
    for t in result["tests"]:
        uses = t["hits"] + t["misses"]
        print(f"{t['test']}: {t['tokens_per_second']:.2f} tok/s, {100 * t['hits'] / uses:.1f} % hits")
    if result["memory"]["peak_bytes"] > budget:
        sys.exit("measure.py: the peak is above the budget")


def levers(a):
    def profile(*options):
        return weir("profile", "-m", a.model, "--json", "-n", str(a.n), *options)

    now = profile(*([] if a.memory is None else ["--memory", a.memory]))
    print("| setting | predicted | interval | measured | time a token left, predicted over measured |\n|---|---:|---:|---:|---:|")
    for lever in now["levers"]:
        if lever["lever"] != "memory" or lever["gain"] is None:
            continue
        gain = now["decode"]["ms_per_token"] / profile(*lever["setting"].split())["decode"]["ms_per_token"]
        low, high = (f"{100 * (lever[k] - 1):+.0f}" for k in ("gain_low", "gain_high"))
        print(f"| {lever['setting']} | {100 * (lever['gain'] - 1):+.0f} % | {low} to {high} % | {100 * (gain - 1):+.0f} % | {gain / lever['gain']:.2f} |")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = ap.add_subparsers(dest="what", required=True)
    for name, function in (("coverage", coverage), ("ledger-cost", ledger_cost), ("peer", peer), ("cgroup", cgroup), ("levers", levers)):
        p = sub.add_parser(name)
        p.set_defaults(function=function)
        p.add_argument("model")
        if name == "peer":
            p.add_argument("llama_bench")
            p.add_argument("--rounds", type=int, default=5)
        p.add_argument("-p", type=int, default=128, help="prompt tokens")
        p.add_argument("-n", type=int, default=32, help="decoded tokens")
        p.add_argument("--runs", type=int, default=1, help="counted runs in each process")
        p.add_argument("--threads", type=int, default=os.cpu_count())
        p.add_argument("--pairs", type=int, default=12)
        p.add_argument("--slots", default="4,12,32")
        p.add_argument("--prompt", default="The command line tool reads a file and")
        p.add_argument("--limit", default="3GiB")
        p.add_argument("--memory", default=None)
    a = ap.parse_args()
    a.function(a)


if __name__ == "__main__":
    main()
