"""README shows what happens: the demo's real output, commands and verbs that exist."""

import re
from pathlib import Path

from tests.cli.conftest import Cli
from tests.cli.readme import README, shortened, shown, without_times


def test_the_demo_in_readme_is_what_the_demo_prints(cli: Cli) -> None:
    printed = shortened(cli("demo").out)

    assert without_times(shown()) == without_times(printed), (
        "the demo prints something else by now: python -m tests.cli.readme"
    )


def test_every_command_and_verb_in_readme_exists(cli: Cli) -> None:
    text = README.read_text("utf-8")
    makefile = Path(README.with_name("Makefile")).read_text("utf-8")

    for verb in set(re.findall(r"(?:^|`)make ([a-z]+)\b", text, re.M)):
        assert re.search(rf"^{verb}:", makefile, re.M), verb
    for command in set(re.findall(r"`ombus ([a-z]+)", text)):
        assert cli(command, "--help").code == 0, command
    for path in re.findall(r"\]\(([\w./]+)\)", text):
        assert README.with_name(path.split("/")[0]).exists(), path
