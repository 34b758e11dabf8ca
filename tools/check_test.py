#!/usr/bin/python3
"""Proves that every rule of check.py can fail: each test lays a small clean tree, breaks one thing, and expects that
rule, and only that rule, to say so."""
import inspect
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import check  # noqa: E402

CLEAN = {
    "README.md": "# A thing\n\n## Use\n\nSee [use](#use) and [the page](docs/page.md#the-end).\n",
    "docs/page.md": "# Page\n\n## The end\n\n[home](../README.md) [web](https://example.org)\n",
    "src/base/args.cpp": '#include "base/args.h"\nconst char* get() { return getenv("WEIR_X"); }\n',
    "src/base/args.h": "#pragma once\nconst char* get();\n",
    "src/gguf/reader.cpp": '#include "base/args.h"\n#include "gguf/reader.h"\n// "text/t.h" getenv is only named here\n',
    "src/gguf/reader.h": "#pragma once\n",
    "src/ledger/roles.def": "".join(f'WEIR_ROLE({r}, device, "x")\n' for r in ["embed", *check.RESERVED_ROLES]),
    "src/engine/round.cpp": "void f() { enter(Role::embed); }\n",
    "src/text/t.h": "#pragma once\n",
    "src/device/device.h": "#pragma once\n",
    "src/device/cpu/matmul.cpp": '#include "device/device.h"\n',
    "src/device/cuda/stamp.cu": "#include <cuda_runtime.h>\n",
    "src/device/cuda/stamp.h": "#pragma once\n",
    "tests/golden/a.bin": "x",
    "tests/golden/README.md": "# Goldens\n",
    "tests/model/a_test.cpp": 'const char* path = "golden/a.bin";\n',
}


def body(lines):
    """A function of exactly `lines` lines."""
    return "int f() {\n" + "  g();\n" * (lines - 2) + "}\n"


