"""Which lines of a traceback an author of a plugin is shown."""

from pathlib import Path

import pytest

from toolpost.base.author_code import format_author_traceback
from toolpost.providers.references import resolve


@pytest.mark.parametrize(
    "source", ["x = (\n", "def f():\nreturn 1\n", "x = 1\nraise KeyError(x)\n", "import not_there_at_all\n"]
)
def test_an_error_of_a_file_is_shown_with_its_lines_alone(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "notes_with_an_error.py"
    file.write_text(source)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises((SyntaxError, KeyError, ImportError)) as raised:
        resolve("notes_with_an_error:plugin")
    # Without this test, which is an author's file too.
    written = format_author_traceback(raised.value.with_traceback(raised.tb.tb_next))

    assert f'File "{file}", line ' in written
    assert raised.typename in written
    assert "references.py" not in written
    assert "importlib" not in written


def test_an_error_of_our_own_is_shown_whole() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        exec(compile("1 / 0", "<made>", "exec"))

    assert "<made>" in format_author_traceback(raised.value)
