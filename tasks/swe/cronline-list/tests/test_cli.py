import io

from cronline.cli import main


def run(*words):
    out, err = io.StringIO(), io.StringIO()
    status = main(list(words), out, err)
    return status, out.getvalue(), err.getvalue()


def test_next():
    assert run("next", "0 6 * * mon", "--from", "2021-03-02T10:00") == (
        0,
        "2021-03-08 06:00\n",
        "",
    )


def test_count():
    status, out, _ = run(
        "next", "30 */12 * * *", "--from", "2021-03-02T10:00", "--count", "3"
    )
    assert status == 0
    assert out == "2021-03-02 12:30\n2021-03-03 00:30\n2021-03-03 12:30\n"


def test_a_mistake_is_one_line():
    assert run("next", "99 * * * *") == (
        1,
        "",
        "cronline: minute: 99 is out of range 0-59\n",
    )


def listing(tmp_path, text, start="2021-08-30T14:30"):
    path = tmp_path / "crontab.txt"
    path.write_text(text, encoding="utf-8")
    status, out, err = run("list", str(path), "--from", start)
    return status, out, err.replace(str(path), "FILE")


def test_list_is_sorted_by_time(tmp_path):
    text = "30 4 * * mon certbot renew\n0 6 * * * backup --all\n"
    assert listing(tmp_path, text) == (
        0,
        "2021-08-31 06:00  backup --all\n2021-09-06 04:30  certbot renew\n",
        "",
    )


def test_equal_times_keep_the_order_of_the_file(tmp_path):
    text = "0 6 * * * zeta\n0 6 * * * alpha\n0 5 * * * mid\n"
    status, out, _ = listing(tmp_path, text)
    assert status == 0
    assert [line.split()[-1] for line in out.splitlines()] == ["mid", "zeta", "alpha"]


def test_list_passes_over_what_is_no_job(tmp_path):
    text = (
        "# m h dom mon dow\n\nMAILTO=ada\nPATH = /usr/bin:/bin\n   # indented\n"
        "@reboot warm-cache\n\t0 6 * * *\techo a=b  two  blanks \n"
    )
    assert listing(tmp_path, text) == (0, "2021-08-31 06:00  echo a=b  two  blanks\n", "")


def test_list_knows_macros(tmp_path):
    text = (
        "@hourly h\n@daily d\n@midnight n\n@weekly w\n@monthly m\n@yearly y\n@annually a\n"
    )
    status, out, err = listing(tmp_path, text, "2021-08-30T14:30")
    assert (status, err) == (0, "")
    assert out == (
        "2021-08-30 15:00  h\n"
        "2021-08-31 00:00  d\n"
        "2021-08-31 00:00  n\n"
        "2021-09-01 00:00  m\n"
        "2021-09-05 00:00  w\n"
        "2022-01-01 00:00  y\n"
        "2022-01-01 00:00  a\n"
    )


def test_list_reports_all_mistakes_and_shows_the_rest(tmp_path):
    text = "61 * * * * one\n0 6 * * * good\n@sometimes two\n0 6 * *\n@daily\n"
    status, out, err = listing(tmp_path, text)
    assert status == 1
    assert out == "2021-08-31 06:00  good\n"
    assert [line.split(": ")[1] for line in err.splitlines()] == [
        "FILE:1",
        "FILE:3",
        "FILE:4",
        "FILE:5",
    ]
    assert err.startswith("cronline: FILE:1: minute: 61 is out of range 0-59\n")


def test_list_of_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("0 6 * * * backup\n"))
    assert run("list", "-", "--from", "2021-08-30T14:30")[:2] == (
        0,
        "2021-08-31 06:00  backup\n",
    )


def test_list_of_a_missing_file(tmp_path):
    status, out, err = run("list", str(tmp_path / "none.txt"))
    assert (status, out) == (1, "")
    assert err.startswith("cronline: ") and "none.txt" in err
    assert len(err.splitlines()) == 1
