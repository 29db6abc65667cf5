"""PrefLib files in PrefLib's own form, and broken ones."""

from pathlib import Path

import numpy as np
import pytest

from rmcalib.ranking import read_preflib

HEADER = """# FILE NAME: 00000-00000001.{kind}
# TITLE: Breakfast
# DESCRIPTION:
# DATA TYPE: {kind}
# MODIFICATION TYPE: original
# RELATES TO:
# RELATED FILES:
# PUBLICATION DATE: 2024-01-01
# MODIFICATION DATE: 2024-01-01
# NUMBER ALTERNATIVES: 4
# NUMBER VOTERS: {voters}
# NUMBER UNIQUE ORDERS: {orders}
# ALTERNATIVE NAME 1: Tea: green
# ALTERNATIVE NAME 2: Café
# ALTERNATIVE NAME 3: Milk
# ALTERNATIVE NAME 4: Juice
"""


def write(folder: Path, kind: str, *votes: str) -> Path:
    voters = sum(int(vote.split(":")[0]) for vote in votes)
    path = folder / f"votes.{kind}"
    text = HEADER.format(kind=kind, voters=voters, orders=len(votes)) + "\n".join(votes) + "\n"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "votes", "buckets"),
    [
        ("soc", ["10: 1,2,3,4", "3: 4,3,1,2"], [[0, 1, 2, 3], [2, 3, 1, 0]]),
        ("soi", ["5: 2,1", "1: 3"], [[1, 0, -1, -1], [-1, -1, 0, -1]]),
        ("toc", ["10: 1,2,{3,4}", "2: {1,2,3,4}"], [[0, 1, 2, 2], [0, 0, 0, 0]]),
        ("toi", ["7: {2,4},1", "1: 3 , {1, 2}"], [[1, 0, -1, 0], [1, 1, 0, -1]]),
    ],
)
def test_reads_every_file_type(kind: str, votes: list[str], buckets: list[list[int]], tmp_path: Path) -> None:
    profile = read_preflib(write(tmp_path, kind, *votes))
    assert profile.alternatives == ("Tea: green", "Café", "Milk", "Juice")
    assert profile.rankings.buckets.tolist() == buckets
    assert profile.counts.tolist() == [int(vote.split(":")[0]) for vote in votes]
    assert len(profile) == profile.counts.sum() == len(profile.per_voter())


def test_unlisted_alternatives_come_last_only_on_request(tmp_path: Path) -> None:
    profile = read_preflib(write(tmp_path, "soi", "5: 2,1"))
    pair = np.array([[0, 2]])
    assert profile.rankings.outcomes(pair, "sub").tolist() == [[-1]]
    assert profile.rankings.with_unlisted_last().outcomes(pair, "sub").tolist() == [[1]]


@pytest.mark.parametrize(
    ("kind", "vote", "message"),
    [
        ("soc", "1: 1,2,3", "line 17 lists 3 of 4 alternatives, but .soc files hold complete orders"),
        ("soc", "1: 1,2,{3,4}", "line 17 has a tie, but .soc files hold strict orders"),
        ("toc", "1: 1,2,{3,4", "braces and commas do not match"),
        ("toc", "1: 1,2,3,,4", "braces and commas do not match"),
        ("toi", "1: {}", "line 17 has ''; expected an alternative from 1 to 4"),
        ("soi", "1: 1,5", "line 17 has '5'; expected an alternative from 1 to 4"),
        ("soi", "1: 1,x", "line 17 has 'x'"),
        ("soi", "1: 1,2,1", "line 17 lists alternative 1 twice"),
        ("soi", "0: 1,2", "line 17 is '0: 1,2'; expected 'count: order'"),
        ("soi", "1:", "line 17 is '1:'"),
    ],
)
def test_errors_name_the_bad_vote(kind: str, vote: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_preflib(write(tmp_path, kind, vote))
    assert message in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_errors_name_the_bad_file(tmp_path: Path) -> None:
    whole = write(tmp_path, "soc", "10: 1,2,3,4", "3: 4,3,1,2")
    text = whole.read_text(encoding="utf-8")
    cases = {
        "cut.soc": (text[: text.index("3: 4")], "the header says NUMBER VOTERS: 13, but the file has 10"),
        "empty.soc": ("", "expected a line '# NUMBER ALTERNATIVES: m'"),
        "none.soc": (text[: text.index("10: 1")], "has no orders"),
        "votes.csv": (text, "not a PrefLib file of orders"),
        "headless.soc": ("5: 1,2\n", "expected a line '# NUMBER ALTERNATIVES: m'"),
        "nocolon.soc": (text + "1,2,3,4\n", "is '1,2,3,4'; expected 'count: order'"),
    }
    for name, (content, message) in cases.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=r".") as caught:
            read_preflib(tmp_path / name)
        assert message in str(caught.value), name
    with pytest.raises(ValueError, match=r"nowhere\.soc: cannot be read"):
        read_preflib(tmp_path / "nowhere.soc")
    (tmp_path / "binary.soc").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match="not a text file in UTF-8"):
        read_preflib(tmp_path / "binary.soc")