class CheckTest(unittest.TestCase):
    def problems(self, changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **changes}.items():
                if text is None:
                    continue
                full = pathlib.Path(root, path)
                full.parent.mkdir(parents=True, exist_ok=True)
                full.write_bytes(text) if isinstance(text, bytes) else full.write_text(text)
            tree = check.Tree(root)
            return {rule.__name__: found for rule in check.RULES if (found := list(rule(tree)))}

    def expect(self, rule, changes, *words):
        problems = self.problems(changes)
        self.assertEqual(list(problems), [rule], problems)
        for word in words:
            self.assertIn(word, problems[rule][0])

    def test_clean_tree_passes(self):
        self.assertEqual(self.problems({}), {})

    def test_every_rule_has_a_test(self):
        source = inspect.getsource(CheckTest)
        for rule in check.RULES:
            self.assertIn(f'self.expect("{rule.__name__}"', source)

    def test_include_upwards(self):
        self.expect("include_direction", {"src/base/up.cpp": '#include "gguf/reader.h"\n'}, "src/base/up.cpp:1", "gguf")

    def test_include_sideways(self):
        self.expect("include_direction", {"src/text/t.cpp": '\n#include "device/device.h"\n'}, "src/text/t.cpp:2")

    def test_include_not_rooted_at_src(self):
        self.expect("include_direction", {"src/gguf/r.cpp": '#include "reader.h"\n'}, "rooted")

    def test_include_in_unknown_module(self):
        self.expect("include_direction", {"src/extra/x.h": "#pragma once\n"}, "extra")

    def test_devices_do_not_see_each_other(self):
        self.expect("include_direction", {"src/device/cpu/x.cpp": '#include "device/cuda/stamp.h"\n'}, "never see")

    def test_commented_include_is_none(self):
        self.assertEqual(self.problems({"src/base/c.cpp": '/*\n#include "gguf/reader.h"\n*/\n'}), {})

    def test_file_too_long(self):
        self.expect("file_size", {"src/base/long.cpp": "\n" * 801}, "801 lines")
        self.assertEqual(self.problems({"src/base/long.cpp": "\n" * 800}), {})

    def test_function_too_long(self):
        self.expect("function_size", {"src/base/f.cpp": "\n" + body(101)}, "src/base/f.cpp:2", "101 lines")
        self.expect("function_size", {"tests/base/f_test.cpp": body(101).replace("int f()", "TEST(A, B)")}, "TEST(A, B)")
        self.assertEqual(self.problems({"src/base/f.cpp": body(100)}), {})

    def test_function_in_namespace_and_class(self):
        wrapped = "namespace a {\nclass B : public C {\n public:\n" + body(101) + "};\n}\n"
        self.expect("function_size", {"src/base/f.cpp": wrapped}, "src/base/f.cpp:4")

    def test_constructor_with_braced_members(self):
        code = "A::A(int x) : a_{x}, b_(x), c_{1} {\n" + "  g();\n" * 100 + "}\n"
        self.expect("function_size", {"src/base/f.cpp": code}, "102 lines")

    def test_kernels_may_be_longer(self):
        self.assertEqual(self.problems({"src/device/cpu/matmul_x.cpp": body(200)}), {})
        self.expect("function_size", {"src/device/cpu/matmul_x.cpp": body(201)}, "at most 200")
        self.expect("function_size", {"src/device/cpu/team.cpp": body(101)}, "at most 100")

    def test_braces_that_do_not_balance(self):
        self.expect("function_size", {"src/base/f.cpp": "int f() {\n"}, "balance")

    def test_functions_are_told_from_the_rest(self):
        code = (
            'namespace a::b {\nextern "C" {\nstruct alignas(64) S : T<int> { int x = f({1, 2}); };\n}\n'
            "const int table[] = {1, 2};\nenum class E : uint8_t { a, b };\n"
            "S make(std::vector<int> v = {}) { return {v}; }\n"
            "template <typename T>\nrequires(sizeof(T) > 1)\nbool operator==(const T& l, const T& r) {\n  return '{' < \"}{\"[0];\n}\n"
            'const char* raw = R"x({{{)x";\nint big = 1\'000\'000;\n'
            "auto named = [](int x) {\n  return x;\n};\n}  // namespace\n"
        )
        names = [header.split("(")[0].split()[-1] for _, _, header in check.functions(code)]
        self.assertEqual(names[0], "make")
        self.assertEqual(len(names), 3)
        self.assertEqual([last - first for first, last, _ in check.functions(code)], [0, 4, 2])

    def test_environment_elsewhere(self):
        self.expect("environment_in_one_place", {"src/gguf/e.cpp": 'int x = getenv("A") != nullptr;\n'}, "e.cpp:1")
        self.expect("environment_in_one_place", {"src/gguf/e.cpp": "extern char** environ;\n"}, "e.cpp:1")
        self.expect("environment_in_one_place", {"src/gguf/e.cpp": 'void f() { setenv("A", "1", 0); }\n'}, "e.cpp:1")

    def test_cuda_elsewhere(self):
        self.expect("cuda_in_one_place", {"src/gguf/c.cpp": "#include <cuda_fp16.h>\n"}, "cuda_fp16.h")
        self.expect("cuda_in_one_place", {"src/device/x.cu": "\n"}, "CUDA sources")

    def test_role_unused(self):
        self.expect("roles_in_use", {"src/engine/round.cpp": "// Role::embed\nvoid f() {}\n"}, "`embed`")

    def test_role_used_in_the_ledger_only(self):
        changes = {"src/engine/round.cpp": "void f() {}\n", "src/ledger/l.cpp": "int x = int(Role::embed);\n"}
        self.expect("roles_in_use", changes, "`embed`")

    def test_reserved_role_in_use(self):
        self.expect("roles_in_use", {"src/engine/d.cpp": "void f() { enter(Role::draft); }\n"}, "`draft`")

    def test_golden_unused(self):
        self.expect("goldens_in_use", {"tests/golden/b.bin": "x"}, "tests/golden/b.bin")
        code = 'auto a = load(std::string("b") + ".logits.f32");\n'
        self.assertEqual(self.problems({"tests/golden/b.logits.f32": "x", "tests/model/b_test.cpp": code}), {})
        changes = {"tests/golden/b.tokens.json": "x", "tests/model/b_test.cpp": code}
        self.expect("goldens_in_use", changes, "b.tokens.json")

    def test_forbidden_word(self):
        for word in check.FORBIDDEN:
            self.expect("nothing_forbidden", {"docs/n.md": f"# N\n\nfoo {word.upper()} bar\n"}, "docs/n.md:3")
        self.assertEqual(self.problems({"models/train/n.txt": check.FORBIDDEN[0]}), {})
        self.assertEqual(self.problems({"models/n.bin": b"\0" + check.FORBIDDEN[0].encode()}), {})

    def test_tree_too_large(self):
        before, check.TRACKED_BYTES = check.TRACKED_BYTES, 1 << 16
        try:
            self.expect("tree_size", {"models/big.bin": b"\0" * ((1 << 16) + 1)}, "at most 65536")
        finally:
            check.TRACKED_BYTES = before

    def test_link_to_nothing(self):
        self.expect("links_resolve", {"docs/l.md": "# L\n\n[x](gone.md)\n"}, "docs/l.md:3", "gone.md")
        self.expect("links_resolve", {"docs/l.md": "# L\n\n[x](../README.md#gone)\n"}, "no such heading")
        self.assertEqual(self.problems({"docs/l.md": "# L\n\n```\n[x](gone.md)\n```\n`[y](gone)`\n"}), {})


if __name__ == "__main__":
    quiet = "--quiet" in sys.argv
    arguments = [a for a in sys.argv if a != "--quiet"]
    if quiet:
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(CheckTest)
        result = unittest.TextTestRunner(stream=open("/dev/null", "w"), verbosity=0).run(suite)
        for test, trace in result.failures + result.errors:
            print(f"{test}\n{trace}")
        sys.exit(0 if result.wasSuccessful() else 1)
    unittest.main(argv=arguments)
