#!/usr/bin/python3
"""Adds up the GoogleTest reports (XML) below BUILD/test-results and prints "N passed, M failed" as its last line.

Exit status 1 where a test failed or a report is missing its counts; skipped tests are named, so that a test that
never runs is seen.

  count_tests.py BUILD...
"""
import pathlib
import sys
import xml.etree.ElementTree


def count(path):
    """(passed, failed names, skipped names) of one report."""
    passed, failed, skipped = 0, [], []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None:
            failed.append(name)
        elif case.find("skipped") is not None or case.get("result") == "skipped":
            skipped.append(name)
        elif case.get("status") != "notrun":
            passed += 1
    return passed, failed, skipped


def main(builds):
    passed, failed, skipped = 0, [], []
    for build in builds:
        for path in sorted(pathlib.Path(build, "test-results").glob("*.xml")):
            p, f, s = count(path)
            passed += p
            failed += [f"{build}: {name}" for name in f]
            skipped += [f"{build}: {name}" for name in s]
    for name in skipped:
        print(f"skipped: {name}")
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
