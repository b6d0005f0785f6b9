"""Every command that meets a section without effect says what to add."""

from pathlib import Path

from tests.cli.conftest import Run


def test_doctor_and_config_show_say_it(invoke: Run, tmp_path: Path) -> None:
    (tmp_path / "toolpost.toml").write_text('[plugins]\nbundled = ["time"]\n\n[bus]\nattempts = 3\n')
    doctor, shown, listed = invoke("doctor"), invoke("config", "show"), invoke("tools")

    line = 'bundled = ["time", "bus"]'
    assert doctor.code != 0
    assert doctor.out.count("[bus] has no effect") == 1
    assert line in doctor.out
    assert "time" in doctor.out
    assert "[bus] has no effect" in shown.err
    assert line in shown.err
    assert listed.code != 0
    assert line in listed.err
