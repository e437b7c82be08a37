"""The tutorials: their commands print what the text shows, and the code in the text is that of the programs."""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("[0-9]-*.md"))
TIME = re.compile(r"\d+\.\d+ (ms|s)\b")


def blocks(tutorial, language):
    return re.findall(r"^```%s\n(.*?)^```" % language, tutorial.read_text(), re.M | re.S)


def commands():
    """(tutorial, command, the output in the text) of every console block."""
    for tutorial in TUTORIALS:
        for block in blocks(tutorial, "console"):
            command, output = block.split("\n", 1)
            yield pytest.param(tutorial, command, output, id="%s: %s" % (tutorial.stem, command.split("--", 1)[1]))


def by_rank(output):
    """Lines in the order of ranks, which print when they like, without times."""
    return sorted((TIME.sub("TIME", line) for line in output.splitlines()), key=lambda line: line.split("]")[0])


@pytest.mark.parametrize("tutorial, command, shown", commands())
def test_commands_print_what_the_text_shows(tutorial, command, shown):
    prompt, tool, *arguments = shlex.split(command)
    assert (prompt, tool) == ("$", "switchyard")
    program = next(argument for argument in arguments if argument.endswith(".py"))
    if "import torch" in (ROOT / program).read_text():
        pytest.importorskip("torch", reason="torch is not installed: the tutorial with torch is left out")
    arguments = [sys.executable if argument == "python" else argument for argument in arguments]
    done = subprocess.run(
        [os.environ["SWITCHYARD_TOOL"], *arguments], cwd=ROOT, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr
    assert by_rank(done.stdout) == by_rank(shown)


@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda tutorial: tutorial.stem)
def test_code_in_the_text_is_that_of_the_program(tutorial):
    programs = {ROOT / name for name in re.findall(r"examples/python/\w+\.py", tutorial.read_text())}
    assert programs and blocks(tutorial, "python") and blocks(tutorial, "console")
    code = ["\n".join(line.strip() for line in program.read_text().splitlines()) for program in programs]
    for block in blocks(tutorial, "python"):
        shown = "\n".join(line.strip() for line in textwrap.dedent(block).strip().splitlines())
        assert any(shown in program for program in code), block


def test_every_tutorial_is_there():
    assert [tutorial.name[0] for tutorial in TUTORIALS] == list("12345")
    listed = (ROOT / "docs" / "python.md").read_text()
    assert all("tutorials/" + tutorial.name in listed for tutorial in TUTORIALS)
