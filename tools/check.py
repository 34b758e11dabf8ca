#!/usr/bin/python3
"""Holds the tree to the house's rules; runs before the build and as a test. Standard library only.

  check.py [ROOT]      prints one line per problem, exit status 1 where there is any

Each rule is a function of a Tree and yields problems as "path:line: what, and what would be right". check_test.py
proves that every rule can fail.
"""
import os
import pathlib
import re
import subprocess
import sys

# An include may only point to a module with a smaller number, or stay inside its own.
MODULES = {
    "base": 0, "ledger": 1, "quant": 1, "gguf": 2, "text": 3, "device": 3, "experts": 4,
    "model": 5, "draft": 6, "engine": 7, "server": 8, "lab": 8, "cli": 9,
}
# Parts of one module that must not see each other.
STRANGERS = [("src/device/cpu/", "src/device/cuda/")]

CODE_FOLDERS = ("src/", "tests/", "bench/")
CPP = (".h", ".cpp", ".cu", ".cuh")
CODE = CPP + (".def", ".inc", ".py", ".sh", ".cmake")
FILE_LINES = 800
FUNCTION_LINES = 100
KERNEL_LINES = 200
KERNEL_FILE = re.compile(r"^src/device/.*(matmul|kernels|float_kernels)[^/]*$")

GETENV_HOME = "src/base/args.cpp"
CUDA_HOME = "src/device/cuda/"
# Tests that compile the CUDA sources, on a GPU or as C++.
CUDA_TESTS = ("tests/cuda/", "tests/emulation/")
EMULATED = "emulation/"  # what the CUDA sources include from there in place of the device's own
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|cutlass|cub/|thrust/|nccl|nvrtc|nvtx|nvml|cooperative_groups|mma\.h)")

# Roles that exist in every report's table before the code that charges them does. A reserved role that is used must
# leave this list.
RESERVED_ROLES = {
    "recurrent": "families with gated DeltaNet layers",
    "shared": "families with a shared expert",
    "draft": "drafters",
    "accept": "drafters",
}

# Spelled in halves so that this file passes its own rule. Lower case.
FORBIDDEN = ["/wo" + "rk/", "sub" + "agent", "this ses" + "sion"]
FORBIDDEN_EXEMPT = ("models/train/",)
TRACKED_BYTES = 48 << 20


class Tree:
    """The files of a checkout: tracked, and new ones that git does not ignore."""

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.paths = [p for p in self._list() if (self.root / p).is_file()]
        self._text = {}

    def _list(self):
        command = ["git", "-c", "safe.directory=*", "-C", str(self.root)]
        command += ["ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        try:
            out = subprocess.run(command, check=True, capture_output=True).stdout
            return sorted(set(out.decode().split("\0")) - {""})
        except (OSError, subprocess.CalledProcessError):
            return sorted(self._walk())  # an exported tree

    def _walk(self):
        for folder, names, files in os.walk(self.root):
            names[:] = [n for n in names if not n.startswith("build") and n not in (".git", "__pycache__")]
            for name in files:
                yield (pathlib.Path(folder) / name).relative_to(self.root).as_posix()

    def below(self, prefixes, suffixes):
        return [p for p in self.paths if p.startswith(prefixes) and p.endswith(suffixes)]

    def text(self, path):
        """The file's text, or None where it is not text."""
        if path not in self._text:
            raw = (self.root / path).read_bytes()
            try:
                self._text[path] = None if b"\0" in raw else raw.decode()
            except UnicodeDecodeError:
                self._text[path] = None
        return self._text[path]

    def bytes(self):
        return sum((self.root / p).stat().st_size for p in self.paths)


# --- C++ without a compiler -----------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/'  # comments
    r'|(?:u8|[uUL])?R"([^()\\\s]{0,16})\((?:.*?)\)\1"'  # raw strings
    r'|"(?:\\.|[^"\\\n])*"'  # strings
    r"|(?<![0-9a-fA-F])'(?:\\.[^'\n]*|[^'\\\n])'",  # characters, not digit separators
    re.S,
)


def blank(text, keep_strings=False):
    """`text` with comments and (unless kept) the insides of strings as spaces; every newline stays."""

    def replace(match):
        token = match.group(0)
        if keep_strings and not token.startswith(("//", "/*")):
            return token
        return re.sub(r"[^\n]", " ", token)

    return _TOKEN.sub(replace, text)


def includes(text):
    """(line number, header, quoted) of every #include."""
    for number, line in enumerate(blank(text, keep_strings=True).split("\n"), 1):
        match = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if match:
            yield number, match.group(1) or match.group(2), match.group(1) is not None


class Unbalanced(Exception):
    pass


