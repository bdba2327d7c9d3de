"""What scripts/lines and scripts/arrows know about Rust's text: where comments, texts and tests are."""

import os
import re

TOKEN = re.compile(
    r"""(?P<line>//[^\n]*)
      | (?P<block>/\*)
      | (?P<raw>\b(?:b|c)?r(?P<hashes>\#*)")
      | (?P<text>"(?:\\.|[^"\\])*")
      | (?P<char>'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'\n])')
    """,
    re.VERBOSE | re.DOTALL,
)
TEST_ATTRIBUTE = re.compile(r"#\s*\[\s*(?:cfg\s*\(\s*(?:all\s*\(\s*[^\[\]]*?\b)?test\s*[,)]|test\s*\])")
ITEM = re.compile(
    r"\s*(?:pub(?:\([^)]*\))?\s+)?(?:async|const|enum|extern|fn|impl|let|macro_rules|mod|static|struct|trait|type|union|unsafe|use)\b"
)
EXTERNAL_MODULE = re.compile(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")


def masked(source):
    """The source with spaces for comments and `_` for what texts say, so that nothing in them is taken for code."""
    parts, at = [], 0
    while found := TOKEN.search(source, at):
        start, end = found.span()
        parts.append(source[at:start])
        if found["block"]:
            end = block_end(source, start)
        elif found["raw"] is not None:
            close = source.find('"' + found["hashes"], end)
            end = len(source) if close < 0 else close + 1 + len(found["hashes"])
        is_comment = found["line"] or found["block"]
        parts.append(re.sub(r"[^\n]", " ", source[start:end]) if is_comment else re.sub(r"[^\n\s]", "_", source[start:end]))
        at = end
    return "".join(parts) + source[at:]


def block_end(source, start):
    """Rust's block comments nest."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", source[start:]):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return start + mark.end()
    return len(source)


def item_end(code, at):
    """Where the item that begins at `at` ends: at its closing brace, or at a semicolon outside brackets; a field or a
    match arm, at its comma."""
    is_item, depth = ITEM.match(code, at), 0
    for mark in re.finditer(r"[][(){};,]", code[at:]):
        sign = mark.group()
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
            # The end of what contains it.
            if depth < 0:
                return at + mark.start()
            if sign == "}" and depth == 0:
                return at + mark.end()
        elif depth == 0 and (sign == ";" or (sign == "," and not is_item)):
            return at + mark.end()
    return len(code)


def without_tests(code):
    """The masked source with spaces for items that only tests have, and the names of modules in files of their own."""
    modules, at = [], 0
    while found := TEST_ATTRIBUTE.search(code, at):
        start = found.start()
        end = item_end(code, start_of_item(code, start))
        if module := EXTERNAL_MODULE.match(code, start_of_item(code, start)):
            modules.append((module[1], start, end))
        code = code[:start] + re.sub(r"[^\n]", " ", code[start:end]) + code[end:]
        at = end
    return code, modules


def start_of_item(code, at):
    """Past the attributes."""
    while attribute := re.compile(r"\s*#\s*\[").match(code, at):
        depth, at = 1, attribute.end()
        while depth and at < len(code):
            depth += {"[": 1, "]": -1}.get(code[at], 0)
            at += 1
    return at


def files_of(folder):
    """Each Rust file below a crate's src, with its code: no comments, no tests."""
    paths = sorted(
        os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names if name.endswith(".rs")
    )
    sources, only_tests = {}, set()
    for path in paths:
        with open(path, encoding="utf-8") as file:
            source = file.read()
        sources[path], modules = without_tests(masked(source))
        for name, start, end in modules:
            named = re.search(r'#\[path\s*=\s*"([^"]*)"\]', source[start:end])
            below = os.path.dirname(path) if os.path.basename(path) in ("mod.rs", "lib.rs", "main.rs") else path[:-3]
            file = os.path.join(os.path.dirname(path), named[1]) if named else os.path.join(below, name + ".rs")
            only_tests.add(file[:-3])
    def is_test(path):
        return any(path == test + ".rs" or path.startswith(test + os.sep) for test in only_tests)
    return {path: code for path, code in sources.items() if not is_test(path)}
