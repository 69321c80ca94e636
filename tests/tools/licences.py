"""Checks licences, bans and sources of every dependency against deny.toml.

`make deny` does the same and more with cargo-deny, which takes minutes to build
and fetches a database. This needs nothing but cargo and Python's own library, so
that every `make lint` and every CI run can afford it.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

try:
    import tomllib
except ImportError:
    tomllib = None

ROOT = pathlib.Path(__file__).resolve().parents[2]


def allowed(expression, allow):
    """Whether an SPDX expression can be met with the licences in `allow`."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def peek():
        return tokens[at] if at < len(tokens) else None

    def take():
        nonlocal at
        at += 1
        return tokens[at - 1]

    def either():
        met = both()
        while peek() == "OR":
            take()
            met = both() or met
        return met

    def both():
        met = one()
        while peek() == "AND":
            take()
            met = one() and met
        return met

    def one():
        if peek() == "(":
            take()
            met = either()
            take()
            return met
        name = take()
        if peek() == "WITH":
            take()
            return f"{name} WITH {take()}" in allow or name in allow
        return name in allow

    return either()


def main():
    if tomllib is None:
        print("licences: not checked, Python 3.11 or newer is needed", file=sys.stderr)
        return int(os.environ.get("SIDECARJOB_STRICT") == "1")
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    allow = set(rules["licenses"]["allow"])
    banned = {entry["crate"] for entry in rules["bans"]["deny"]}
    rustc = subprocess.check_output(["rustc", "-vV"], text=True)
    platform = re.search(r"^host: (\S+)$", rustc, re.MULTILINE).group(1)
    metadata = json.loads(subprocess.check_output(
        ["cargo", "metadata", "--format-version", "1", "--locked", "--quiet", "--all-features",
         "--filter-platform", platform], cwd=ROOT))
    in_use = {node["id"] for node in metadata["resolve"]["nodes"]}
    problems = []
    registries = set()
    for package in metadata["packages"]:
        if package["id"] not in in_use:
            continue
        name = f"{package['name']} {package['version']}"
        source = package["source"]
        expression = package["license"]
        if expression is None:
            problems.append(f"{name}: states no licence")
        elif not allowed(expression, allow):
            problems.append(f"{name}: licence {expression} is not on the list")
        if package["name"] in banned:
            problems.append(f"{name}: banned")
        if source is None:
            for dependency in package["dependencies"]:
                if dependency["req"] == "*" and dependency.get("path") is None:
                    problems.append(f"{name}: any version of {dependency['name']} will do, it says")
        elif source.startswith(("registry+", "sparse+")):
            registries.add(source)
        else:
            problems.append(f"{name}: comes from {source}")
    if len(registries) > 1:
        problems.append(f"packages come from several registries: {', '.join(sorted(registries))}")
    for problem in sorted(problems):
        print(f"licences: {problem}", file=sys.stderr)
    if problems:
        return 1
    print(f"licences: {len(in_use)} packages, all as deny.toml allows")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(f"licences: {error}")