def _is_function(header):
    """Whether `header {`, at namespace or class scope, opens a function's body."""
    header = re.sub(r"\b(alignas|__attribute__|noexcept|decltype)\s*\((?:[^()]|\([^()]*\))*\)", " ", header)
    if "(" not in header:
        return False
    outside = header
    while True:
        shorter = re.sub(r"\([^()]*\)|\[[^\[\]]*\]", lambda m: "[]" if m.group(0)[0] == "[" else " ", outside)
        if shorter == outside:
            break
        outside = shorter
    outside = re.sub(r"\boperator\s*[^\s\w(]+", "operator", outside)
    if re.search(r"(?<![=<>!])=(?!=)", outside):
        return re.search(r"=\s*\[\]", outside) is not None  # a named lambda; else an initialiser
    return True


def functions(text):
    """(first line, last line, header) of every function body at namespace or class scope. A brace-matching scan: it
    knows comments, strings, initialiser lists and braces inside parentheses, and takes all branches of #if as one."""
    code = blank(text)
    code = re.sub(r"(?m)^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), code)
    found = []
    scopes = 0  # namespaces and classes that are open
    start = 0  # where the current header begins
    parens = 0
    i = 0
    while i < len(code):
        c = code[i]
        if c in "([":
            parens += 1
        elif c in ")]":
            parens -= 1
        elif parens == 0 and c == ";":
            start = i + 1
        elif c == "}" and parens == 0:
            scopes -= 1
            start = i + 1
            if scopes < 0:
                raise Unbalanced(code.count("\n", 0, i) + 1)
        elif c == "{":
            header = code[start:i]
            if parens > 0:
                i = _matching(code, i)  # a lambda or a list as an argument: part of the header
            elif _is_function(header):
                end = _matching(code, i)
                following = code[end + 1 :].lstrip()[:1]
                if following in (",", "{") and following:
                    i = end  # `: a_{1}, b_{2} {`: the list before the body
                else:
                    first = start + re.match(r"(\s|(public|private|protected)\s*:(?!:))*", header).end()
                    name = " ".join(code[first:i].split())
                    found.append((code.count("\n", 0, first) + 1, code.count("\n", 0, end) + 1, name))
                    i = end
                    start = end + 1
            else:
                scopes += 1
                start = i + 1
        i += 1
    if scopes != 0:
        raise Unbalanced(code.count("\n") + 1)
    return found


def _matching(code, at):
    depth = 0
    for match in re.compile(r"[{}]").finditer(code, at):
        depth += 1 if match.group(0) == "{" else -1
        if depth == 0:
            return match.start()
    raise Unbalanced(code.count("\n", 0, at) + 1)


# --- rules ----------------------------------------------------------------------------------------------------------


def include_direction(tree):
    for path in tree.below("src/", CPP):
        module = path.split("/")[1]
        if module not in MODULES:
            yield f"{path}:1: `{module}` is not a module; add it to MODULES in tools/check.py with its place in the order"
            continue
        for line, header, quoted in includes(tree.text(path)):
            if not quoted:
                continue
            if path.startswith(CUDA_HOME) and header.startswith(EMULATED):
                continue
            if f"src/{header}" not in tree.paths:
                yield f'{path}:{line}: "{header}" is no file below src/; includes are rooted there'
                continue
            other = header.split("/")[0]
            if other != module and MODULES.get(other, 99) >= MODULES[module]:
                yield (f"{path}:{line}: {module} ({MODULES[module]}) includes {header} ({MODULES.get(other, '?')}); "
                       "an include only points to a smaller number")
            for one, two in STRANGERS + [(b, a) for a, b in STRANGERS]:
                if path.startswith(one) and f"src/{header}".startswith(two):
                    yield f"{path}:{line}: {one} includes {header}; the two never see each other"


def file_size(tree):
    for path in tree.below(CODE_FOLDERS + ("tools/",), CODE):
        lines = tree.text(path).count("\n")
        if lines > FILE_LINES:
            yield f"{path}:1: {lines} lines; at most {FILE_LINES}"


def function_size(tree):
    for path in tree.below(CODE_FOLDERS, CPP):
        limit = KERNEL_LINES if KERNEL_FILE.match(path) else FUNCTION_LINES
        try:
            for first, last, header in functions(tree.text(path)):
                if last - first + 1 > limit:
                    yield f"{path}:{first}: `{header[:60]}` has {last - first + 1} lines; at most {limit}"
        except Unbalanced as error:
            yield f"{path}:{error}: braces do not balance, so functions cannot be measured"


def environment_in_one_place(tree):
    for path in tree.below("src/", CPP):
        if path == GETENV_HOME:
            continue
        for number, line in enumerate(blank(tree.text(path)).split("\n"), 1):
            if re.search(r"\b(secure_)?getenv\b|\b(un)?setenv\b|\bputenv\b|\benviron\b", line):
                yield f"{path}:{number}: the environment is read and changed in {GETENV_HOME} only"


def cuda_in_one_place(tree):
    for path in tree.below(CODE_FOLDERS, CPP):
        if path.startswith((CUDA_HOME, *CUDA_TESTS)):
            continue
        if path.startswith("src/") and path.endswith((".cu", ".cuh")):
            yield f"{path}:1: CUDA sources belong in {CUDA_HOME}"
        for line, header, quoted in includes(tree.text(path)):
            if CUDA_HEADER.match(header.split("/")[-1]) or CUDA_HEADER.match(header):
                yield f"{path}:{line}: {header} is a CUDA header; only {CUDA_HOME} includes those"


def roles_in_use(tree):
    table = "src/ledger/roles.def"
    if table not in tree.paths or not tree.below("src/engine/", ".cpp"):
        return  # roles are entered by the engine and what lies under it
    code = "\n".join(blank(tree.text(p)) for p in tree.below("src/", CPP) if not p.startswith("src/ledger/"))
    roles = re.findall(r"(?m)^WEIR_ROLE\((\w+)", tree.text(table))
    for role in roles:
        used = re.search(rf"\bRole::{role}\b", code) is not None
        if not used and role not in RESERVED_ROLES:
            yield f"{table}:1: role `{role}` is charged nowhere; use it, drop it, or reserve it with a reason"
        if used and role in RESERVED_ROLES:
            yield f"tools/check.py:1: role `{role}` is in use now; take it off RESERVED_ROLES"
    for role in RESERVED_ROLES:
        if role not in roles:
            yield f"tools/check.py:1: reserved role `{role}` is not in {table}"


def goldens_in_use(tree):
    """A test or tool holds the file's name, or as two literals its stem and what follows the first dot."""
    goldens = [p for p in tree.paths if p.startswith("tests/golden/") and not p.endswith(".md")]
    readers = [p for p in tree.below(("tests/", "tools/"), CODE) if not p.startswith("tests/golden/")]
    texts = [tree.text(p) or "" for p in readers]
    for path in goldens:
        name = os.path.basename(path)
        stem, _, suffix = name.partition(".")
        if not any(name in t or (suffix and f'"{stem}"' in t and f'".{suffix}"' in t) for t in texts):
            yield f"{path}:1: no test and no tool names this golden file"


def nothing_forbidden(tree):
    for path in tree.paths:
        if path.startswith(FORBIDDEN_EXEMPT) or tree.text(path) is None:
            continue
        for number, line in enumerate(tree.text(path).lower().split("\n"), 1):
            for word in FORBIDDEN:
                if word in line:
                    yield f"{path}:{number}: `{word}` has no place in this tree"


def tree_size(tree):
    total = tree.bytes()
    if total > TRACKED_BYTES:
        yield f".:1: the tree holds {total} bytes; at most {TRACKED_BYTES}"


def _slugs(text):
    """Anchors of a document's headings, as GitHub makes them."""
    seen = {}
    for title in re.findall(r"(?m)^#{1,6}\s+(.*?)\s*#*$", _outside_fences(text)):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = seen[slug] = seen.get(slug, -1) + 1
        yield slug if number == 0 else f"{slug}-{number}"


def _outside_fences(text):
    return re.sub(r"(?ms)^\s*```.*?^\s*```[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def links_resolve(tree):
    for path in [p for p in tree.paths if p.endswith(".md")]:
        for number, line in enumerate(_outside_fences(tree.text(path)).split("\n"), 1):
            line = re.sub(r"`[^`]*`", "", line)
            for target in re.findall(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)", line):
                if re.match(r"[a-z][a-z0-9+.-]*:", target):
                    continue
                name, _, fragment = target.partition("#")
                full = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
                if not (tree.root / full).exists():
                    yield f"{path}:{number}: link to {target}, which is not there"
                elif fragment and full.endswith(".md") and fragment not in _slugs(tree.text(full)):
                    yield f"{path}:{number}: link to {target}, and {full} has no such heading"


RULES = [
    include_direction, file_size, function_size, environment_in_one_place, cuda_in_one_place, roles_in_use,
    goldens_in_use, nothing_forbidden, tree_size, links_resolve,
]


def main(arguments):
    root = arguments[0] if arguments else pathlib.Path(__file__).resolve().parent.parent
    tree = Tree(root)
    problems = [problem for rule in RULES for problem in rule(tree)]
    for problem in problems:
        print(problem)
    if problems:
        print(f"tools/check.py: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
