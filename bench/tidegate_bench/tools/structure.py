"""Shows the structure of the source: owners, import cycles, the longest functions. `--check` fails on a cycle

The nodes of the graph are the modules in one folder: a file, or a folder with the file of its module. `c` imports `a`
if a path in its file leads to `a`: by `crate::a::b` or `super::a`, alone or in the braces of a `use`. A re-exported
name leads to the module that defines it, so that a `pub use` hides no import: if `lib.rs` says `pub use a::B`, then
`crate::B` is an import of `a`. Calls of methods are not seen. Unit tests (files `*_tests.rs` and `tests`, modules after
`#[cfg(test)]`) are left out.

    scripts/structure              every crate
    scripts/structure proxy        one crate, with its owners and longest functions
    scripts/structure --check      only the cycles; exit status 1 if there is one
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path

from tidegate_bench.record import ROOT

Module = tuple[str, ...]
Graph = dict[Module, set[Module]]
Names = dict[Module, dict[str, Module]]
IMPL = re.compile(r"^impl\b(?:<[^{]*?>)?\s+(?:[^{]*?\bfor\s+)?([A-Za-z_][A-Za-z0-9_:]*)[^{;]*\{", re.M)
FUNCTION = re.compile(r"^( *)(?:pub(?:\([^)]*\))? )?(?:const |unsafe |async )*fn ([a-z_0-9]+)", re.M)
USE = re.compile(r"^ *(?:pub(?:\([^)]*\))? )?use ([^;]+);", re.M)
INLINE = re.compile(r"\b(?:crate|self|super)(?:::\w+)+")
TEST = r"^ *#\[cfg\(test\)\]\n(?: *#\[path[^\n]*\n)? *(?:pub(?:\([^)]*\))? )?mod (\w+)"
TEST_FILE, TESTS_TO_END = re.compile(TEST + ";", re.M), re.compile(TEST + r" \{.*", re.M | re.S)


def sources(crate: Path) -> dict[Module, str]:
    """Returns the text of each file of a crate that is not a test, by the path of its module (a tuple)."""
    found: dict[Module, str] = {}
    tests: set[Module] = set()
    for file in sorted((crate / "src").rglob("*.rs")):
        parts = file.relative_to(crate / "src").with_suffix("").parts
        module: Module = () if parts in (("lib",), ("main",)) else parts
        text = TESTS_TO_END.sub("", file.read_text())
        tests |= {(*module, name) for name in TEST_FILE.findall(text)}
        found[module] = TEST_FILE.sub("", text)
    return {module: text for module, text in found.items() if not is_test(module, tests)}


def is_test(module: Module, tests: set[Module]) -> bool:
    named = any(part == "tests" or part.endswith("_tests") for part in module)
    return named or any(module[: len(test)] == test for test in tests)


def without_comments(text: str) -> str:
    """Returns a text without comments, and without `pub(in crate::a)`, which imports nothing."""
    return re.sub(r"//[^\n]*|\(in [\w:]+\)", "", text)


def leaves(tree: str, base: Module = ()) -> Iterator[tuple[Module, str]]:
    """Returns each path in the tree of a `use`, and the name that it gets there."""
    head, brace, rest = tree.strip().partition("{")
    if not brace:
        named, _, alias = head.partition(" as ")
        path = base + tuple(named.strip().split("::"))
        path = path[:-1] if path[-1] == "self" and len(path) > 1 else path
        yield path, alias.strip() or path[-1]
        return
    base += tuple(part for part in head.strip().split("::") if part)
    depth, item = 0, ""
    for letter in rest[: rest.rindex("}")] + ",":
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter != "," or depth:
            item += letter
            continue
        if item.strip():
            yield from leaves(item, base)
        item = ""


def from_root(path: Module, module: Module, modules: Collection[Module]) -> Module | None:
    """Returns a path in a module as a path from the root of the crate, or `None` if it leads to another crate."""
    first, *rest = path
    if first == "crate":
        return tuple(rest)
    if first not in ("self", "super"):
        return module + path if module + path[:1] in modules else None
    rest = list(path)
    while rest and rest[0] in ("self", "super"):
        module = module[:-1] if rest.pop(0) == "super" else module
    return module + tuple(rest)


def origin(
    path: Module, modules: Collection[Module], names: Names, passed: frozenset[tuple[Module, str]] = frozenset()
) -> Module:
    """Returns the module to which a path leads: the last module in it, or the one that defines a re-exported name."""
    for length, name in enumerate(path):
        module = path[:length]
        if (*module, name) in modules:
            continue
        further = names[module].get(name)
        if further and (module, name) not in passed:
            return origin(further + path[length + 1 :], modules, names, passed | {(module, name)})
        return module
    return path


def imports(modules: dict[Module, str]) -> Graph:
    """Returns for each module the modules that it imports."""
    named: Graph = defaultdict(set)
    names: Names = defaultdict(dict)
    for module, commented in modules.items():
        text = without_comments(commented)
        for use in USE.finditer(text):
            for named_path, name in leaves(use[1]):
                path = from_root(named_path, module, modules)
                if path is not None and path != (*module, name):
                    named[module].add(path)
                    names[module][name] = path
        for inline in INLINE.findall(USE.sub("", text)):
            leads_to = from_root(tuple(inline.split("::")), module, modules)
            named[module] |= {leads_to} if leads_to is not None else set()
    return {module: {origin(path, modules, names) for path in named[module]} - {module, ()} for module in modules}


def cycles(graph: Graph) -> list[list[Module]]:
    """Returns the strongly connected components of more than one node (Tarjan)."""
    index: dict[Module, int] = {}
    low: dict[Module, int] = {}
    stack: list[Module] = []
    on: set[Module] = set()
    found: list[list[Module]] = []

    def visit(node: Module) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        on.add(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = []
            while True:
                top = stack.pop()
                on.discard(top)
                component.append(top)
                if top == node:
                    break
            if len(component) > 1:
                found.append(sorted(component))

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


def folder_cycles(graph: Graph) -> list[list[Module]]:
    """Returns cycles between modules in the same folder, at every depth."""
    levels: dict[Module, Graph] = defaultdict(lambda: defaultdict(set))
    for module, used in graph.items():
        for other in used:
            depth = next((i for i, (a, b) in enumerate(zip(module, other, strict=False)) if a != b), None)
            if depth is not None:
                levels[module[:depth]][module[: depth + 1]].add(other[: depth + 1])
    return [cycle for level in levels.values() for cycle in cycles(level)]


def body(text: str, at: int) -> tuple[int, int]:
    """Returns the number of lines from `at` to the closing brace of the next block, and the position of that brace.

    The number is 0 if a semicolon comes first, as for a function without a body.
    """
    opening = text.find("{", at)
    semicolon = text.find(";", at)
    if opening < 0 or 0 <= semicolon < opening:
        return 0, at
    depth, end = 0, opening
    for end in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if depth == 0:
            break
    return text.count("\n", at, end) + 1, end


def functions(modules: dict[Module, str]) -> tuple[list[tuple[int, str, str]], dict[str, tuple[int, set[Module]]]]:
    """Returns length, module and name of each function, and methods and files of each owner."""
    lengths = []
    methods: dict[str, int] = defaultdict(int)
    files: dict[str, set[Module]] = defaultdict(set)
    for module, text in modules.items():
        for match in FUNCTION.finditer(text):
            lines, _ = body(text, match.start())
            if lines:
                lengths.append((lines, "::".join(module), match[2]))
        for match in IMPL.finditer(text):
            _, end = body(text, match.start())
            methods[match[1]] += len(FUNCTION.findall(text[match.start() : end]))
            files[match[1]].add(module)
    return sorted(lengths, reverse=True), {owner: (count, files[owner]) for owner, count in methods.items()}


def show(modules: dict[Module, str]) -> None:
    lengths, owners = functions(modules)
    print("  owners by methods: name, methods, files with an `impl` of it")
    ranked = sorted(owners.items(), key=lambda item: (-item[1][0], item[0]))
    for name, (methods, files) in ranked[:12]:
        print(f"    {name:28} {methods:4} {len(files):4}")
    print(f"  functions over 60 lines: {sum(lines > 60 for lines, _, _ in lengths)}; the longest:")
    for count, module, name in lengths[:5]:
        print(f"    {count:4} {module}::{name}")
    long = sorted(((text.count(chr(10)), "::".join(m)) for m, text in modules.items()), reverse=True)
    print(f"  files over 400 lines: {sum(count > 400 for count, _ in long)}")


def main(arguments: list[str]) -> int:
    is_check = "--check" in arguments
    wanted = [a for a in arguments if not a.startswith("-")]
    total = 0
    for crate in sorted(ROOT.glob("crates/*")):
        if wanted and crate.name not in wanted:
            continue
        modules = sources(crate)
        graph = imports(modules)
        found = folder_cycles(graph)
        total += len(found)
        if not is_check:
            biggest = max(map(len, cycles(graph)), default=0)
            lines = sum(text.count("\n") for text in modules.values())
            print(
                f"{crate.name}: {len(modules)} files, {lines} lines; largest cycle {biggest} files;"
                f" cycles between neighbours: {len(found)}"
            )
        for cycle in found:
            print(f"  {crate.name}: import cycle: " + ", ".join("::".join(node) for node in cycle))
        if wanted and not is_check:
            show(modules)
    if not is_check and not wanted:
        print(f"all: cycles between neighbours: {total}")
    return int(is_check and total > 0)
